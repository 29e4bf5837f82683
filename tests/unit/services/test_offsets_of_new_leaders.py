"""What a leader says of a time before it knows how much of its log is committed."""

import asyncio
from types import SimpleNamespace

import pytest
from tests.unit.replication.test_retirement import THREE, a_partition, write
from tests.unit.storage.logs import a_batch

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.replication.leading import Leading
from penstock.replication.partition import Partition
from penstock.services.batch_opening import Openings
from penstock.services.list_offsets import OffsetService, Spec


async def asked(partition: Partition, timestamp: int) -> int | ErrorCode:
    table = SimpleNamespace(by_name={}, find=lambda *_: partition)
    service = OffsetService(Openings(asyncio.get_running_loop(), None), table)  # type: ignore[arg-type]
    try:
        return (await service.find("t", 0, -1, timestamp)).offset
    except ApiError as error:
        return error.code


@pytest.mark.parametrize("timestamp", [0, *(spec for spec in Spec if spec != Spec.EARLIEST)])
async def test_nothing_is_not_said_by_a_leader_that_does_not_know_its_end(timestamp: int) -> None:
    """All three were acknowledged by the leader before it, which alone knew that they were committed."""
    partition = a_partition()
    write(partition, 3)
    partition.stand_back(5)
    leading = Leading(1, THREE, 1, epoch_start=3, now=0.0)
    partition.lead(6, leading)
    partition.limits.move(partition.log.end()._replace(offset=0, position=0))
    assert await asked(partition, timestamp) is ErrorCode.OFFSET_NOT_AVAILABLE


async def test_what_is_known_to_be_committed_is_told_by_it() -> None:
    partition = a_partition()
    write(partition, 3)
    partition.stand_back(5)
    partition.limits.move(partition.log.end()._replace(offset=1, position=len(a_batch())))
    partition.lead(6, Leading(1, THREE, 1, epoch_start=3, now=0.0))
    assert await asked(partition, 0) == 0
