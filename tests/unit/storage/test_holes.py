"""Files go from the front or the middle of a log: it says so, and what others have is copied from them."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.property.log_story import PowerCut, fail_once, interrupt
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

from penstock.core.errors import DiskFullError, StorageError
from penstock.storage.checkpoint import RecoveryPoint
from penstock.storage.deletion import StartJob
from penstock.storage.holes import damaged_segments
from penstock.storage.layout import DAMAGED, LOG, RECOVERY_POINT_FILE, START, segment_name
from penstock.storage.log import Log
from penstock.storage.lost import Lost, forget_lost
from penstock.storage.recovered import Recovered
from penstock.storage.recovery import open_log
from penstock.storage.retention import RetentionLimits
from penstock.storage.segment import Segment
from penstock.testing.mem_files import MemFiles

END = 10
BATCH_BYTES = len(a_batch())
SMALL = Settings(segment_bytes=3 * BATCH_BYTES)


def filled(files: MemFiles) -> Log:
    """Segments from 0, 3, 6 and 9 on."""
    log = opened(files, SMALL).log
    for number in range(END):
        append(log, a_batch(producer=(7, 0, number)))
    sync(log, checkpoint=True)
    return log


def take(files: MemFiles, *bases: int) -> None:
    for base in bases:
        files.unlink(DIRECTORY / segment_name(base, LOG))
    files.sync_dir(DIRECTORY)


def tear(files: MemFiles, base: int) -> None:
    """All but one batch and a half."""
    file = files.open(DIRECTORY / segment_name(base, LOG))
    file.truncate(BATCH_BYTES * 3 // 2)
    file.sync()
    file.close()


Taken = Callable[[MemFiles], None]
# What is done to it; what is lost and left of an only copy; and what is left where other replicas have it.
DAMAGES: dict[str, tuple[Taken, Lost, list[int], list[int]]] = {
    "front": (lambda files: take(files, 0, 3), (0, 6), [6, 7, 8, 9], []),
    "front torn": (lambda files: tear(files, 0), (1, 3), [0, *range(3, END)], [0]),
    "middle": (lambda files: take(files, 3), (3, 6), [0, 1, 2, *range(6, END)], [0, 1, 2]),
    "middle torn": (lambda files: tear(files, 6), (7, 9), [*range(7), 9], list(range(7))),
    "two": (lambda files: take(files, 0, 6), (0, 9), [3, 4, 5, 9], []),
}


def damaged(damage: str) -> MemFiles:
    files = MemFiles(1)
    filled(files).close()
    DAMAGES[damage][0](files)
    return files.kill()


def start(files: MemFiles, *, only_copy: bool) -> Recovered:
    return open_log(files, DIRECTORY, SMALL, only_copy=only_copy, rewrite_tail=True)


def check(found: Recovered, damage: str, *, only_copy: bool) -> None:
    _, lost, left_alone, left = DAMAGES[damage]
    offsets = [batch.base_offset for batch in read_everything(found.log)]
    assert found.log.start_offset == 0
    if only_copy:
        assert (found.lost, found.log.end_offset, offsets) == (lost, END, left_alone)
    else:
        end = left[-1] + 1 if left else 0
        assert (found.lost, found.log.end_offset, offsets) == ((end, END), end, left)


@pytest.mark.parametrize("only_copy", [True, False])
@pytest.mark.parametrize("how", ["kill", "cut", "error"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_hole_is_told_at_whichever_operation_a_start_is_stopped(
    damage: str, how: str, only_copy: bool
) -> None:
    for operations in range(1000):
        files = damaged(damage)
        (fail_once if how == "error" else interrupt)(files, operations)
        try:
            check(start(files, only_copy=only_copy), damage, only_copy=only_copy)
            break
        except (PowerCut, StorageError):
            files.__dict__.pop("enter", None)
            files = files.crash(random.Random(operations)) if how == "cut" else files.kill()
            check(start(files, only_copy=only_copy), damage, only_copy=only_copy)
    assert operations > 10


@pytest.mark.parametrize("only_copy", [True, False])
@pytest.mark.parametrize("damage", DAMAGES)
def test_what_was_told_is_not_told_again(damage: str, only_copy: bool) -> None:
    found = start(damaged(damage), only_copy=only_copy)
    forget_lost(found.log.files, DIRECTORY)
    left = read_everything(found.log)
    files = found.log.files.crash(random.Random(1))  # type: ignore[attr-defined]
    again = start(files, only_copy=only_copy)
    assert again.lost is None
    assert again.log.start_offset == 0
    assert read_everything(again.log) == left


def test_what_lies_behind_a_hole_is_set_aside_and_not_deleted() -> None:
    files = damaged("middle")
    found = start(files, only_copy=False)
    assert found.set_aside == [segment_name(base, LOG) + DAMAGED for base in (6, 9)]
    assert all(files.exists(DIRECTORY / name) for name in found.set_aside)


def test_a_point_of_an_earlier_version_says_nothing_of_holes() -> None:
    files = MemFiles(1)
    filled(files).close()
    path = DIRECTORY / RECOVERY_POINT_FILE
    files.write_atomically(path, RecoveryPoint.parse(files.read(path))._replace(sealed=None).dump())
    take(files, 0)
    found = start(files.kill(), only_copy=False)
    assert (found.lost, found.log.start_offset, found.log.end_offset) == (None, 3, END)


def test_a_segment_ends_where_the_next_begins_also_if_that_is_empty_behind_a_gap() -> None:
    """Retention took the first one, for the log starts in the gap behind the second's base."""
    files = MemFiles(1)
    point = RecoveryPoint(0, 15, 10, 0, 0, -1, 0, 0, sealed=((0, 100),))
    left = [Segment(files, DIRECTORY, 10, 0)]
    assert damaged_segments(point, 12, [], left) == []
    assert damaged_segments(point, 9, [], left) == [0]


@pytest.mark.parametrize("how", ["kill", "cut"])
def test_what_retention_took_is_not_missed_wherever_it_was_stopped(how: str) -> None:
    stopped = True
    operations = 0
    while stopped:
        files = MemFiles(1)
        log = filled(files)
        deletion = log.expire(RetentionLimits(retention_bytes=BATCH_BYTES), END, NOW_MS)
        assert deletion is not None
        interrupt(files, operations)
        try:
            deletion.hide()
            deletion.unlink()
            stopped = False
        except PowerCut:
            pass
        files.__dict__.pop("enter", None)
        files = files.crash(random.Random(operations)) if how == "cut" else files.kill()
        found = start(files, only_copy=False)
        assert (found.lost, found.log.end_offset) == (None, END)
        assert found.log.start_offset in (0, 9)
        operations += 1
    assert found.log.start_offset == 9


def no_room_for_a_start(files: MemFiles) -> None:
    enter = files.enter

    def refuse(operation: str, path: Path) -> None:
        if operation == "open" and path.name.endswith(START):
            raise DiskFullError(f"{path}: no room for another name")
        enter(operation, path)

    files.enter = refuse  # type: ignore[method-assign]


@pytest.mark.parametrize("how", ["kill", "cut"])
def test_nor_is_it_on_a_full_disk_where_no_name_can_be_made(how: str) -> None:
    files = MemFiles(1)
    log = filled(files)
    deletion = log.expire(RetentionLimits(retention_bytes=BATCH_BYTES), END, NOW_MS)
    assert deletion is not None
    no_room_for_a_start(files)
    deletion.hide()
    log.hidden(deletion)
    deletion.unlink()
    files = files.crash(random.Random(1)) if how == "cut" else files.kill()
    found = start(files, only_copy=False)
    assert (found.lost, found.log.start_offset, found.log.end_offset) == (None, 9, END)


def test_nor_is_what_another_deletes_at_the_same_time() -> None:
    """Both rename the one name that there is."""
    files = MemFiles(1)
    filled(files)
    no_room_for_a_start(files)
    enter = files.enter

    def meanwhile(operation: str, path: Path) -> None:
        enter(operation, path)
        if operation == "rename":
            files.enter = enter  # type: ignore[method-assign]
            StartJob(files, DIRECTORY, 6).run()

    files.enter = meanwhile  # type: ignore[method-assign]
    StartJob(files, DIRECTORY, 3).run()
    files = files.crash(random.Random(1))
    assert [name for name in files.list_dir(DIRECTORY) if name.endswith(START)] == [segment_name(6, START)]


@pytest.mark.parametrize("has_laggards", [True, False])
def test_nor_does_a_log_whose_start_lies_behind_what_is_left_start_later_than_it_did(
    has_laggards: bool,
) -> None:
    """DeleteRecords moved its start to 2, and then its end went, from 1 on: whole replicas still have 2 to 9."""
    files = MemFiles(1)
    log = filled(files)
    StartJob(files, DIRECTORY, 2).run()
    log.advance_start(2)
    log.close()
    take(files, 3, 6, 9)
    file = files.open(DIRECTORY / segment_name(0, LOG))
    file.truncate(BATCH_BYTES)
    file.close()
    found = open_log(files.kill(), DIRECTORY, SMALL, only_copy=True, has_laggards=has_laggards)
    assert (found.lost, found.log.end_offset) == ((2, END), END)
    assert found.log.start_offset == (2 if has_laggards else END)


@pytest.mark.parametrize("how", ["kill", "cut"])
def test_nor_does_its_retention_go_over_the_hole_wherever_a_start_was_stopped(how: str) -> None:
    """Of what is left nothing lies behind its start: an emptied log takes its place before the old files go."""
    stopped, operations = True, 0
    while stopped:
        files = MemFiles(1)
        log = filled(files)
        StartJob(files, DIRECTORY, 2).run()
        log.close()
        take(files, 3, 6, 9)
        file = files.open(DIRECTORY / segment_name(0, LOG))
        file.truncate(BATCH_BYTES)
        file.sync()
        files = files.kill()
        interrupt(files, operations)
        try:
            open_log(files, DIRECTORY, SMALL, only_copy=True, has_laggards=True)
            stopped = False
        except PowerCut:
            pass
        files.__dict__.pop("enter", None)
        files = files.crash(random.Random(operations)) if how == "cut" else files.kill()
        log = open_log(files, DIRECTORY, SMALL, only_copy=True, has_laggards=True).log
        assert (log.start_offset, log.end_offset) == (2, END)
        append(log, a_batch([NOW_MS * 2]))
        sync(log, checkpoint=True)
        for segment in log.row.unknown_times():
            segment.load_times()
        log.expire(RetentionLimits(retention_ms=10), log.end_offset, NOW_MS * 2)
        assert log.start_offset == 2, operations
        operations += 1
    assert operations > 10


def without_point(files: MemFiles) -> None:
    StartJob(files, DIRECTORY, 2).run()
    tear(files, 0)
    files.unlink(DIRECTORY / RECOVERY_POINT_FILE)


def without_end(files: MemFiles) -> None:
    StartJob(files, DIRECTORY, 5).run()
    tear(files, 0)
    take(files, 3, 9)


@pytest.mark.parametrize(
    ("done", "left"), [(without_point, (2, END, range(3, END))), (without_end, (5, END, range(6, 9)))]
)
def test_a_torn_file_below_the_start_has_nothing_behind_it_set_aside(
    done: Taken, left: tuple[int, int, range]
) -> None:
    """Where all of the log is scanned: wherever that is stopped."""
    stopped, operations = True, 0
    while stopped:
        files = MemFiles(1)
        filled(files).close()
        done(files)
        files.sync_dir(DIRECTORY)
        files = files.kill()
        interrupt(files, operations)
        try:
            found = start(files, only_copy=True)
            stopped = False
            files.__dict__.pop("enter", None)
        except PowerCut:
            found = start(files := files.kill(), only_copy=True)
        assert found.set_aside == [], operations
        assert (found.log.start_offset, append(found.log, a_batch())) == left[:2]
        assert [batch.base_offset for batch in read_everything(found.log)] == [*left[2], END]
        assert not files.exists(DIRECTORY / segment_name(0, LOG))
        operations += 1
    assert operations > 10


def test_what_was_set_aside_before_is_not_written_over() -> None:
    files = damaged("middle")
    aside = start(files, only_copy=False).set_aside
    again = filled(MemFiles(2))
    for base in (6, 9):  # copied anew since
        name = segment_name(base, LOG)
        files.write_atomically(DIRECTORY / name, again.files.read(DIRECTORY / name))
    kept = [files.read(DIRECTORY / name) for name in aside]
    for base in (6, 9):
        aside.append(Segment(files, DIRECTORY, base, 0).set_aside())
    assert len(set(aside)) == 4
    assert all(name.endswith(DAMAGED) and files.exists(DIRECTORY / name) for name in aside)
    assert [files.read(DIRECTORY / name) for name in aside[:2]] == kept
