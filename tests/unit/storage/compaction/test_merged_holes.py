"""Segments that compaction merged are missed by nobody; those that somebody took are, in the log that it left."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.property.log_story import PowerCut, interrupt
from tests.unit.storage.compacting import clean_job, compact, contents, run_round, swap_all, write
from tests.unit.storage.logs import DIRECTORY, Settings, opened, sync

from penstock.storage.checkpoint import checkpoint_all
from penstock.storage.compaction.swap import prepare_swap
from penstock.storage.layout import LOG, MERGED, SWAP, segment_name
from penstock.storage.log import Log
from penstock.storage.recovered import Recovered
from penstock.storage.recovery import open_log
from penstock.testing.mem_files import MemFiles

SETTINGS = Settings(segment_bytes=1000)
LATEST = [(offset, b"%d" % (offset % 3), b"%d" % offset) for offset in (5, 6, 7)]


def filled(files: MemFiles) -> Log:
    """Segments from 0, 2, 4 and 6 on, and an empty one: the first two have nothing that stays."""
    log = opened(files, SETTINGS).log
    for first in (0, 2, 4, 6):
        write(log, [[(b"%d" % (offset % 3), b"%d" % offset)] for offset in (first, first + 1)])
    return log


def start(files: MemFiles, *, only_copy: bool = False) -> Recovered:
    return open_log(files, DIRECTORY, SETTINGS, only_copy=only_copy)


def stopped(files: MemFiles, log: Log) -> None:
    """As a clean stop does it."""
    if not log.is_checkpointed:
        job = log.sync_job(checkpoint=True)
        checkpoint_all(files, DIRECTORY.parent, [job])
        log.synced(job)


def merge(log: Log) -> None:
    compact(log, segment_bytes=1)  # each alone, then all of them in one
    compact(log)
    sync(log, checkpoint=True)


def merge_and_stop(log: Log) -> None:
    compact(log)
    stopped(log.files, log)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [None, *range(4)])
@pytest.mark.parametrize("work", [merge, merge_and_stop])
def test_what_was_merged_is_not_missed_wherever_it_was_stopped(
    work: Callable[[Log], None], seed: int | None
) -> None:
    """Without a seed the process is killed, with one the power goes."""
    ended = False
    operations = 0
    while not ended:
        files = MemFiles(1)
        log = filled(files)
        interrupt(files, operations)
        ended = True
        try:
            work(log)
        except PowerCut:
            ended = False
        files.__dict__.pop("enter", None)
        files = files.kill() if seed is None else files.crash(random.Random(seed))
        for _ in range(2):
            found = start(files)
            assert (found.lost, found.set_aside, found.log.end_offset) == (None, [], 8)
            assert contents(found.log)[-3:] == LATEST
            files = files.crash(random.Random(operations))
        operations += 1
    assert operations > 20


@pytest.mark.parametrize("only_copy", [True, False])
@pytest.mark.parametrize("taken", [0, 4, 6])
def test_what_is_taken_of_a_compacted_log_that_was_stopped_is_missed(taken: int, only_copy: bool) -> None:
    files = MemFiles(1)
    log = filled(files)
    compact(log, segment_bytes=1)
    write(log, [[(b"x", b"8")]])
    stopped(files, log)
    assert [segment.base_offset for segment in log.segments if segment.size] == [4, 6, 8]
    files.unlink(DIRECTORY / segment_name(taken, LOG))
    files.sync_dir(DIRECTORY)
    found = start(files.kill(), only_copy=only_copy)
    if not taken:
        assert found.lost is None, "nothing was in it"
    elif only_copy:
        assert (found.lost, found.log.end_offset) == ((taken, taken + 2), 9)
    else:
        end = found.log.end_offset  # it may lie in a gap before that
        assert end <= taken
        assert found.lost == (end, 9)


def test_a_checkpoint_that_began_before_the_exchange_was_over_leaves_its_mark() -> None:
    files = MemFiles(1)
    log = filled(files)
    result = run_round(clean_job(log))
    checkpoint = log.sync_job(checkpoint=True)  # names the old segments
    swap_all(log, result)
    checkpoint.run()
    log.synced(checkpoint)
    assert log.needs_checkpoint
    assert start(files.kill()).lost is None


def test_a_checkpoint_beside_a_second_exchange_of_the_same_segments_leaves_their_mark() -> None:
    """As where the keys did not fit the first round, and a sync kept the checkpoint from coming in between."""
    files = MemFiles(1)
    log = opened(files, SETTINGS).log
    for keys in (b"abc", b"a", b"d", b"b"):
        write(log, [[(b"%c" % key, b"value")] for key in keys])
    first = compact(log, keys=3, segment_bytes=1)
    assert not first.complete
    second = run_round(clean_job(log, cleaned_to=first.end_offset, segment_bytes=1))
    swap = prepare_swap(log, second.segments[0], log.active.base_offset)
    assert swap is not None
    checkpoint = log.sync_job(checkpoint=True)  # names what the first exchange has put there
    swap.run()
    checkpoint.run()
    swap.finish()
    log.synced(checkpoint)
    found = start(files.kill())
    assert (found.lost, found.set_aside) == (None, [])
    assert log.needs_checkpoint


def test_a_mark_that_a_crash_left_goes_with_the_next_checkpoint() -> None:
    files = MemFiles(1)
    compact(filled(files))
    files = files.kill()
    log = start(files).log
    assert log.needs_checkpoint
    assert not log.is_checkpointed
    stopped(files, log)
    assert not marks(files)
    assert start(files.kill()).lost is None


def marks(files: MemFiles) -> list[str]:
    return [name for name in files.list_dir(DIRECTORY) if name.endswith(MERGED)]


def test_a_start_that_finishes_an_exchange_makes_the_mark_that_a_power_cut_took() -> None:
    files = MemFiles(1)
    log = filled(files)
    result = run_round(clean_job(log))
    enter = files.enter

    def stop(operation: str, path: Path) -> None:
        if operation == "sync_dir" and any(name.endswith(SWAP) for name in files.list_dir(DIRECTORY)):
            raise PowerCut
        enter(operation, path)

    files.enter = stop  # type: ignore[method-assign]
    with pytest.raises(PowerCut):
        swap_all(log, result)
    del files.enter
    for name in marks(files):
        files.unlink(DIRECTORY / name)
    files.sync_dir(DIRECTORY)
    found = start(files.kill())
    assert (found.lost, found.set_aside, contents(found.log)) == (None, [], LATEST)


def test_a_stop_takes_the_mark_away_when_its_recovery_point_is_durable() -> None:
    files = MemFiles(1)
    log = filled(files)
    compact(log)
    enter = files.enter
    seen = []

    def look(operation: str, path: Path) -> None:
        if operation == "sync" and path == DIRECTORY.parent:
            seen.append(bool(marks(files)))
        enter(operation, path)

    files.enter = look  # type: ignore[method-assign]
    stopped(files, log)
    assert seen == [True, True, True]
    assert not marks(files)
