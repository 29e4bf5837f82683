"""A full disk is told of once, and once more when it has room again."""

import asyncio
import logging
import random
from pathlib import Path

import pytest

from penstock.core.jobs import Jobs
from penstock.services.maintenance.disk_watch import DiskWatch
from penstock.storage.data_dir import DataDir
from penstock.testing.mem_files import MemFiles


def test_it_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    files = MemFiles()
    files.make_dirs(Path("/data"))

    async def story() -> list[bool]:
        watch = DiskWatch(
            Jobs(asyncio.get_running_loop(), None), DataDir(files, Path("/data"), random.Random(1))
        )
        seen = []
        for change in (lambda: None, lambda: files.fill_up(0), lambda: None, files.make_room, lambda: None):
            change()
            await watch.look()
            seen.append(watch.is_full)
        files.inodes_left = 0
        await watch.look()
        return [*seen, watch.is_full]

    with caplog.at_level(logging.WARNING):
        assert asyncio.run(story()) == [False, True, True, False, False, True]
    assert [record.levelno for record in caplog.records] == [logging.ERROR, logging.WARNING, logging.ERROR]
