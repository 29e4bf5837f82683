"""Cuts that are killed on their way, into gaps, below a log's start, and over damage."""

import random
from contextlib import suppress

import pytest
from tests.property.log_story import PowerCut, interrupt
from tests.unit.storage.compacting import keyed
from tests.unit.storage.logs import (
    DIRECTORY,
    NOW_MS,
    Settings,
    a_batch,
    append,
    opened,
    read_everything,
    sync,
)

from penstock.core.errors import StorageError
from penstock.records.batch import read_header, stamp
from penstock.storage.compaction.checkpoint import Cleaned, save_cleaned
from penstock.storage.log import Log
from penstock.storage.producers import ProducerState
from penstock.storage.recovery import begin_anew
from penstock.storage.replicated import append_replicated, truncate
from penstock.storage.retention import RetentionLimits
from penstock.storage.segment import DamagedSegmentError
from penstock.testing.mem_files import MemFiles

FAR = 1 << 33


def take_over(log: Log, *offsets: int, epoch: int = 1, value: bytes = b"v") -> None:
    for offset in offsets:
        batch = keyed([(b"k", value)])
        stamp(memoryview(batch), 0, offset, epoch)
        append_replicated(log, memoryview(batch), NOW_MS, starts=[(epoch, offset)])


def places(log: Log) -> list[tuple[int, int]]:
    return [(header.base_offset, header.leader_epoch) for header in read_everything(log)]


def six_batches(files: MemFiles, start: int) -> Log:
    log = opened(files).log
    if start:
        log = begin_anew(log, start, ProducerState())
    for number in range(6):
        append(log, a_batch(), epoch=1)
        if number % 2:
            log.roll(NOW_MS)
    sync(log, checkpoint=True)
    return log


@pytest.mark.parametrize("rolls", [False, True])
@pytest.mark.parametrize(("start", "cut"), [(0, 0), (0, 2), (0, 3), (4, 4), (4, 1)])
def test_what_is_written_after_a_cut_that_was_killed_survives_a_power_cut(
    start: int, cut: int, rolls: bool
) -> None:
    """Also where nothing was there to scan, and only the page cache knew the names, or where a file was cut."""
    for operations in range(60):
        for seed in range(4):
            files = MemFiles(seed)
            log = six_batches(files, start)
            interrupt(files, operations)
            with suppress(PowerCut):
                truncate(log, cut)
            files = files.kill()
            log = opened(files).log
            if rolls:  # the file that was cut is not written to any more
                log.roll(NOW_MS)
            for _ in range(3):
                append(log, a_batch(padding=50), epoch=2)
            sync(log, checkpoint=rolls)
            expected = places(log)
            assert places(opened(files.crash(random.Random(seed))).log) == expected


def test_deleted_records_stay_deleted_when_a_cut_below_the_start_is_killed() -> None:
    for operations in range(60):
        files = MemFiles(1)
        log = six_batches(files, 0)
        log.advance_start(5)
        log.start_job().run()
        interrupt(files, operations)
        with suppress(PowerCut):
            truncate(log, 3)
        log = opened(files.kill()).log
        assert places(log) in ([], [(5, 1)])
        assert log.end_offset in (3, 5, 6)


def test_a_file_that_was_cut_in_a_gap_does_not_grow_when_it_is_cut_there_again() -> None:
    """An answer that waits in its socket would be sent as other records."""
    files = MemFiles()
    log = opened(files, Settings(compacts=True)).log
    take_over(log, 0, 1, 20, 21, value=b"old")
    sync(log, checkpoint=True)
    waiting = log.read(20, 1 << 20, log.end(), at_least_one=True)
    assert waiting is not None
    truncate(log, 15)
    truncate(log, 10)
    take_over(log, 10, 11, epoch=2, value=b"new")
    assert not waiting.file.pread(waiting.size, waiting.position)
    expected = [(0, 1), (1, 1), (10, 2), (11, 2)]
    assert places(log) == expected
    assert places(opened(files.kill(), Settings(compacts=True)).log) == expected


def test_a_damaged_batch_is_not_the_end_of_what_a_cut_keeps() -> None:
    files = MemFiles()
    log = opened(files).log
    positions = []
    for _ in range(10):
        positions.append(log.active.size)
        append(log, a_batch())
    sync(log, checkpoint=True)
    log.active.file.pwrite(b"\x00\x00\x00\x05", positions[3] + 8)  # its length
    before = files.list_dir(DIRECTORY)
    with pytest.raises(DamagedSegmentError):
        truncate(log, 8)
    assert files.list_dir(DIRECTORY) == before
    assert opened(files.kill()).log.end_offset == 10


def test_producers_of_before_a_log_began_anew_are_not_known_again_by_a_cut() -> None:
    """They have written more meanwhile, and would be refused for ever."""
    files = MemFiles()
    log = opened(files).log
    for number in range(3):
        append(log, a_batch(producer=(7, 0, number)))
    sync(log, checkpoint=True)
    log = begin_anew(log, 10, ProducerState())
    take_over(log, 10, 11, 12, 13)
    sync(log)
    truncate(log, 12)
    assert log.find_repeat(read_header(a_batch(producer=(7, 0, 10)))) is None


@pytest.mark.parametrize("compacts", [True, False])
@pytest.mark.parametrize("synced", [True, False])
def test_a_segment_behind_a_gap_that_is_too_wide_for_one_survives_a_kill(
    synced: bool, compacts: bool
) -> None:
    files = MemFiles()
    settings = Settings(compacts=True)
    log = opened(files, settings).log
    save_cleaned(files, log.directory, Cleaned())
    take_over(log, 0)
    sync(log, checkpoint=True)
    take_over(log, FAR, FAR + 1)
    if synced:
        files.fill_up(0)  # no room for the checkpoint
        assert not sync(log, checkpoint=True).checkpointed
        files.make_room()
    files = files.kill()
    log = opened(files, Settings(compacts=compacts)).log
    assert places(log) == [(0, 1), (FAR, 1), (FAR + 1, 1)]
    take_over(log, FAR + 2)
    truncate(log, 1)
    sync(log, checkpoint=True)
    assert not [name for name in files.list_dir(DIRECTORY) if name.endswith(".gap")]


def test_a_segment_behind_a_wide_gap_is_left_out_where_records_before_it_are_lost() -> None:
    """They come back from the leader; behind the gap nobody would ask for them."""
    files = MemFiles()
    settings = Settings(compacts=True)
    log = opened(files, settings).log
    take_over(log, 0)
    sync(log, checkpoint=True)
    take_over(log, 1, FAR)
    log.segments[0].file.truncate(log.segments[0].size - 1)
    assert places(opened(files.kill(), settings).log) == [(0, 1)]


@pytest.mark.parametrize("read_fails", [False, True])
def test_a_cut_remembers_producers_whose_records_are_deleted(read_fails: bool) -> None:
    files = MemFiles()
    log = opened(files).log
    for number in range(8):
        append(log, a_batch(producer=(number, 0, 0)))
        log.roll(NOW_MS)
        sync(log, checkpoint=True)
    log.advance_start(4)
    deletion = log.expire(RetentionLimits(), 8, NOW_MS)
    assert deletion is not None
    assert deletion.hide()
    if read_fails:
        files.fail_next("read", "*.snapshot")
        log = _again(files, log)
    truncate(log, 5)
    for cut_log in (log, opened(files.kill()).log):
        assert sorted(each.producer_id for each in cut_log.producers.copy()) == [0, 1, 2, 3, 4]


def _again(files: MemFiles, log: Log) -> Log:
    """As where a cut fails: opened once more."""
    with pytest.raises(StorageError):
        truncate(log, 7)
    return opened(files, rewrite_tail=True).log


def test_nor_does_it_go_by_what_a_log_that_was_here_before_knew_of_them() -> None:
    files = MemFiles()
    log = opened(files).log
    append(log, a_batch(producer=(7, 0, 0)))
    sync(log, checkpoint=True)
    log = begin_anew(log, 9, ProducerState())
    truncate(log, 1)
    append(log, a_batch())
    truncate(log, 1)
    assert not log.producers.copy()


def test_nor_does_what_was_cut_come_back_where_the_sync_of_the_cut_failed() -> None:
    for seed in range(20):
        files = MemFiles(seed)
        log = opened(files).log
        take_over(log, *range(6), value=b"given up")
        sync(log, checkpoint=True)
        files.fail_next("sync", "*.log")
        with pytest.raises(StorageError):
            truncate(log, 3)
        log = opened(files, rewrite_tail=True).log
        log.roll(NOW_MS)
        take_over(log, 3, 4, epoch=2)
        sync(log, checkpoint=True)
        log = opened(files.crash(random.Random(seed))).log
        assert places(log) == [(0, 1), (1, 1), (2, 1), (3, 2), (4, 2)]


def test_what_is_written_after_a_second_cut_in_the_gap_where_one_was_killed_survives_a_kill() -> None:
    """The recovery point stands behind the gap: a segment that begins before it would not be found."""
    for operations in range(60):
        files, settings = MemFiles(), Settings(compacts=True)
        log = opened(files, settings).log
        take_over(log, 0, 1, 6, 7)
        sync(log, checkpoint=True)
        interrupt(files, operations)
        with suppress(PowerCut):
            truncate(log, 4)
        files = files.kill()
        log = opened(files, settings).log
        if log.end_offset == 4:
            take_over(log, 4, 5, epoch=2)
        truncate(log, 4)
        take_over(log, 4, 5, 6, epoch=3)
        sync(log)
        log = opened(files.kill(), settings).log
        assert places(log) == [(0, 1), (1, 1), (4, 3), (5, 3), (6, 3)]


def test_epochs_before_a_start_that_was_never_saved_are_known_when_a_cut_loses_it() -> None:
    files = MemFiles()
    log = six_batches(files, 0)
    log.advance_start(5)
    truncate(log, 4)
    log = opened(files.crash(random.Random(1))).log
    assert (log.start_offset, log.end_offset) == (0, 4)
    assert log.epochs.entries() == [(1, 0)]
