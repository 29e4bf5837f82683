"""A log whose files are closed and opened again between uses: nobody sees a difference, nor another file's bytes."""

import random
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.unit.storage.compacting import clean_job, compact, contents, run_round, write
from tests.unit.storage.logs import Settings, a_batch, append, opened, read, read_everything, sync

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, DiskFailedError, StorageError, TooManyFilesError
from penstock.core.os_files import OsFiles
from penstock.storage.compaction.swap import prepare_swap
from penstock.storage.log import Log
from penstock.storage.replicated import truncate
from penstock.storage.segment import ColdRead, Segment
from penstock.testing.mem_files import MemFiles

ONE_EACH = Settings(segment_bytes=1)


def few(count: int = 4) -> MemFiles:
    files = MemFiles()
    files.limit_files(count)
    return files


def grown(files: MemFiles, count: int = 9) -> Log:
    log = opened(files, ONE_EACH).log
    for _ in range(count):
        append(log, a_batch())
        sync(log, checkpoint=True)
    return log


def close_all(files: MemFiles) -> None:
    while files.descriptors.close_some():
        pass


def test_a_long_log_takes_few_files() -> None:
    files = few()
    log = grown(files)
    assert len(files.descriptors.live) <= 3
    assert len(read_everything(log)) == 9
    log.close()
    again = opened(files.kill(), ONE_EACH).log
    assert len(again.files.descriptors.live) <= 1
    assert len(read_everything(again)) == 9


def test_many_logs_take_few_files() -> None:
    files = few()
    logs = [opened(files, None, Path(f"/data/topics/t/Partition-{number}")).log for number in range(20)]
    for _ in range(2):
        for log in logs:
            append(log, a_batch())
            sync(log)
    assert all(len(read_everything(log)) == 2 for log in logs)
    assert len(files.descriptors.live) <= 3


def test_the_loop_does_not_open_a_file_to_read_from() -> None:
    files = MemFiles()
    log = grown(files, 2)
    close_all(files)
    with pytest.raises(ColdRead) as cold:
        log.read(0, 1000, log.end(), at_least_one=True)
    cold.value.warm()
    assert log.read(0, 1000, log.end(), at_least_one=True)


def test_opening_on_demand_takes_one_more_system_call(tmp_path: Path) -> None:
    files = OsFiles()
    log = opened(files, ONE_EACH, tmp_path / "Partition-0").log
    for _ in range(3):
        append(log, a_batch())
        sync(log, checkpoint=True)

    def read_cold() -> list[str]:
        calls: list[str] = []

        def called(_: FrameType, event: str, function: Any) -> None:
            if event == "c_call" and function.__module__ == "posix" and function.__name__ != "fspath":
                calls.append(function.__name__)

        sys.setprofile(called)
        try:
            found = read(log, 1)
        finally:
            sys.setprofile(None)
        assert found
        return sorted(calls)

    read_cold()  # its index is in memory from now on
    with_file = read_cold()
    while files.descriptors.close_some():
        pass
    without = read_cold()
    without.remove("open")
    assert without == with_file
    assert with_file


def test_what_is_not_synced_stays_open() -> None:
    files = few()
    logs = [opened(files, None, Path(f"/data/topics/t/Partition-{number}")).log for number in range(6)]
    for log in logs[:4]:
        append(log, a_batch())
    assert files.descriptors.pressed
    with pytest.raises(ApiError) as refused:
        append(logs[4], a_batch())
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not logs[4].failed
    sync(logs[0])
    append(logs[4], a_batch())
    assert len(read_everything(logs[4])) == 1


def test_an_answer_is_what_it_was_though_its_segment_went() -> None:
    files = few()
    log = grown(files)
    read(log, 0)
    found = log.read(0, 1000, log.end(), at_least_one=True)
    assert found is not None
    before = found.file.pread(found.size, found.position)
    truncate(log, 0)
    append(log, a_batch(padding=100))
    close_all(files)
    assert found.file.pread(found.size, found.position) == before


def test_a_segment_whose_name_another_has_is_never_opened_again() -> None:
    files = few()
    log = grown(files)
    old = log.segments[0]
    truncate(log, 0)
    append(log, a_batch())
    old.handle = None
    with pytest.raises(StorageError, match="gone"):
        old.file.size()


def test_a_hidden_segment_is_found_under_its_other_name_until_it_is_unlinked() -> None:
    files = few()
    log = grown(files)
    segment = log.segments[0]
    segment.rename_deleted()
    close_all(files)
    assert segment.file.size() == segment.size
    close_all(files)
    segment.unlink_deleted()
    with pytest.raises(StorageError, match="gone"):
        segment.file.size()


def test_a_segment_is_found_at_any_moment_of_its_hiding(monkeypatch: pytest.MonkeyPatch) -> None:
    files = few()
    log = grown(files)
    segment = log.segments[0]
    rename, seen = files.rename, []

    def watched(source: Path, target: Path) -> None:
        for _ in range(2):
            close_all(files)
            seen.append(segment.file.size())
            if len(seen) % 2:
                rename(source, target)

    monkeypatch.setattr(files, "rename", watched)
    segment.rename_deleted()
    assert set(seen) == {segment.size}


def test_a_log_that_was_closed_opens_nothing_by_its_old_names() -> None:
    files = few()
    log = grown(files)
    log.close()
    assert not files.descriptors.live
    with pytest.raises(StorageError, match="gone"):
        log.segments[0].file.size()


def test_readers_of_what_compaction_replaces_read_on_with_closed_files() -> None:
    files = few()
    log = opened(files, Settings(compacts=True)).log
    for number in range(6):
        write(log, [[(b"k", b"%d" % number)]])
    compact(log)
    close_all(files)
    assert contents(log) == [(5, b"k", b"5")]
    assert len(files.descriptors.live) <= 3


def test_a_hidden_segment_is_itself_though_the_one_in_its_place_is_hidden_too() -> None:
    """A search by time may go on in it through any number of rounds of compaction."""
    files = few()
    log = opened(files, Settings(compacts=True)).log
    hidden = []
    for number in range(3):
        write(log, [[(b"k", b"%d" % number)], [(b"k", b"again"), (b"%d" % number, b"stays")]])
        segment = log.segments[0]
        hidden.append((segment, segment.file.pread(1 << 20, 0)))
        for cleaned in run_round(clean_job(log)).segments:
            swap = prepare_swap(log, cleaned, log.active.base_offset)
            assert swap is not None
            swap.run()
            swap.finish()
    close_all(files)
    assert not {segment for segment, _ in hidden} & {*log.segments}
    for segment, data in hidden:
        assert segment.file.pread(1 << 20, 0) == data


# -- no descriptor is left -----------------------------------------------------------------------------------


def test_a_roll_without_a_descriptor_fails_one_append_and_nothing_else() -> None:
    files = MemFiles()
    log = grown(files, 3)
    held = [files.open(Path("/data/other"), create=True) for _ in range(5)]
    files.limit_files(100, open_max=len(held))
    with pytest.raises(ApiError) as refused:
        append(log, a_batch())
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert not log.failed
    held.clear()
    assert append(log, a_batch()) == 3
    assert len(read_everything(log)) == 4


def test_a_sync_without_a_descriptor_is_done_again(monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemFiles()
    log = opened(files, ONE_EACH).log
    append(log, a_batch())
    append(log, a_batch())
    job = log.sync_job(checkpoint=True)
    with monkeypatch.context() as patched:

        def none_left(path: Path) -> None:
            raise TooManyFilesError(str(path))

        patched.setattr(files, "sync_dir", none_left)
        with pytest.raises(TooManyFilesError):
            job.run()
    log.sync_undone(job)
    assert log.synced_end.offset == 0
    assert log.unsynced_bytes
    assert log.needs_checkpoint
    assert sync(log, checkpoint=True).checkpointed
    assert log.synced_end.offset == 2
    assert len(read_everything(opened(files.crash(random.Random(1)), ONE_EACH).log)) == 2


def test_a_sync_is_put_back_while_others_take_every_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it was to cover is not pinned while it runs: another thread may close its files, until they are again."""
    files = MemFiles()
    log = opened(files, ONE_EACH).log
    append(log, a_batch())
    job = log.sync_job()
    append(log, a_batch())  # in another segment, which waits for the next sync
    honest = files.descriptors.pin

    def pin(segment: Segment) -> None:
        files.descriptors.close_some()
        honest(segment)

    with monkeypatch.context() as patched:
        patched.setattr(files.descriptors, "pin", pin)
        patched.setattr(files, "open_max", 0)
        log.sync_undone(job)
    assert log.unsynced.last is log.active
    sync(log)
    assert len(read_everything(opened(files.crash(random.Random(1)), ONE_EACH).log)) == 2


def test_an_error_of_a_write_is_heard_of_though_files_are_short() -> None:
    """Closed with bytes that no sync covered, a file would be opened by somebody the kernel has nothing to tell."""
    files = few()
    logs = [opened(files, None, Path(f"/data/topics/t/Partition-{number}")).log for number in range(9)]
    append(logs[0], a_batch())
    written_to = logs[0].active.handle
    for log in logs[1:]:
        append(log, a_batch())
        sync(log)
    assert logs[0].active.handle is written_to
    files.fail_next("sync", "*Partition-0*")
    with pytest.raises(DiskFailedError):
        sync(logs[0])


def test_logs_that_failed_leave_files_to_those_who_open_them_again() -> None:
    files = few()
    directories = [Path(f"/data/topics/t/Partition-{number}") for number in range(4)]
    logs = [opened(files, None, directory).log for directory in directories]
    for log in logs:
        append(log, a_batch())
    for log in logs:
        log.sync_failed()
    for log, directory in zip(logs, directories, strict=True):
        again = opened(files, None, directory, rewrite_tail=True).log
        log.close()
        assert len(read_everything(again)) == 1
