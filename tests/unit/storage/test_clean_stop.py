"""The power goes in the midst of a clean stop: the recovery point that is in force still has what it goes by."""

import random
from collections.abc import Callable
from itertools import count
from pathlib import Path

from tests.property.log_story import PowerCut, interrupt
from tests.unit.storage.logs import DIRECTORY, NOW_MS, Settings, a_batch, append, opened, sync
from tests.unit.storage.test_only_copy import no_room, robbed, start

from penstock.core.errors import DiskFullError
from penstock.records.batch import read_header
from penstock.storage.checkpoint import checkpoint_all
from penstock.storage.layout import RECOVERY_POINT_FILE
from penstock.storage.log import Log
from penstock.storage.recovery import open_log
from penstock.storage.retention import RetentionLimits
from penstock.testing.mem_files import MemFiles

CRASHES = 60  # of which each leaves other names
LAST_OPERATIONS = 12  # those before have other tests
SETTINGS = Settings(segment_bytes=1)
TAKEN = a_batch(producer=(7, 0, 0))


def stopped_short(made: Callable[[], tuple[MemFiles, Log]], check: Callable[[MemFiles], None]) -> None:
    """Cut off before each of the last operations of a clean stop."""
    operations = next(number for number in count() if _stop(made, number) is None)
    assert operations > LAST_OPERATIONS
    for operation in range(operations - LAST_OPERATIONS, operations):
        for seed in range(CRASHES):
            left = _stop(made, operation)
            assert left is not None
            check(left.crash(random.Random(seed)))


def _stop(made: Callable[[], tuple[MemFiles, Log]], operation: int) -> MemFiles | None:
    """None if it came to its end."""
    files, log = made()
    job = log.sync_job(checkpoint=True)
    job.sync_data()
    interrupt(files, operation)
    try:
        checkpoint_all(files, Path("/data"), [job])
    except PowerCut:
        return files
    return None


def with_an_unfinished_checkpoint() -> tuple[MemFiles, Log]:
    """Producer 7 is known by its snapshot alone; one more snapshot lies there, whose point found no room."""
    files = MemFiles(1)
    log = opened(files, SETTINGS).log
    append(log, TAKEN)
    append(log, a_batch(producer=(8, 0, 0)))
    append(log, a_batch(producer=(8, 0, 1)))
    sync(log, checkpoint=True)
    deletion = log.expire(RetentionLimits(retention_bytes=100), log.end_offset, NOW_MS)
    deletion.hide()
    log.hidden(deletion)
    deletion.unlink()
    sync(log, checkpoint=True)
    append(log, a_batch(producer=(8, 0, 2)))
    write = files.write_atomically

    def full(path: Path, data: bytes) -> None:
        if path.name == RECOVERY_POINT_FILE:
            raise DiskFullError("no room")
        write(path, data)

    files.write_atomically = full
    assert not sync(log, checkpoint=True).checkpointed
    files.write_atomically = write
    append(log, a_batch(producer=(8, 0, 3)))
    return files, log


def test_producers_of_what_retention_took_are_not_forgotten() -> None:
    def check(files: MemFiles) -> None:
        log = open_log(files, DIRECTORY, SETTINGS, only_copy=True, has_laggards=True).log
        assert log.find_repeat(read_header(TAKEN)) is not None
        assert not log.is_incomplete

    stopped_short(with_an_unfinished_checkpoint, check)


def test_an_only_copy_whose_point_found_no_room_is_missed_by_nobody() -> None:
    def made() -> tuple[MemFiles, Log]:
        files, _ = robbed()
        write, files.write_atomically = files.write_atomically, no_room
        log = start(files)
        files.write_atomically = write
        append(log, a_batch(producer=(7, 0, 0)))
        return files, log

    def check(files: MemFiles) -> None:
        assert not start(files).is_incomplete

    stopped_short(made, check)
