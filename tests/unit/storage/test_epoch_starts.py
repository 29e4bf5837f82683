"""Epochs that began within a gap: known from the first batch behind it on, whatever happens to the log."""

import random

import pytest
from tests.unit.storage.logs import DIRECTORY, NOW_MS, Settings, a_batch, append, opened, sync

from penstock.core.errors import ApiError, StorageError
from penstock.records.batch import stamp
from penstock.storage.epochs import EpochHistory
from penstock.storage.layout import EPOCHS_FILE, RECOVERY_POINT_FILE
from penstock.storage.log import Log
from penstock.storage.replicated import UnknownStartError, append_replicated, truncate
from penstock.testing.mem_files import MemFiles

COMPACTED = Settings(compacts=True)
STARTS = [(5, 12), (7, 15)]
NOTED = [(3, 0), *STARTS]


def batch_at(offset: int, epoch: int) -> bytearray:
    batch = a_batch()
    stamp(memoryview(batch), 0, offset, epoch)
    return batch


def save(files: MemFiles, history: list[tuple[int, int]]) -> None:
    epochs = EpochHistory()
    for epoch, start in history:
        epochs.assign(epoch, start)
    files.write_atomically(DIRECTORY / EPOCHS_FILE, epochs.dump())


def follower(files: MemFiles) -> Log:
    """Epoch 3 up to 2, and behind a gap a batch of epoch 7: of 5 there is none."""
    log = opened(files, COMPACTED).log
    for offset in range(2):
        append_replicated(log, memoryview(batch_at(offset, 3)), NOW_MS)
    sync(log, checkpoint=True)
    save(files, NOTED)
    append_replicated(log, memoryview(batch_at(20, 7)), NOW_MS, starts=STARTS)
    return log


def test_a_batch_behind_a_gap_is_not_taken_before_the_start_of_its_epoch_is_known() -> None:
    log = opened(MemFiles(), COMPACTED).log
    records = b"".join(batch_at(offset, epoch) for offset, epoch in ((0, 3), (8, 3), (20, 7), (30, 8)))
    with pytest.raises(UnknownStartError) as unknown:
        append_replicated(log, memoryview(records), NOW_MS)
    assert log.end_offset == 9  # where nothing began, nothing is asked
    assert (unknown.value.epoch, unknown.value.gap) == (7, range(9, 20))
    rest = memoryview(records)[unknown.value.position :]
    with pytest.raises(UnknownStartError) as unknown:
        append_replicated(log, rest, NOW_MS, starts=STARTS)
    assert log.epochs.entries() == NOTED
    append_replicated(log, rest[unknown.value.position :], NOW_MS, starts=[(8, 25)])
    assert log.epochs.entries() == [*NOTED, (8, 25)]


def test_nothing_is_noted_of_a_gap_that_was_not_crossed() -> None:
    """(epoch, end) says in an election who has the most: an epoch that begins behind the end is not to be named."""
    files = MemFiles()
    log = opened(files, Settings(compacts=True, segment_bytes=150)).log
    for offset in range(2):
        append_replicated(log, memoryview(batch_at(offset, 3)), NOW_MS)
    files.fail_next("open", "*.log")
    with pytest.raises(ApiError):
        append_replicated(log, memoryview(batch_at(20, 7)), NOW_MS, starts=STARTS)
    assert (log.end_offset, log.epochs.entries()) == (2, [(3, 0)])


@pytest.mark.parametrize("point", ["before the gap", "behind it", "none"])
def test_a_crash_does_not_take_the_starts(point: str) -> None:
    files = MemFiles()
    log = follower(files)
    sync(log, checkpoint=point == "behind it")
    files = files.crash(random.Random(1))
    if point == "none":
        files.unlink(DIRECTORY / RECOVERY_POINT_FILE)
    log = opened(files, COMPACTED).log
    assert (log.end_offset, log.epochs.entries()) == (21, NOTED)


def test_a_read_that_fails_once_does_not_take_them_either() -> None:
    files = MemFiles()
    sync(follower(files))
    files = files.crash(random.Random(1))
    files.unlink(DIRECTORY / RECOVERY_POINT_FILE)
    files.fail_next("read", f"*{EPOCHS_FILE}")
    with pytest.raises(StorageError):
        opened(files, COMPACTED)
    assert opened(files, COMPACTED).log.epochs.entries() == NOTED


def test_a_crash_before_the_batch_was_written_takes_the_starts_too() -> None:
    files = MemFiles()
    log = opened(files, COMPACTED).log
    append_replicated(log, memoryview(batch_at(0, 3)), NOW_MS)
    sync(log)
    save(files, NOTED)
    log = opened(files.crash(random.Random(1)), COMPACTED).log
    assert (log.end_offset, log.epochs.entries()) == (1, [(3, 0)])


def test_a_file_of_another_history_says_nothing() -> None:
    """The batch of epoch 7 came without a gap that hid its start, so nothing was written for it."""
    files = MemFiles()
    log = opened(files, COMPACTED).log
    append_replicated(log, memoryview(batch_at(0, 3)), NOW_MS)
    sync(log, checkpoint=True)
    save(files, [(3, 0), (5, 12), (6, 15)])
    append_replicated(log, memoryview(batch_at(20, 7)), NOW_MS, starts=[(7, 20)])
    sync(log)
    log = opened(files.crash(random.Random(1)), COMPACTED).log
    assert log.epochs.entries() == [(3, 0), (7, 20)]


@pytest.mark.parametrize("end", [8, 12, 14, 17])
def test_a_cut_within_the_gap_leaves_a_restart_with_what_is_known(end: int) -> None:
    """The last epoch that is left may have no batch."""
    files = MemFiles()
    log = follower(files)
    sync(log, checkpoint=True)
    truncate(log, end)
    known = [(epoch, start) for epoch, start in NOTED if start < end]
    assert (log.end_offset, log.epochs.entries()) == (end, known)
    log = opened(files.crash(random.Random(1)), COMPACTED).log
    assert (log.end_offset, log.epochs.entries()) == (end, known)


def test_an_epoch_that_a_leader_wrote_nothing_under_is_not_before_what_it_took_over_then() -> None:
    """Who led epoch 7 and wrote nothing follows one with more of epoch 5, whom an unclean election chose next."""
    files = MemFiles()
    log = opened(files).log
    append(log, a_batch(), epoch=3)
    log.epochs.assign(7, log.end_offset)
    sync(log, checkpoint=True)
    log.epochs.truncate_from(log.end_offset)
    append_replicated(log, memoryview(batch_at(1, 5)), NOW_MS)
    known = log.epochs.entries()
    sync(log)
    log = opened(files.crash(random.Random(1))).log
    assert log.epochs.entries() == known == [(3, 0), (5, 1)]
