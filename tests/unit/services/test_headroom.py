"""More partitions than the machine can hold are refused, with a sentence that says what is short."""

import asyncio
import random
from pathlib import Path

import pytest

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.jobs import Jobs
from penstock.core.limits import PARTITIONS_PER_FILE_MAX
from penstock.replication.table import PartitionTable
from penstock.services.headroom import Headroom
from penstock.storage.data_dir import DataDir
from penstock.testing.mem_files import MemFiles


def checked(files: MemFiles, count: int) -> None:
    files.make_dirs(Path("/data"))

    async def check() -> None:
        jobs = Jobs(asyncio.get_running_loop(), None)
        await Headroom(jobs, DataDir(files, Path("/data"), random.Random(1)), PartitionTable()).check(count)

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
