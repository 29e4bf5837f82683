"""No descriptor is left at some moment, at each in turn: who opens, cuts or begins a log does it, or fails.

What could not be read just now is not damaged, nor absent.
"""

import random
from collections.abc import Callable, Iterator

import pytest
from tests.unit.storage.logs import NOW_MS, Settings, a_batch, append, opened, read_everything, sync

from penstock.core.errors import TooManyFilesError
from penstock.storage.log import Log
from penstock.storage.producer_snapshot import dump_producers
from penstock.storage.producers import ProducerState
from penstock.storage.recovery import begin_anew, start_over
from penstock.storage.replicated import truncate
from penstock.storage.retention import RetentionLimits
from penstock.testing.mem_files import MemFiles

SETTINGS = Settings(segment_bytes=100)
Told = tuple[object, ...]


def with_a_past() -> MemFiles:
    """Epochs and producers of records that retention has deleted, a recovery point, and a tail behind it."""
    files = MemFiles()
    log = opened(files, SETTINGS).log
    for number in range(12):
        append(log, a_batch(producer=(number, 0, 0)), epoch=number // 2)
        if number in (3, 5, 8):
            sync(log, checkpoint=True)
    deletion = log.expire(RetentionLimits(retention_bytes=400), 8, NOW_MS)
    assert deletion is not None
    deletion.hide()
    deletion.unlink()
    sync(log)
    return power_cut(files)


def power_cut(files: MemFiles) -> MemFiles:
    return files.crash(random.Random(1))


def told(files: MemFiles) -> Told:
    files.short_in = 0
    log = opened(files, SETTINGS).log
    batches = [(header.base_offset, header.leader_epoch) for header in read_everything(log)]
    ends = log.start_offset, log.end_offset
    return ends, batches, log.epochs.entries(), dump_producers(log.producers.copy())


def each_moment(work: Callable[[Log], object]) -> Iterator[tuple[bool, MemFiles]]:
    """Whether it failed, and what it left."""
    for number in range(1, 200):
        files = with_a_past()
        log = opened(files, SETTINGS).log
        files.short_in = number
        try:
            work(log)
        except TooManyFilesError:
            yield True, files
        else:
            is_over = files.short_in > 0
            yield False, files
            if is_over:
                return
    raise AssertionError("it never ends")


def test_a_log_is_opened_as_it_is_or_not_at_all() -> None:
    expected = told(with_a_past())
    failures = 0
    for failed, files in each_moment(lambda log: opened(log.files, SETTINGS)):
        failures += failed
        assert told(power_cut(files)) == expected
    assert failures > 5


def cut(log: Log) -> None:
    truncate(log, 7)


def test_a_cut_log_knows_what_it_knew_of_the_rest() -> None:
    before, after = told(with_a_past()), told(power_cut(done(cut)))
    failures = 0
    for failed, files in each_moment(cut):
        failures += failed
        files = power_cut(files)
        if not failed:
            assert told(files) == after
        elif told(files) != before:  # half of it is done: it is done again
            cut(opened(files, SETTINGS).log)
            assert told(power_cut(files)) == after
    assert failures > 5


def done(work: Callable[[Log], object]) -> MemFiles:
    files = with_a_past()
    work(opened(files, SETTINGS).log)
    return files


@pytest.mark.parametrize(("how", "offset"), [(begin_anew, 50), (start_over, 2), (start_over, 8)])
def test_a_log_begins_anew_or_stays(how: Callable[[Log, int, ProducerState], Log], offset: int) -> None:
    def work(log: Log) -> Log:
        return how(log, offset, ProducerState())

    before, after = told(with_a_past()), told(power_cut(done(work)))
    failures = 0
    for failed, files in each_moment(work):
        failures += failed
        assert told(power_cut(files)) in ((before, after) if failed else (after,))
    assert failures > 5
