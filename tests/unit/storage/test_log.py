"""Rolling, full and failing disks, deletion and truncation: what the model test does not look at one by one."""

import random
from dataclasses import replace
from unittest.mock import patch

import pytest
from tests.unit.storage.logs import (
    DIRECTORY,
    NOW_MS,
    Settings,
    a_batch,
    append,
    opened,
    read,
    read_everything,
    sync,
)

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, DiskFailedError, DiskFullError
from penstock.core.lease import Lease
from penstock.records.batch import read_header
from penstock.storage.layout import RECOVERY_POINT_FILE
from penstock.storage.log import Log
from penstock.storage.replicated import truncate
from penstock.storage.retention import RetentionLimits
from penstock.storage.segment import ColdRead, Segment
from penstock.testing.mem_files import MemFiles


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def refused(log: Log, batch: bytearray | None = None) -> bool:
    with pytest.raises(ApiError) as error:
        append(log, batch or a_batch())
    return error.value.code == ErrorCode.KAFKA_STORAGE_ERROR


# -- rolling -----------------------------------------------------------------------------------------------


def test_it_rolls_by_size_and_a_batch_larger_than_a_segment_gets_its_own() -> None:
    size = len(a_batch())
    log = opened(MemFiles(), Settings(segment_bytes=2 * size)).log
    for padding in (0, 0, 0, 500, 0):
        append(log, a_batch(padding=padding))
    assert bases(log) == [0, 2, 3, 4]


def test_it_rolls_by_the_age_of_its_batches_not_by_the_clock() -> None:
    log = opened(MemFiles(), Settings(segment_ms=100)).log
    for time in (1000, 1100, 900, 1101, 1150):
        append(log, a_batch([time]), now_ms=10**9)
    assert bases(log) == [0, 3]


def test_without_timestamps_the_clock_decides() -> None:
    log = opened(MemFiles(), Settings(segment_ms=100)).log
    for now in (1000, 1050, 1150, 1200, 1260):
        append(log, a_batch([-1]), now_ms=now)
    assert bases(log) == [0, 3]


def test_jitter_shortens_the_age_and_differs_between_partitions() -> None:
    settings = Settings(segment_ms=1000, segment_jitter_ms=900)
    ages = set()
    for number in range(8):
        log = opened(MemFiles(), settings, DIRECTORY.with_name(f"Partition-{number}")).log
        append(log, a_batch([0]))
        age = next(age for age in range(1002) if log._active_is_old(read_header(a_batch([age])), 0))
        assert 100 < age <= 1001
        ages.add(age)
    assert len(ages) > 4


def test_a_full_index_closes_the_segment() -> None:
    log = opened(MemFiles(), Settings(index_interval_bytes=0, segment_index_bytes=8 * 3)).log
    for _ in range(7):
        append(log, a_batch())
        sync(log)
    assert bases(log) == [0, 3, 6]


def test_new_settings_take_effect_at_once() -> None:
    log = opened(MemFiles()).log
    append(log, a_batch())
    log.settings = replace(Settings(), segment_bytes=1)
    append(log, a_batch())
    assert bases(log) == [0, 1]


def test_an_empty_segment_is_not_rolled() -> None:
    log = opened(MemFiles()).log
    assert log.roll(NOW_MS) is log.active
    assert bases(log) == [0]


# -- disks -------------------------------------------------------------------------------------------------


def test_a_full_disk_refuses_writes_serves_reads_and_heals() -> None:
    files = MemFiles()
    log = opened(files).log
    append(log, first := a_batch(padding=50))
    files.fill_up(30)
    assert refused(log)
    assert read(log, 0) == first
    assert not log.failed
    files.make_room()
    assert append(log, a_batch()) == 1
    assert [header.base_offset for header in read_everything(log)] == [0, 1]
    assert log.active.file.size() == log.size_bytes


def test_a_piece_that_a_full_disk_took_does_not_come_back_in_a_sealed_segment() -> None:
    for seed in range(10):
        files = MemFiles(seed)
        log = opened(files).log
        append(log, a_batch(padding=50))
        sync(log)
        files.fill_up(30)
        assert refused(log)
        assert refused(log)
        files.make_room()
        log.roll(NOW_MS)
        append(log, a_batch())
        sync(log, checkpoint=True)
        size_bytes = log.size_bytes
        log = opened(files.crash(random.Random(seed))).log
        assert log.size_bytes == size_bytes


def test_a_roll_that_finds_no_room_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemFiles()
    log = opened(files, Settings(segment_bytes=1)).log
    append(log, a_batch())

    def full(*_: object, **__: object) -> None:
        raise DiskFullError("no room for a name")

    with monkeypatch.context() as patch:
        patch.setattr(files, "open", full)
        assert refused(log)
    assert bases(log) == [0]
    assert append(log, a_batch()) == 1
    assert bases(log) == [0, 1]


def test_a_checkpoint_that_finds_no_room_is_made_later() -> None:
    files = MemFiles()
    log = opened(files).log
    append(log, a_batch(producer=(1, 0, 0)))
    before = files.read(DIRECTORY / RECOVERY_POINT_FILE)
    files.fill_up(0)
    job = sync(log, checkpoint=True)
    assert not job.checkpointed
    assert (log.failed, log.needs_checkpoint, log.synced_end.offset) == (False, True, 1)
    assert files.read(DIRECTORY / RECOVERY_POINT_FILE) == before
    files.make_room()
    assert sync(log, checkpoint=log.needs_checkpoint).checkpointed
    assert (log.needs_checkpoint, log.is_checkpointed) == (False, True)


@pytest.mark.parametrize("operation", ["write", "truncate"])
def test_after_an_io_error_nothing_is_written(operation: str) -> None:
    files = MemFiles()
    log = opened(files).log
    append(log, first := a_batch())
    if operation == "truncate":
        files.fill_up(10)
    files.fail_next(operation, "*.log")
    assert refused(log)
    files.make_room()
    assert log.failed
    assert refused(log)
    assert read(log, 0) == first


@pytest.mark.parametrize("victim", ["*.log", "*.index", "*recovery-point*"])
def test_a_failed_sync_says_so_whatever_it_was_that_failed(victim: str) -> None:
    files = MemFiles()
    log = opened(files).log
    append(log, a_batch())
    files.fail_next("sync", victim)
    with pytest.raises(DiskFailedError):
        log.sync_job(checkpoint=True).run()


def test_no_room_in_an_fsync_is_an_io_error(monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(MemFiles()).log
    append(log, a_batch())

    def full() -> None:
        raise DiskFullError("promised, but not there")

    monkeypatch.setattr(log.active.file, "sync", full)
    with pytest.raises(DiskFailedError):
        log.sync_job().run()


# -- reading and shortening --------------------------------------------------------------------------------


def test_cold_data_is_not_waited_for() -> None:
    files = MemFiles(cold_chance=1.0)
    log = opened(files, Settings(segment_bytes=200)).log
    for _ in range(4):
        append(log, a_batch(padding=50))
    sync(log, checkpoint=True)
    log = opened(files.kill(), Settings(segment_bytes=200)).log
    with pytest.raises(ColdRead):
        log.read(0, 100, log.end(), at_least_one=True)
    assert len(read_everything(log)) == 4


def test_an_expired_log_goes_on_empty_once_a_checkpoint_allows_it() -> None:
    files = MemFiles()
    log = opened(files).log
    append(log, a_batch([1000], producer=(1, 0, 0)))
    sync(log)
    limits = RetentionLimits(retention_ms=0)
    assert log.expire(limits, 1, NOW_MS) is None
    assert log.needs_checkpoint
    sync(log, checkpoint=True)
    deletion = log.expire(limits, 1, NOW_MS)
    assert deletion is not None
    deletion.hide()
    deletion.unlink()
    assert (log.start_offset, log.end_offset, log.size_bytes) == (1, 1, 0)
    assert not [name for name in files.list_dir(DIRECTORY) if name.startswith("0" * 20)]
    again = opened(files.kill()).log
    assert (again.start_offset, again.end_offset) == (1, 1)
    assert again.producers.copy() == log.producers.copy()


def test_whoever_removes_the_whole_log_waits_for_one_segment_and_not_for_all_that_retention_takes() -> None:
    files = MemFiles()
    log = opened(files, Settings(segment_bytes=1)).log
    for _ in range(4):
        append(log, a_batch([1000]))
    sync(log, checkpoint=True)
    deletion = log.expire(RetentionLimits(retention_ms=0), 3, NOW_MS)
    assert deletion is not None
    assert len(deletion.segments) == 3
    lease = Lease()

    def ends(_: Segment) -> None:
        lease.end()

    with patch.object(Segment, "rename_deleted", autospec=True, side_effect=ends) as rename:
        assert not deletion.hide(lease)
    assert rename.call_count == 1


def test_a_reader_inside_a_deleted_segment_can_finish() -> None:
    files = MemFiles()
    log = opened(files, Settings(segment_bytes=1)).log
    append(log, first := a_batch())
    append(log, a_batch())
    sync(log, checkpoint=True)
    found = log.read(0, 1000, log.end(), at_least_one=True)
    deletion = log.expire(RetentionLimits(retention_bytes=1), 2, NOW_MS)
    assert deletion is not None
    assert found is not None
    deletion.hide()
    deletion.unlink()
    assert found.file.pread(found.size, found.position) == first


def test_truncation_below_the_first_segment_leaves_an_empty_log_there() -> None:
    files = MemFiles()
    log = opened(files, Settings(segment_bytes=1)).log
    for _ in range(6):
        append(log, a_batch())
    sync(log, checkpoint=True)
    deletion = log.expire(RetentionLimits(retention_bytes=1), 6, NOW_MS)
    assert deletion is not None
    deletion.hide()
    log.hidden(deletion)
    truncate(log, 2)
    assert (log.start_offset, log.end_offset, log.size_bytes) == (2, 2, 0)
    assert append(log, a_batch(), epoch=1) == 2
    sync(log)
    again = opened(files.kill(), Settings(segment_bytes=1)).log
    assert (again.start_offset, again.end_offset, again.epochs.entries()) == (2, 3, [(1, 2)])


def test_truncation_at_or_behind_the_end_is_nothing() -> None:
    log = opened(MemFiles()).log
    append(log, a_batch())
    assert log.truncation(1) is None
    assert log.truncation(5) is None
