"""A log that starts over is the old one, or a new one, whatever happens on the way: never a piece of the old one."""

import random
from collections.abc import Callable
from contextlib import suppress

import pytest
from tests.property.log_story import PowerCut, interrupt
from tests.unit.storage.logs import DIRECTORY, NOW_MS, a_batch, append, opened, read_everything, sync

from penstock.core.errors import StorageError
from penstock.storage.compaction.checkpoint import ANYWHERE, Cleaned, load_cleaned, save_cleaned
from penstock.storage.layout import ANEW, CLEANER_FILE, RECOVERY_POINT_FILE, SNAPSHOT, segment_name
from penstock.storage.log import Log
from penstock.storage.producers import ProducerState
from penstock.storage.recovery import begin_anew, start_over
from penstock.testing.mem_files import MemFiles


def a_log(files: MemFiles) -> Log:
    log = opened(files).log
    for number in range(9):
        append(log, a_batch(producer=(7, 0, number)), epoch=1 + number // 5)
        if number % 3 == 2:
            log.roll(NOW_MS)
            sync(log, checkpoint=True)
    log.advance_start(2)
    log.start_job().run()
    save_cleaned(files, DIRECTORY, Cleaned(6, 5, 6))
    return opened(files).log


def offsets(log: Log) -> list[int]:
    return [header.base_offset for header in read_everything(log)]


@pytest.mark.parametrize("power", [True, False], ids=["power cut", "kill"])
@pytest.mark.parametrize("begin", [0, 4, 20])
def test_a_log_that_starts_over_is_the_old_one_or_a_new_one(begin: int, power: bool) -> None:
    was_new = 0
    for operations in range(80):
        files = MemFiles(operations)
        log = a_log(files)
        interrupt(files, operations)
        with suppress(PowerCut):
            log = start_over(log, begin, ProducerState())
        rng = random.Random(operations)
        files = files.crash(rng) if power else files.kill()
        log = opened(files).log
        if offsets(log):
            assert offsets(log) == list(range(2, 9))
            continue
        was_new += 1
        assert (log.start_offset, log.end_offset, len(log.epochs)) == (begin, begin, 0)
        assert not log.producers.copy()
        assert log.cleaned == Cleaned(tombstones=5) == load_cleaned(files, DIRECTORY, 0)
        assert not [name for name in files.list_dir(DIRECTORY) if name.endswith(ANEW)]
        append(log, a_batch(), epoch=3)
        sync(log)
        assert offsets(opened(files.crash(rng)).log) == [begin]
    assert was_new > 20


def test_a_cleaners_file_that_tells_less_is_taken_for_one_that_went_by_everything() -> None:
    files = MemFiles()
    log = opened(files).log
    for text in (b"no such thing", b"1\n3 4\ncrc32c 00000000\n"):
        files.write_atomically(log.directory / CLEANER_FILE, text)
        assert load_cleaned(files, log.directory, 9).lacks(8)
    save_cleaned(files, log.directory, (3, 4))  # type: ignore[arg-type] # as an earlier version did
    assert load_cleaned(files, log.directory, 9) == Cleaned(3, 4, 9)


@pytest.mark.parametrize("name", [RECOVERY_POINT_FILE, segment_name(20, SNAPSHOT)])
@pytest.mark.parametrize("made", [begin_anew, start_over])
def test_a_read_that_fails_once_does_not_bring_back_the_old_log_nor_forgets_producers(
    made: Callable[[Log, int, ProducerState], Log], name: str
) -> None:
    files = MemFiles()
    known = opened(MemFiles()).log
    append(known, a_batch(producer=(9, 0, 0)))
    files_log = a_log(files)
    files.fail_next("read", f"*/{name}")
    try:
        log = made(files_log, 20, known.producers)
    except StorageError:
        log = opened(files, rewrite_tail=True).log
    files.mend()
    for _ in range(2):
        assert (log.start_offset, log.end_offset, offsets(log)) == (20, 20, [])
        assert [producer.producer_id for producer in log.producers.copy()] == [9]
        log = opened(files).log


@pytest.mark.parametrize("made", ["started over", "opened"])
def test_a_mark_of_missing_tombstones_that_cannot_be_read_once_does_not_go_back(made: str) -> None:
    """It lies behind the end of a copy on its way: nothing else tells of it."""
    files = MemFiles()
    log = a_log(files)
    save_cleaned(files, DIRECTORY, Cleaned(tombstones=100))
    files.fail_next("read", f"*/{CLEANER_FILE}")
    with pytest.raises(StorageError):
        opened(files) if made == "opened" else start_over(log, 4, ProducerState())
    files = files.kill()
    log = opened(files).log
    assert offsets(log) == (list(range(2, 9)) if made == "opened" else [])
    assert log.cleaned == Cleaned(tombstones=100) == load_cleaned(files, DIRECTORY, 0)


@pytest.mark.parametrize("made", ["started over", "opened"])
def test_one_that_is_damaged_may_be_anywhere_until_the_log_leads(made: str) -> None:
    files = MemFiles()
    log = a_log(files)
    files.write_atomically(log.directory / CLEANER_FILE, b"1\n3 4\ncrc32c 00000000\n")
    log = opened(files).log if made == "opened" else start_over(log, 4, ProducerState())
    assert log.cleaned.tombstones == ANYWHERE == opened(files).log.cleaned.tombstones
    assert log.cleaned.leading(log.end_offset).tombstones == log.end_offset
    assert Cleaned(tombstones=100).leading(7).tombstones == 100


def test_what_was_lost_is_told_also_if_the_cleaners_file_cannot_be_read_at_first() -> None:
    files = MemFiles()
    a_log(files)
    files.unlink(DIRECTORY / segment_name(6, ".log"))
    files.unlink(DIRECTORY / segment_name(9, ".log"))
    files.fail_next("read", f"*/{CLEANER_FILE}")
    with pytest.raises(StorageError):
        opened(files)
    assert opened(files).lost == (6, 9)
