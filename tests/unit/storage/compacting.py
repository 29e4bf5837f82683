"""Compaction of small logs for tests: keyed batches, a whole round at once, and what a reader then finds."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tests.unit.storage.logs import NOW_MS, append, read, sync

from penstock.records.batch import check_batch
from penstock.records.builder import BatchBuilder, BatchOptions
from penstock.records.reader import Record, read_all
from penstock.storage.compaction.clean_job import CleanedSegment, CleanJob
from penstock.storage.compaction.cleanable import CleanLimits, cleanable
from penstock.storage.compaction.cleaning import CleanRound
from penstock.storage.compaction.offset_map import SLOT_BYTES
from penstock.storage.compaction.swap import prepare_swap
from penstock.storage.log import Log

Pair = tuple[bytes | None, bytes | None]


def keyed(
    pairs: Sequence[Pair], *, producer: tuple[int, int, int] | None = None, codec: int = 0, time: int = NOW_MS
) -> bytearray:
    """A batch of (key, value); `producer` is (id, epoch, first sequence)."""
    options = BatchOptions(codec=codec)
    if producer is not None:
        options.producer_id, options.producer_epoch, options.base_sequence = producer
    builder = BatchBuilder(options)
    for number, (key, value) in enumerate(pairs):
        builder.append(value, key=key, timestamp=time + number)
    return builder.build()


def write(log: Log, batches: Iterable[Sequence[Pair]], *, roll: bool = True) -> None:
    """One segment with these batches, sealed and checkpointed."""
    for pairs in batches:
        append(log, keyed(pairs))
    if roll:
        seal(log)


def seal(log: Log) -> None:
    log.roll(NOW_MS)
    sync(log, checkpoint=True)


def clean_job(
    log: Log,
    *,
    cleaned_to: int = 0,
    now_ms: int = NOW_MS,
    keys: int = 1000,
    delete_retention_ms: int = 1000,
    segment_bytes: int = 1 << 30,
    index_bytes_max: int = 1 << 20,
) -> CleanJob:
    segments = log.summaries()
    limits = CleanLimits(log.end_offset, segments[-1].base_offset, None, 0)
    found = cleanable(segments, log.start_offset, cleaned_to, limits, now_ms)
    return CleanJob(
        files=log.files,
        directory=log.directory,
        segments=found.segments,
        first_dirty=found.first_dirty,
        now_ms=now_ms,
        delete_retention_ms=delete_retention_ms,
        producers={p.producer_id: p.batches[-1].last_offset for p in log.producers.copy()},
        memory_bytes=(keys + 1) * SLOT_BYTES,
        load_factor=1.0,
        io_bytes=64 * 1024,
        segment_bytes=segment_bytes,
        index_interval_bytes=log.settings.index_interval_bytes,
        index_bytes_max=index_bytes_max,
    )


class Round(NamedTuple):
    segments: list[CleanedSegment]
    end_offset: int
    complete: bool
    keys: int


def run_round(job: CleanJob) -> Round:
    """All of it rewritten, nothing exchanged."""
    cleaning = CleanRound(job)
    learned = cleaning.learn()
    segments = list(iter(cleaning.rewrite_next, None))
    return Round(segments, learned.end_offset, learned.complete, learned.keys)


def swap_all(log: Log, result: Round) -> None:
    for cleaned in result.segments:
        if cleaned.changed:
            swap = prepare_swap(log, cleaned, log.active.base_offset)
            assert swap is not None
            swap.run()
            swap.finish().unlink()


def compact(log: Log, **options: int) -> Round:
    result = run_round(clean_job(log, **options))
    swap_all(log, result)
    return result


def records(log: Log, offset: int | None = None) -> list[Record]:
    """Everything a consumer sees from `offset` (the log's start) on, fetched batch by batch."""
    at = log.start_offset if offset is None else offset
    found: list[Record] = []
    while at < log.end_offset:
        more, at = next_records(log, at)
        found += more
    return found


def next_records(log: Log, at: int) -> tuple[list[Record], int]:
    """What one fetch at an offset shows, of one batch, and where the next one goes on."""
    data = read(log, at, size_max=1)
    if not data:
        return [], log.end_offset
    header = check_batch(memoryview(data))
    assert header.next_offset > at
    return list(read_all(memoryview(data), from_offset=at)), header.next_offset


def contents(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in records(log)]
