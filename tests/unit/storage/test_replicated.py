"""A follower's log: the leader's bytes, offsets and epochs, through gaps, rolls and crashes."""

import random
from contextlib import suppress
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

from penstock.core.errors import ApiError, StorageError
from penstock.records.batch import read_header, stamp
from penstock.storage.compaction.checkpoint import Cleaned, save_cleaned
from penstock.storage.layout import RECOVERY_POINT_FILE
from penstock.storage.log import Log
from penstock.storage.producers import ProducerState
from penstock.storage.recovery import begin_anew
from penstock.storage.replicated import GapError, append_replicated, end_at, truncate
from penstock.testing.mem_files import MemFiles


def everything(log: Log) -> bytes:
    return b"".join(segment.file.pread(segment.size, 0) for segment in log.segments)


def test_batches_are_taken_over_byte_for_byte_with_epochs_and_producers() -> None:
    leader, follower = opened(MemFiles()).log, opened(MemFiles(), Settings(segment_bytes=200)).log
    for number, epoch in enumerate((0, 0, 3, 3, 7)):
        append(leader, a_batch((NOW_MS, NOW_MS), producer=(9, 0, 2 * number)), epoch=epoch)
    append_replicated(follower, memoryview(everything(leader)), NOW_MS)
    assert everything(follower) == everything(leader)
    assert follower.end_offset == leader.end_offset == 10
    assert follower.epochs.entries() == leader.epochs.entries() == [(0, 0), (3, 4), (7, 8)]
    assert follower.producers.copy() == leader.producers.copy()
    assert len(follower.segments) > 1


def test_a_piece_of_a_batch_at_the_end_is_left_out() -> None:
    leader, follower = opened(MemFiles()).log, opened(MemFiles()).log
    append(leader, a_batch())
    append(leader, a_batch())
    append_replicated(follower, memoryview(everything(leader))[:-1], NOW_MS)
    assert follower.end_offset == 1


def test_a_damaged_batch_and_one_that_does_not_follow_are_refused() -> None:
    follower = opened(MemFiles()).log
    append(follower, a_batch())
    again = a_batch()
    stamp(memoryview(again), 0, 0, 0)
    with pytest.raises(StorageError):
        append_replicated(follower, memoryview(again), NOW_MS)
    damaged = a_batch()
    stamp(memoryview(damaged), 0, 1, 0)
    damaged[-1] ^= 1
    with pytest.raises(ApiError):
        append_replicated(follower, memoryview(damaged), NOW_MS)
    assert follower.end_offset == 1


def test_batches_of_a_later_epoch_than_the_leader_that_was_asked_are_refused() -> None:
    follower = opened(MemFiles()).log
    for offset, epoch in ((0, 1), (1, 2), (2, 3)):
        batch = a_batch()
        stamp(memoryview(batch), 0, offset, epoch)
        if epoch <= 2:
            append_replicated(follower, memoryview(batch), NOW_MS, epoch=2)
        else:
            with pytest.raises(StorageError, match="epoch 3"):
                append_replicated(follower, memoryview(batch), NOW_MS, epoch=2)
    assert follower.end_offset == 2


def test_a_gap_is_refused_unless_the_topic_compacts_or_the_leader_shows_it_again() -> None:
    batch = a_batch()
    stamp(memoryview(batch), 0, 7, 1)
    follower = opened(MemFiles()).log
    with pytest.raises(GapError) as refused:
        append_replicated(follower, memoryview(batch), NOW_MS, starts=[(1, 0)])
    assert follower.end_offset == 0
    append_replicated(follower, memoryview(batch), NOW_MS, gap=refused.value.place, starts=[(1, 0)])
    assert follower.end_offset == 8
    compacted = opened(MemFiles(), Settings(compacts=True)).log
    append_replicated(compacted, memoryview(batch), NOW_MS, starts=[(1, 0)])
    assert compacted.end_offset == 8


@pytest.mark.parametrize("segment_bytes", [1 << 20, 150])
def test_gaps_of_a_compacted_leader_survive_a_crash(segment_bytes: int) -> None:
    files = MemFiles()
    settings = Settings(segment_bytes=segment_bytes, compacts=True)
    follower = opened(files, settings).log
    for offset in (0, 5, 6, 40):
        batch = a_batch()
        stamp(memoryview(batch), 0, offset, 2)
        append_replicated(follower, memoryview(batch), NOW_MS)
    sync(follower)
    files = files.crash(random.Random(1))
    log = opened(files, settings).log
    assert log.end_offset == 41
    assert [header.base_offset for header in read_everything(log)] == [0, 5, 6, 40]


@pytest.mark.parametrize("far", [0, 1 << 32])
def test_what_follows_a_gap_is_found_again_after_a_full_disk_and_a_kill(far: int) -> None:
    """The batch behind the gap did not fit; when there is room, the leader has compacted it away, and another comes."""
    files = MemFiles()
    settings = Settings(segment_bytes=250, compacts=True)
    follower = opened(files, settings).log

    def replicate(offset: int, padding: int = 0) -> None:
        batch = a_batch(padding=padding)
        stamp(memoryview(batch), 0, offset, 2)
        append_replicated(follower, memoryview(batch), NOW_MS, starts=[(2, 0)])

    replicate(0)
    files.fill_up(bytes_left=10)
    with pytest.raises(ApiError, match="No space"):
        replicate(5 + far)
    files.make_room()
    replicate(9 + far, padding=150)  # the segment has no room for this one
    replicate(10 + far)
    log = opened(files.kill(), settings).log
    assert [header.base_offset for header in read_everything(log)] == [0, 9 + far, 10 + far]


@pytest.mark.parametrize("told", [True, False])
def test_gaps_survive_a_crash_after_the_topic_stopped_compacting_where_the_log_says_so(told: bool) -> None:
    files = MemFiles()
    follower = opened(files, Settings(compacts=True)).log
    if told:
        save_cleaned(files, DIRECTORY, Cleaned())
    for offset in (0, 5, 6):
        batch = a_batch()
        stamp(memoryview(batch), 0, offset, 2)
        append_replicated(follower, memoryview(batch), NOW_MS)
    sync(follower)
    log = opened(files.crash(random.Random(1)), Settings()).log
    assert log.may_have_gaps is told
    assert [header.base_offset for header in read_everything(log)] == ([0, 5, 6] if told else [0])


def test_the_place_of_an_offset_is_found_in_any_segment() -> None:
    log = opened(MemFiles(), Settings(segment_bytes=200)).log
    for _ in range(6):
        append(log, a_batch((NOW_MS, NOW_MS)))
    for offset in range(0, 13, 2):
        place = end_at(log, offset)
        below = [header for header in read_everything(log, 0) if header.last_offset < offset]
        before = sum(s.size for s in log.segments if s.base_offset < place.segment)
        assert before + place.position == sum(header.size_bytes for header in below)


def test_a_log_begins_anew_behind_its_end_and_stays_so() -> None:
    files = MemFiles()
    old = opened(files).log
    append(old, a_batch())
    sync(old, checkpoint=True)
    anew = begin_anew(old, 30, ProducerState())
    assert (anew.start_offset, anew.end_offset) == (30, 30)
    append(anew, a_batch())
    sync(anew)
    log = opened(files.crash(random.Random(2))).log
    assert (log.start_offset, log.end_offset) == (30, 31)


@pytest.mark.parametrize("kept", [0, 1, 3])
def test_a_place_in_a_file_never_shows_records_that_came_after_a_cut(kept: int) -> None:
    """An answer may wait in its socket while the log is cut, and grows again as another leader has it."""
    files = MemFiles()
    log = opened(files).log
    for _ in range(4):
        append(log, a_batch((NOW_MS,)), epoch=1)
    answer = log.read(0, 1 << 20, log.end(), at_least_one=True)
    assert answer is not None
    before = answer.file.pread(answer.size, 0)
    truncate(log, kept)
    for _ in range(4 - kept):
        append(log, a_batch((NOW_MS + 5,)), epoch=2)
    late = answer.file.pread(answer.size, 0)
    assert late == before[: len(late)]
    assert [header.leader_epoch for header in read_everything(log)] == [1] * kept + [2] * (4 - kept)
    sync(log)
    again = opened(files.crash(random.Random(3))).log
    assert [header.leader_epoch for header in read_everything(again)] == [1] * kept + [2] * (4 - kept)


def test_a_segment_is_never_made_over_records() -> None:
    """Two logs over one directory, as of a start that was not wholly given up: neither empties the other's files."""
    files = MemFiles()
    settings = Settings(segment_bytes=100)
    first_log, other = opened(files, settings).log, opened(files, settings).log
    for log in (first_log, other):
        append(log, a_batch())
    append(first_log, a_batch())
    records = everything(first_log)
    with pytest.raises(ApiError):
        append(other, a_batch())
    assert everything(first_log) == records
    assert other.failed


def test_a_log_that_begins_anew_knows_of_its_producers_what_it_is_told() -> None:
    """What they wrote meanwhile was deleted elsewhere: by what was known here, all they send would have a gap."""
    old = opened(MemFiles()).log
    append(old, a_batch([NOW_MS] * 6, producer=(7, 0, 0)))
    sync(old, checkpoint=True)
    anew = begin_anew(old, 100, ProducerState())
    assert anew.find_repeat(read_header(a_batch(producer=(7, 0, 51)))) is None


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_while_a_log_begins_anew_leaves_the_old_one_or_what_is_known(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    files = MemFiles()
    old = opened(files).log
    append(old, a_batch([NOW_MS] * 6, producer=(7, 0, 0)))
    sync(old, checkpoint=True)
    told = ProducerState()
    told.record(read_header(a_batch(producer=(7, 0, 50))), 99)
    left, honest = rng.randint(0, 40), files.enter

    def enter(operation: str, path: Path) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise StorageError("the power is gone")
        honest(operation, path)

    monkeypatch.setattr(files, "enter", enter)
    with suppress(StorageError):
        begin_anew(old, 100, told)
    log = opened(files.crash(rng)).log
    if log.end_offset == 100:
        repeat = log.find_repeat(read_header(a_batch(producer=(7, 0, 50))))
        assert repeat is not None
        assert repeat.first_offset == 99
    else:
        assert (log.start_offset, log.end_offset) == (0, 6)


def test_an_empty_log_that_begins_within_a_batch_knows_its_producers_still() -> None:
    """The leader's log starts in the middle of a batch: its follower begins there, and goes back to take it whole."""
    files = MemFiles()
    old = opened(files).log
    append(old, a_batch())
    sync(old, checkpoint=True)
    told = ProducerState()
    told.record(read_header(a_batch(producer=(7, 0, 50))), 90)
    anew = begin_anew(old, 100, told)
    truncate(anew, 98)
    again = opened(files.crash(random.Random(1))).log
    for log in (anew, again):
        assert (log.start_offset, log.end_offset) == (98, 98)
        assert log.find_repeat(read_header(a_batch(producer=(7, 0, 50)))) is not None


@pytest.mark.parametrize("before_gap", [0, 2])
def test_a_log_that_was_cut_back_to_a_gap_can_be_opened(before_gap: int) -> None:
    """Its recovery point lies at the beginning of a segment whose name is a smaller offset."""
    files, settings = MemFiles(), Settings(segment_bytes=400, compacts=True)
    log = opened(files, settings).log
    for offset in (*range(before_gap), 100):
        append_replicated(log, batch_at(offset), NOW_MS, starts=[(1, 0)])
    truncate(log, 100)
    sync(log, checkpoint=True)
    again = opened(files.crash(random.Random(1)), settings).log
    assert (again.start_offset, again.end_offset) == (0, 100)
    append_replicated(again, batch_at(100), NOW_MS)
    assert [header.base_offset for header in read_everything(again)] == [*range(before_gap), 100]


@pytest.mark.parametrize("checkpointed", [True, False])
@pytest.mark.parametrize("damaged", [True, False])
def test_what_follows_a_cut_within_a_gap_survives_a_crash(checkpointed: bool, damaged: bool) -> None:
    files, settings = MemFiles(), Settings(compacts=True)
    log = opened(files, settings).log
    for offset in (0, 50, 51):
        append_replicated(log, batch_at(offset), NOW_MS)
    sync(log, checkpoint=checkpointed)
    truncate(log, 30)
    assert log.end_offset == 30
    for offset in range(30, 40):
        append_replicated(log, batch_at(offset), NOW_MS)
    sync(log)
    files = files.kill()
    if damaged:
        files.unlink(DIRECTORY / RECOVERY_POINT_FILE)
    again = opened(files, settings)
    assert (again.log.end_offset, again.cut_bytes) == (40, 0)
    assert [header.base_offset for header in read_everything(again.log)] == [0, *range(30, 40)]


@pytest.mark.parametrize("before_gap", [0, 2])
def test_a_gap_may_be_wider_than_a_segment_can_count(before_gap: int) -> None:
    """A segment's index has 32 bits for an offset."""
    files, settings, far = MemFiles(), Settings(compacts=True), 2**32 + 5
    log = opened(files, settings).log
    for offset in (*range(before_gap), far, far + 1):
        append_replicated(log, batch_at(offset), NOW_MS, starts=[(1, 0)])
    assert log.active.base_offset == far
    expected = [*range(before_gap), far, far + 1]
    assert [header.base_offset for header in read_everything(log)] == expected
    sync(log, checkpoint=True)
    again = opened(files.crash(random.Random(1)), settings).log
    assert again.end_offset == far + 2
    assert [header.base_offset for header in read_everything(again)] == expected


def test_an_empty_log_that_ends_far_behind_its_segments_name_can_be_led() -> None:
    log = opened(MemFiles(), Settings(compacts=True)).log
    append_replicated(log, batch_at(2**31 + 5), NOW_MS, starts=[(1, 0)])
    truncate(log, 2**31 + 5)
    append(log, a_batch())
    assert (log.end_offset, log.active.base_offset) == (2**31 + 6, 2**31 + 5)


def test_a_log_that_was_cut_within_a_gap_ends_there_without_its_recovery_point() -> None:
    files, settings = MemFiles(), Settings(compacts=True)
    log = opened(files, settings).log
    for offset in (0, 50):
        append_replicated(log, batch_at(offset), NOW_MS)
    sync(log, checkpoint=True)
    truncate(log, 30)
    files = files.kill()
    files.unlink(DIRECTORY / RECOVERY_POINT_FILE)
    again = opened(files, settings).log
    assert (again.end_offset, again.active.base_offset) == (30, 30)


def batch_at(offset: int) -> memoryview:
    batch = memoryview(a_batch(padding=200))
    stamp(batch, 0, offset, 1)
    return batch
