"""Work that ran short of descriptors, or met an error, half-way: what it left undone is done later, and in order."""

from pathlib import Path

import pytest
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

from penstock.core.errors import StorageError, TooManyFilesError
from penstock.storage.checkpoint import RecoveryPoint
from penstock.storage.layout import DELETED, LOG, RECOVERY_POINT_FILE
from penstock.storage.log import Log
from penstock.storage.replicated import truncate
from penstock.storage.retention import RetentionLimits
from penstock.testing.mem_files import MemFiles


def fill(log: Log, count: int, *, epoch: int = 1, padding: int = 100) -> None:
    for _ in range(count):
        append(log, a_batch(padding=padding), epoch=epoch)


def batches(log: Log) -> list[tuple[int, int]]:
    return [(header.base_offset, header.leader_epoch) for header in read_everything(log)]


def checkpoint_short_behind_its_point(log: Log, files: MemFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """The point has its name, and then there is no descriptor to make that last."""
    rename = files.rename

    def renamed(source: Path, target: Path) -> None:
        rename(source, target)
        files.short_in = target.name == RECOVERY_POINT_FILE

    with monkeypatch.context() as patch:
        patch.setattr(files, "rename", renamed)
        assert not sync(log, checkpoint=True).checkpointed
    files.short_in = 0


def on_disk(files: MemFiles) -> int:
    return RecoveryPoint.parse(files.read(DIRECTORY / RECOVERY_POINT_FILE)).offset


@pytest.mark.parametrize("end", [3, 4])
def test_a_cut_takes_back_the_point_of_a_checkpoint_that_was_not_finished(
    end: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In memory it was none: a start would have trusted it, and scanned from the middle of a batch."""
    files, settings = MemFiles(), Settings(segment_bytes=1000)
    log = opened(files, settings).log
    fill(log, 3)
    log.roll(NOW_MS)
    sync(log, checkpoint=True)
    fill(log, 3, padding=150)
    checkpoint_short_behind_its_point(log, files, monkeypatch)
    assert on_disk(files) == 6
    truncate(log, end)
    assert on_disk(files) == 3
    fill(log, 8, epoch=2, padding=80)
    before = batches(log)
    again = opened(files.kill(), settings, rewrite_tail=True)
    assert (again.lost, again.cut_bytes) == (None, 0)
    assert batches(again.log) == before


def test_so_does_one_where_no_point_was_there_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged one is replaced at a start, and on a full disk it goes."""
    files = MemFiles()
    log = opened(files).log
    fill(log, 3)
    sync(log, checkpoint=True)
    files.write_atomically(DIRECTORY / RECOVERY_POINT_FILE, b"no point")
    files.fill_up(0)
    log = opened(files).log
    files.make_room()
    assert not files.exists(DIRECTORY / RECOVERY_POINT_FILE)
    checkpoint_short_behind_its_point(log, files, monkeypatch)
    truncate(log, 1)
    assert not files.exists(DIRECTORY / RECOVERY_POINT_FILE)


def test_a_checkpoint_that_is_finished_later_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemFiles()
    log = opened(files).log
    fill(log, 3)
    checkpoint_short_behind_its_point(log, files, monkeypatch)
    assert sync(log, checkpoint=log.needs_checkpoint).checkpointed
    fill(log, 3)
    truncate(log, 4)
    assert on_disk(files) == 3


# -- retention -----------------------------------------------------------------------------------------------


def expire(log: Log, keep_bytes: int) -> None:
    deletion = log.expire(RetentionLimits(retention_bytes=keep_bytes), log.end_offset, NOW_MS)
    assert deletion is not None
    try:
        deletion.hide()
    finally:
        log.hidden(deletion)
        deletion.unlink()


def segments_on_disk(files: MemFiles) -> list[int]:
    return [int(name.partition(".")[0]) for name in files.list_dir(DIRECTORY) if name.endswith(LOG)]


@pytest.mark.parametrize("where", ["no descriptor for the sync", "the second sync", "the rename fails"])
def test_what_retention_could_not_hide_goes_before_what_comes_after_it(where: str) -> None:
    files, settings = MemFiles(), Settings(segment_bytes=150)
    log = opened(files, settings).log
    fill(log, 10, padding=0)
    sync(log, checkpoint=True)
    assert segments_on_disk(files) == [0, 2, 4, 6, 8]
    if "rename" in where:
        files.fail_next("rename")
    else:
        files.short_in = 2 if "second" in where else 1
    with pytest.raises(StorageError):
        expire(log, 300)
    files.short_in = 0
    assert not [name for name in files.list_dir(DIRECTORY) if name.endswith(DELETED)] or "sync" in where
    assert log.start_offset == 4
    expire(log, 150)
    assert segments_on_disk(files) == [6, 8]
    assert not [name for name in files.list_dir(DIRECTORY) if name.endswith(DELETED)]
    assert log.expire(RetentionLimits(), log.end_offset, NOW_MS) is None, "there is nothing left to hide"
    again = opened(files.kill(), settings).log
    assert [offset for offset, _ in batches(again)] == [6, 7, 8, 9]


def test_a_cut_to_before_what_retention_could_not_hide_waits_until_the_log_was_opened_again() -> None:
    """Once it has grown, the next start would find old records behind the new ones, and take them for theirs."""
    files, settings = MemFiles(), Settings(segment_bytes=150)
    log = opened(files, settings).log
    fill(log, 10, padding=0)
    sync(log, checkpoint=True)
    files.short_in = 4  # once it is written down where the log starts then
    with pytest.raises(TooManyFilesError):
        expire(log, 300)
    with pytest.raises(StorageError, match="retention"):
        truncate(log, 1)
    truncate(log, 7)
    log.close()
    again = opened(files, settings, rewrite_tail=True).log
    truncate(again, 1)
    fill(again, 2, epoch=2, padding=0)
    assert batches(opened(files.kill(), settings).log) == [
        (offset, 2) for offset in range(again.start_offset, 3)
    ]
