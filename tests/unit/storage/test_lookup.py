"""Times are found as a reader of the whole log would find them, whatever segments and indexes lie in between."""

import random

import pytest
from tests.unit.storage.logs import Settings, a_batch, append, opened, sync

from penstock.storage.log import Log
from penstock.testing.mem_files import MemFiles

SMALL = Settings(segment_bytes=600, index_interval_bytes=150)


def a_log(timestamps: list[list[int]], files: MemFiles | None = None) -> Log:
    log = opened(files or MemFiles(), SMALL).log
    for batch in timestamps:
        append(log, a_batch(batch))
    return log


def reference_first(timestamps: list[list[int]], target: int, start: int, end: int) -> tuple[int, int] | None:
    flat = [timestamp for batch in timestamps for timestamp in batch]
    for offset, timestamp in enumerate(flat[:end]):
        if offset >= start and timestamp >= target:
            return offset, timestamp
    return None


def reference_latest(timestamps: list[list[int]], start: int, end: int) -> tuple[int, int] | None:
    flat = [timestamp for batch in timestamps for timestamp in batch]
    seen = [(offset, timestamp) for offset, timestamp in enumerate(flat[:end]) if offset >= start]
    return max(seen, key=lambda record: (record[1], -record[0]), default=None)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("restarted", [False, True])
def test_agrees_with_a_plain_scan(seed: int, restarted: bool) -> None:
    rng = random.Random(seed)
    batches = [[rng.randrange(1, 60) for _ in range(rng.randrange(1, 5))] for _ in range(40)]
    files = MemFiles()
    log = opened(files, SMALL).log
    committed = log.end()
    for number, batch in enumerate(batches):
        append(log, a_batch(batch))
        if number == 30:
            committed = log.end()
    if restarted:
        sync(log, checkpoint=True)
        log = opened(files.kill(), SMALL).log
        assert len(log.segments) > 5
    start = rng.randrange(0, committed.offset)
    log.advance_start(start)
    search = log.lookup(committed)
    for target in range(65):
        assert search.first_at_or_after(target) == reference_first(batches, target, start, committed.offset)
    assert search.latest() == reference_latest(batches, start, committed.offset)


def test_nothing_is_found_in_an_empty_log() -> None:
    log = a_log([])
    search = log.lookup(log.end())
    assert search.first_at_or_after(0) is None
    assert search.latest() is None


def test_indexes_read_for_a_search_do_not_stay_in_memory() -> None:
    files = MemFiles()
    log = a_log([[number] for number in range(100)], files)
    sync(log, checkpoint=True)
    log = opened(files.kill(), SMALL).log
    cold = [segment for segment in log.segments if segment.index is None]
    assert len(cold) > 5
    found = log.lookup(log.end()).latest()
    assert found is not None
    assert found.offset == 99
    assert all(segment.index is None for segment in cold)
