"""DeleteRecords as Apache Kafka 4.3 answers it; what it answered survives a power cut."""

import random

import pytest
from tests.unit.frontends.in_memory import Asked, Machine
from tests.unit.storage.logs import a_batch, append

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.lease import Work
from penstock.records.relay import RelayKind, producer_fields
from penstock.replication.route_registry import RelayRoute
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

TEN = range(1000, 1010)
RETIRED = 2


async def delete(
    asked: Asked, *wanted: tuple[int, int], topic: str = "t", version: int = 2, timeout_ms: int = 0
) -> list[tuple[int, int, int]]:
    partitions = [DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in wanted]
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=partitions)], timeout_ms=timeout_ms
    )
    (answer,) = (await asked.ask(ApiKey.DELETE_RECORDS, request, version)).topics
    assert answer.name == topic
    return [
        (partition.partition_index, partition.low_watermark, partition.error_code)
        for partition in answer.partitions
    ]


@pytest.mark.parametrize("version", range(3))
async def test_the_start_moves_forward_only(version: int) -> None:
    async with Machine().broker() as asked:
        await asked.create("t")
        asked.append("t", a_batch(TEN))
        asked.append("t", a_batch(TEN), commit=False)
        assert await delete(asked, (0, 3), version=version) == [(0, 3, 0)]
        assert await delete(asked, (0, 2), version=version) == [(0, 3, 0)]
        assert await delete(asked, (0, 11), version=version) == [(0, -1, ErrorCode.OFFSET_OUT_OF_RANGE)]
        assert await delete(asked, (0, -5), version=version) == [(0, -1, ErrorCode.OFFSET_OUT_OF_RANGE)]
        assert await delete(asked, (0, -1), version=version) == [(0, 10, 0)]


async def test_deleted_records_cannot_be_fetched() -> None:
    async with Machine().broker() as asked:
        await asked.create("t")
        asked.append("t", a_batch(TEN))
        await delete(asked, (0, 5))
        partition = asked.partition("t")
        assert partition.read(5, 1 << 20, at_least_one=True) is not None
        with pytest.raises(ApiError) as caught:
            partition.read(4, 1 << 20, at_least_one=True)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_an_answered_deletion_survives_a_power_cut() -> None:
    for seed in range(10):
        machine = Machine()
        async with machine.broker() as asked:
            await asked.create("t")
            asked.append("t", a_batch(TEN))
            asked.partition("t").log.sync_job().run()
            assert await delete(asked, (0, 7)) == [(0, 7, 0)]
            machine.files = machine.files.crash(random.Random(seed))
        async with machine.broker() as asked:
            assert asked.partition("t").log.start_offset == 7


async def test_a_start_is_not_written_down_when_the_records_below_it_could_not_be_made_durable() -> None:
    machine = Machine()
    async with machine.broker() as asked:
        await asked.create("t", {"penstock.ack.after": "written"})
        partition = asked.partition("t")
        append(partition.log, a_batch(TEN))
        partition.write_held()
        assert partition.high_watermark == 10
        machine.files.fail_next("sync", "*.log")
        assert await delete(asked, (0, 7), timeout_ms=1000) == [(0, -1, ErrorCode.KAFKA_STORAGE_ERROR)]
        names = machine.files.list_dir(partition.log.directory)
        assert not [name for name in names if name.endswith(".start")]


async def test_what_cannot_be_deleted() -> None:
    async with Machine().broker() as asked:
        await asked.create("t")
        await asked.create("k", {"cleanup.policy": "compact"})
        await asked.create("both", {"cleanup.policy": "compact,delete"})
        await asked.create("__consumer_offsets")
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await delete(asked, (9, 1), (-1, 0), (0, 0)) == [
            (9, -1, unknown),
            (-1, -1, unknown),
            (0, 0, 0),
        ]
        assert await delete(asked, (0, 0), topic="nope") == [(0, -1, unknown)]
        assert await delete(asked, (0, 0), topic="k") == [(0, -1, ErrorCode.POLICY_VIOLATION)]
        assert await delete(asked, (0, 0), topic="both") == [(0, 0, 0)]
        internal = [(0, -1, ErrorCode.INVALID_TOPIC_EXCEPTION)]
        assert await delete(asked, (0, 0), topic="__consumer_offsets") == internal


async def test_of_two_offsets_for_one_partition_the_last_counts() -> None:
    async with Machine().broker() as asked:
        await asked.create("t")
        asked.append("t", a_batch(TEN))
        assert await delete(asked, (0, 8), (0, 4)) == [(0, 4, 0)]


async def test_a_disk_that_fails_is_told() -> None:
    machine = Machine()
    async with machine.broker() as asked:
        await asked.create("t")
        asked.append("t", a_batch(TEN))
        machine.files.fail_next("sync", "*", count=100)
        machine.files.fail_next("open", "*", count=100)
        assert await delete(asked, (0, 4)) == [(0, -1, ErrorCode.KAFKA_STORAGE_ERROR)]
        machine.files.mend()


async def test_a_relay_that_cannot_be_spoken_for_in_time_keeps_everything() -> None:
    """Its place is said again before the batch that says it goes; where nothing is committed, nothing goes."""
    async with Machine().broker() as asked:
        await asked.create("t")
        table = asked.services.table
        topic_id = table.by_name[b"t"].id
        route = RelayRoute(RelayKind.RETIRED, topic_id, RETIRED, topic_id, 0)
        table.routes.register(RelayKind.RETIRED, topic_id, [route])
        partition = asked.partition("t")
        append(partition.log, a_batch(producer=producer_fields(RETIRED, 1, 0)))
        asked.append("t", a_batch(TEN))
        partition.sync_before_ack = True
        assert partition.lease.take(Work.SYNC)  # and nothing syncs: it cannot commit
        end = partition.log.end_offset
        for _ in range(2):
            assert await delete(asked, (0, 5), timeout_ms=5) == [(0, -1, ErrorCode.REQUEST_TIMED_OUT)]
            assert partition.log.start_offset == 0
            assert partition.log.end_offset == end + 1, "said again once, however often it is asked for"
        partition.limits.move(partition.log.end())
        assert await delete(asked, (0, 5)) == [(0, 5, 0)]
        assert partition.log.end_offset == end + 1
