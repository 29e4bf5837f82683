"""What a log finds when it is opened, after crashes and after damage."""

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.property.log_story import PowerCut, interrupt
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

from penstock.records.batch import stamp
from penstock.storage.deletion import StartJob
from penstock.storage.layout import EPOCHS_FILE, RECOVERY_POINT_FILE, segment_name
from penstock.storage.log import Log
from penstock.storage.lost import forget_lost
from penstock.storage.recovery import open_log
from penstock.testing.mem_files import MemFiles

SETTINGS = Settings(segment_bytes=500, index_interval_bytes=100)


def filled(files: MemFiles, batches: int = 12, *, checkpoint_after: int = 6) -> Log:
    """Batches of two records from one producer, four or so to a segment; the epoch changes at the eighth."""
    log = opened(files, SETTINGS).log
    for number in range(batches):
        batch = a_batch([NOW_MS + number, NOW_MS + number], producer=(5, 0, number * 2), padding=20)
        append(log, batch, epoch=number // 8)
        if number + 1 == checkpoint_after:
            sync(log, checkpoint=True)
    sync(log)
    return log


def facts(log: Log) -> tuple[object, ...]:
    return (
        log.start_offset,
        log.end_offset,
        log.size_bytes,
        [header.base_offset for header in read_everything(log)],
        log.epochs.entries(),
        log.producers.copy(),
        [tuple(log.lookup(log.end()).first_at_or_after(NOW_MS + at) or ()) for at in range(14)],
    )


def delete(name: str) -> Callable[[MemFiles], None]:
    return lambda files: files.unlink(DIRECTORY / name)


def write(name: str, data: bytes) -> Callable[[MemFiles], None]:
    return lambda files: files.write_atomically(DIRECTORY / name, data)


def flip(name: str, at: int) -> Callable[[MemFiles], None]:
    def damage(files: MemFiles) -> None:
        file = files.open(DIRECTORY / name)
        position = at % file.size()
        file.pwrite(bytes([file.pread(1, position)[0] ^ 1]), position)
        file.sync()

    return damage


FIRST = segment_name(0, "")
SNAPSHOT = segment_name(12, ".snapshot")


@pytest.mark.parametrize(
    "damage",
    [
        delete(RECOVERY_POINT_FILE),
        write(RECOVERY_POINT_FILE, b""),
        flip(RECOVERY_POINT_FILE, 30),
        delete(SNAPSHOT),
        flip(SNAPSHOT, 20),
        delete(EPOCHS_FILE),
        flip(EPOCHS_FILE, 3),
        delete(FIRST + ".index"),
        flip(FIRST + ".index", 6),
        delete(FIRST + ".timeindex"),
        flip(FIRST + ".timeindex", 2),
        write("notes.txt", b"garbage"),
        write("123.log", b"garbage"),
        write(segment_name(4, ".index"), b"of no segment"),
        write(segment_name(0, ".log.deleted"), b"unlinked too late"),
        write("recovery-point.tmp", b"never finished"),
        write(segment_name(99, ".snapshot"), b"of a tail that is gone"),
    ],
)
def test_damage_beside_the_segments_costs_nothing(damage: Callable[[MemFiles], None]) -> None:
    files = MemFiles(1)
    expected = facts(filled(files))
    files = files.kill()
    damage(files)
    recovered = opened(files, SETTINGS)
    assert facts(recovered.log) == expected
    assert not recovered.cut_bytes
    assert not recovered.set_aside
    # And what was mended stays mended.
    sync(recovered.log, checkpoint=True)
    again = opened(files.kill(), SETTINGS)
    assert facts(again.log) == expected
    assert not again.scanned_bytes


def test_a_clean_log_is_opened_without_a_scan() -> None:
    files = MemFiles(1)
    log = filled(files)
    expected = facts(log)
    sync(log, checkpoint=True)
    assert log.is_checkpointed
    recovered = opened(files.kill(), SETTINGS)
    assert recovered.scanned_bytes == 0
    assert facts(recovered.log) == expected


def test_only_what_follows_the_recovery_point_is_scanned() -> None:
    files = MemFiles(1)
    log = filled(files, 12, checkpoint_after=9)
    tail = sum(header.size_bytes for header in read_everything(log, 18))
    assert opened(files.kill(), SETTINGS).scanned_bytes == tail


def test_a_bit_flip_above_the_recovery_point_cuts_there() -> None:
    files = MemFiles(1)
    log = filled(files)
    victim = next(s for s in log.segments if s.base_offset > 12)
    flip(victim.file.path.name, 100)(files)
    recovered = opened(files.kill(), SETTINGS)
    assert recovered.log.end_offset == victim.base_offset
    assert recovered.cut_bytes
    assert [h.base_offset for h in read_everything(recovered.log)] == list(range(0, victim.base_offset, 2))
    offset = append(recovered.log, a_batch(padding=20), epoch=2)
    assert offset == victim.base_offset
    assert read(recovered.log, offset)


@pytest.mark.parametrize(("skipped", "is_ours"), [(0, True), (3, False), (-2, False)])
def test_above_the_recovery_point_only_the_next_offset_counts(skipped: int, is_ours: bool) -> None:
    """A sound batch with another offset is what an earlier, cut-back log left on the disk."""
    files = MemFiles(1)
    log = filled(files)
    stray = a_batch()
    stamp(stray, 0, log.end_offset + skipped, 1)
    log.active.file.pwrite(stray, log.active.size)
    recovered = opened(files.kill(), SETTINGS)
    assert recovered.log.end_offset == log.end_offset + is_ours
    assert bool(recovered.cut_bytes) is not is_ours


def test_a_bit_flip_below_the_recovery_point_is_left_to_the_readers() -> None:
    files = MemFiles(1)
    log = filled(files)
    end = log.end_offset
    flip(FIRST + ".log", 100)(files)
    recovered = opened(files.kill(), SETTINGS)
    assert recovered.log.end_offset == end
    assert not recovered.cut_bytes


def test_a_segment_that_lost_its_tail_ends_the_log() -> None:
    files = MemFiles(1)
    log = filled(files, 16)
    number = next(at for at, segment in enumerate(log.segments) if segment.base_offset > 12)
    short, following = log.segments[number : number + 2]
    last = [header for header in read_everything(log) if header.base_offset < following.base_offset][-1]
    short.file.truncate(short.size - last.size_bytes)
    recovered = opened(files.kill(), SETTINGS)
    assert recovered.log.end_offset == last.base_offset
    assert append(recovered.log, a_batch(), epoch=3) == last.base_offset


def test_a_log_shorter_than_its_recovery_point_is_looked_at_whole() -> None:
    files = MemFiles(1)
    log = filled(files, 12, checkpoint_after=12)
    log.active.file.truncate(log.active.size - 10)
    recovered = opened(files.kill(), SETTINGS)
    assert recovered.log.end_offset == 22
    assert recovered.cut_bytes
    assert recovered.lost == (22, 24)
    files = files.kill()
    forget_lost(files, DIRECTORY)
    assert opened(files, SETTINGS).lost is None, "it has a new point"
    assert [h.base_offset for h in read_everything(recovered.log)] == list(range(0, 22, 2))


def test_what_the_only_copy_lost_is_left_out_and_its_offsets_are_given_to_nobody() -> None:
    files = MemFiles(1)
    log = filled(files, 12, checkpoint_after=12)
    point = files.read(DIRECTORY / RECOVERY_POINT_FILE)
    log.active.file.truncate(log.active.size - 10)
    files = files.kill()
    recovered = open_log(files, DIRECTORY, SETTINGS, only_copy=True)
    assert recovered.lost == (22, 24)
    assert recovered.log.end_offset == 24
    # Nor when the power goes before the new recovery point is there.
    files.write_atomically(DIRECTORY / RECOVERY_POINT_FILE, point)
    files = files.kill()
    again = open_log(files, DIRECTORY, SETTINGS, only_copy=True)
    assert append(again.log, a_batch(), epoch=1) == 24
    assert [h.base_offset for h in read_everything(again.log)] == [*range(0, 22, 2), 24]
    for offset in (22, 23):
        assert read(again.log, offset)
    files = files.kill()
    forget_lost(files, DIRECTORY)
    after = opened(files, SETTINGS)
    assert (after.log.end_offset, after.lost) == (again.log.end_offset, None)
    assert [h.base_offset for h in read_everything(after.log)] == [*range(0, 22, 2), 24]


def test_nor_are_those_of_an_only_copy_that_lost_all_that_was_not_deleted() -> None:
    files = MemFiles(1)
    log = filled(files, 12, checkpoint_after=12)
    StartJob(files, DIRECTORY, 22).run()
    for segment in log.segments[:-1]:
        files.unlink(segment.paths()[0])
    log.active.file.truncate(0)
    files = files.kill()
    recovered = open_log(files, DIRECTORY, SETTINGS, only_copy=True)
    assert (recovered.lost, recovered.log.end_offset) == ((22, 24), 24)


def test_an_only_copy_without_its_segments_goes_on_behind_them_and_tells_what_it_lost() -> None:
    files = MemFiles(1)
    log = filled(files, 12, checkpoint_after=12)
    for segment in log.segments:
        files.unlink(segment.paths()[0])
    recovered = open_log(files.kill(), DIRECTORY, SETTINGS, only_copy=True)
    assert (recovered.log.start_offset, recovered.log.end_offset) == (24, 24)
    assert recovered.lost == (0, 24)


def test_nor_does_it_start_behind_them_where_laggards_may_be_whole() -> None:
    files = MemFiles(1)
    log = filled(files, 12, checkpoint_after=12)
    for segment in log.segments:
        files.unlink(segment.paths()[0])
    files = files.kill()
    for _ in range(2):
        recovered = open_log(files, DIRECTORY, SETTINGS, only_copy=True, has_laggards=True)
        assert (recovered.log.start_offset, recovered.log.end_offset) == (0, 24)
        files = files.kill()


def test_where_others_have_its_records_a_log_without_its_segments_begins_where_it_began() -> None:
    """Led by one that begins behind them, the others would delete them."""
    files = MemFiles(1)
    log = filled(files, 12, checkpoint_after=12)
    for segment in log.segments:
        files.unlink(segment.paths()[0])
    recovered = opened(files.kill(), SETTINGS)
    assert (recovered.log.start_offset, recovered.log.end_offset) == (0, 0)
    assert recovered.lost == (0, 24)


def test_what_was_deleted_by_order_is_not_lost() -> None:
    files = MemFiles(1)
    log = filled(files, 12, checkpoint_after=12)
    StartJob(files, DIRECTORY, 22).run()
    log.active.file.truncate(0)
    assert opened(files.kill(), SETTINGS).lost == (22, 24)


def test_empty_segments_do_no_harm() -> None:
    files = MemFiles(1)
    log = filled(files)
    expected = facts(log)
    files.open(DIRECTORY / segment_name(log.end_offset, ".log"), create=True)
    recovered = opened(files.kill(), SETTINGS)
    assert facts(recovered.log) == expected
    assert append(recovered.log, a_batch(), epoch=1) == log.end_offset


def test_an_empty_segment_behind_a_gap_goes() -> None:
    files = MemFiles(1)
    log = filled(files)
    files.open(DIRECTORY / segment_name(log.end_offset + 5, ".log"), create=True)
    recovered = opened(files.kill(), SETTINGS)
    assert append(recovered.log, a_batch(), epoch=1) == log.end_offset
    assert recovered.log.active.base_offset <= log.end_offset
    assert read(recovered.log, log.end_offset)


@pytest.mark.parametrize("with_point", [True, False])
def test_a_segment_that_overlaps_another_is_not_served(with_point: bool) -> None:
    files = MemFiles(1)
    log = filled(files, checkpoint_after=4)
    expected = facts(log)
    base = log.segments[-1].base_offset
    copy = files.read(log.segments[-1].file.path)
    files.write_atomically(DIRECTORY / segment_name(base + 1, ".log"), copy)
    if not with_point:
        delete(RECOVERY_POINT_FILE)(files)
    recovered = opened(files.kill(), SETTINGS)
    assert facts(recovered.log) == expected
    assert bool(recovered.set_aside) is not with_point


def test_an_only_copy_that_lost_its_segments_never_gives_an_offset_out_twice() -> None:
    files = MemFiles(1)
    log = filled(files, checkpoint_after=12)
    for segment in log.segments:
        files.unlink(segment.file.path)
    recovered = open_log(files.kill(), DIRECTORY, SETTINGS, only_copy=True)
    assert (recovered.log.start_offset, recovered.log.end_offset) == (24, 24)
    assert append(recovered.log, a_batch(), epoch=2) == 24


def test_the_start_of_the_log_is_remembered_without_a_checkpoint() -> None:
    files = MemFiles(1)
    log = filled(files)
    sync(log)
    log.advance_start(7)
    log.start_job().run()
    log.advance_start(9)
    log.start_job().run()
    assert [name for name in files.list_dir(DIRECTORY) if name.endswith(".start")] == [
        segment_name(9, ".start")
    ]
    assert opened(files.kill(), SETTINGS).log.start_offset == 9


def test_the_same_holds_on_a_real_disk(tmp_path: Path) -> None:
    from penstock.core.os_files import OsFiles

    files = OsFiles()
    log = opened(files, SETTINGS, tmp_path / "p").log
    for number in range(12):
        append(log, a_batch([NOW_MS + number], producer=(5, 0, number), padding=60))
        if number == 6:
            sync(log, checkpoint=True)
    expected = facts(log)
    log.close()
    with (tmp_path / "p" / segment_name(log.active.base_offset, ".log")).open("ab") as torn:
        torn.write(b"half a batch")
    recovered = opened(files, SETTINGS, tmp_path / "p")
    assert recovered.cut_bytes == len(b"half a batch")
    assert facts(recovered.log) == expected
    recovered.log.close()


def test_the_name_of_an_empty_segment_is_durable_before_anything_is_written_to_it() -> None:
    """A process that is killed right after a roll leaves a name that only the page cache knows."""
    files = MemFiles(1)
    log = filled(files, checkpoint_after=12)
    log.roll(NOW_MS)
    files = files.kill()
    reopened = opened(files, SETTINGS).log
    append(reopened, a_batch(), epoch=1)
    sync(reopened)
    after_power_cut = opened(files.crash(random.Random(1)), SETTINGS).log
    assert after_power_cut.end_offset == reopened.end_offset


def test_a_start_behind_the_end_forgets_what_producers_did() -> None:
    """Records were deleted that had not reached the disk yet: nobody knows how far their producers were."""
    files = MemFiles(1)
    log = filled(files)
    files.open(DIRECTORY / segment_name(log.end_offset + 3, ".start"), create=True).close()
    for _ in range(2):
        recovered = opened(files := files.kill(), SETTINGS).log
        assert (recovered.start_offset, recovered.end_offset) == (log.end_offset + 3, log.end_offset + 3)
        assert recovered.producers.copy() == []


@pytest.mark.parametrize("operations", range(10, 60))
def test_epochs_reach_back_to_the_start_after_a_truncation_that_was_cut_short(operations: int) -> None:
    """Truncation below the start moves the start back; the epoch file still begins where the start was."""
    files = MemFiles(1)
    log = filled(files, checkpoint_after=12)
    log.advance_start(8)
    sync(log, checkpoint=True)
    job = log.truncation(4)
    assert job is not None
    interrupt(files, operations)
    with suppress(PowerCut):
        job.run()
    recovered = opened(files.crash(random.Random(operations)), SETTINGS).log
    if recovered.start_offset < recovered.end_offset:
        assert recovered.epochs.epoch_at(recovered.start_offset) == 0
