"""More partitions than the machine can hold are refused, with a sentence that says what is short."""

import asyncio
import random
from pathlib import Path

import pytest

from penstock.coordination.image import ClusterImage
from penstock.coordination.registration import BrokerRegistration
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.jobs import Jobs
from penstock.core.limits import PARTITION_BYTES_MIN, PARTITIONS_PER_FILE_MAX
from penstock.replication.peer import PeerError
from penstock.replication.table import PartitionTable
from penstock.services.topics.headroom import Headroom
from penstock.storage.data_dir import DataDir
from penstock.testing.mem_files import MemFiles

MEGABYTE = 1 << 20
HERE, THERE = 1, 2
Disk = tuple[int, int] | PeerError


def checked(
    files: MemFiles, count: int, there: int = 0, *, most: int | None = None, disk: Disk = (9, 9)
) -> None:
    """So many more partitions `here` and `there`, where another broker has room for `most` and such a disk."""
    files.make_dirs(Path("/data"))
    image = ClusterImage()
    image.brokers[THERE] = BrokerRegistration(THERE, "dir", "host", 9092, partitions_max=most)

    async def ask_disk(broker: int) -> tuple[int, int]:
        assert broker == THERE
        if isinstance(disk, PeerError):
            raise disk
        return disk

    async def check() -> None:
        jobs = Jobs(asyncio.get_running_loop(), None)
        data_dir = DataDir(files, Path("/data"), random.Random(1))
        headroom = Headroom(jobs, data_dir, PartitionTable(), HERE, image, ask_disk)
        await headroom.check({HERE: count, THERE: there})

    asyncio.run(check())


def test_as_many_as_descriptors_can_serve() -> None:
    files = MemFiles()
    files.limit_files(10)
    checked(files, 10 * PARTITIONS_PER_FILE_MAX)
    with pytest.raises(ApiError, match="ulimit -n") as refused:
        checked(files, 10 * PARTITIONS_PER_FILE_MAX + 1)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize("what", ["space", "inodes"])
def test_none_on_a_full_disk(what: str) -> None:
    files = MemFiles()
    if what == "space":
        files.fill_up(0)
    else:
        files.inodes_left = 0
    checked(files, 0)
    with pytest.raises(ApiError, match=f"no {what} left") as refused:
        checked(files, 1)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_as_many_as_another_broker_said_its_descriptors_can_serve() -> None:
    room = (MEGABYTE, MEGABYTE)
    checked(MemFiles(), 1, 10, most=10, disk=room)
    checked(MemFiles(), 1, 100, most=None, disk=room)
    with pytest.raises(ApiError, match=r"Broker 2 would have 11 partitions.*ulimit -n") as refused:
        checked(MemFiles(), 1, 11, most=10, disk=room)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION


def test_none_on_the_full_disk_of_another_broker() -> None:
    checked(MemFiles(), 1, 0, disk=(MEGABYTE, 0))
    with pytest.raises(ApiError, match="The disk of broker 2 has no space left for 2 more") as refused:
        checked(MemFiles(), 1, 2, disk=(MEGABYTE, 2 * PARTITION_BYTES_MIN - 1))
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_broker_that_does_not_answer_is_taken_to_have_room() -> None:
    checked(MemFiles(), 1, 2, disk=PeerError("gone"))
    checked(MemFiles(), 1, 2, disk=(-1, -1))
