"""Which segments a log may give up: a pure function over their summaries, as Apache Kafka decides it.

Whole segments, from the oldest on, and only below the high watermark. A segment goes when all of it lies below the
log's start (DeleteRecords), when the log without it still is as large as `retention.bytes`, or when its newest
record is older than `retention.ms`. Each rule stops at the first segment it keeps.

Where an archive is required, size and age take nothing that it has not taken yet. DeleteRecords does: it is an order
for just these records, as it is to Apache Kafka, whose tiered storage does not make it wait for the upload either.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

UNLIMITED = -1


class SegmentSummary(NamedTuple):
    base_offset: int
    next_offset: int
    size_bytes: int
    max_timestamp: int | None  # None: not known yet; -1: its records carry none


class RetentionLimits(NamedTuple):
    retention_ms: int = UNLIMITED
    retention_bytes: int = UNLIMITED
    archived_offset: int | None = None  # an archive has everything below it; None: no archive is waited for


def expired_segments(
    segments: Sequence[SegmentSummary],
    limits: RetentionLimits,
    start_offset: int,
    limit_offset: int,
    now_ms: int,
) -> int:
    """How many of the oldest segments go. All of them means that the active one is to be rolled first."""
    last = len(segments) - 1
    committed = _leading(
        segments, lambda at, s: s.next_offset <= limit_offset and (at < last or s.size_bytes > 0)
    )
    count = _leading(segments[: min(committed, last)], lambda _, s: s.next_offset <= start_offset)
    allowed = committed
    if limits.archived_offset is not None:
        # No archive can take what lies below the log's start any more: waiting for it would be for ever.
        archived_offset = max(limits.archived_offset, start_offset)
        allowed = _leading(segments[:committed], lambda _, s: s.next_offset <= archived_offset)
    # Each rule looks at what the one before has left.
    if limits.retention_bytes >= 0:
        excess = sum(s.size_bytes for s in segments[count:]) - limits.retention_bytes
        while count < allowed and segments[count].size_bytes <= excess:
            excess -= segments[count].size_bytes
            count += 1
    if limits.retention_ms >= 0:
        oldest_ms = now_ms - limits.retention_ms
        count += _aged(segments[count:allowed], oldest_ms)
    return count


def held_bytes(
    segments: Sequence[SegmentSummary],
    limits: RetentionLimits,
    start_offset: int,
    limit_offset: int,
    now_ms: int,
) -> int:
    """The size of the segments that would go, were it not for the archive."""
    if limits.archived_offset is None:
        return 0
    goes = expired_segments(segments, limits, start_offset, limit_offset, now_ms)
    free = limits._replace(archived_offset=None)
    would_go = expired_segments(segments, free, start_offset, limit_offset, now_ms)
    return sum(s.size_bytes for s in segments[goes:would_go])


def _aged(segments: Sequence[SegmentSummary], oldest_ms: int) -> int:
    """An empty one (compaction left nothing, or files are gone) is as old as what lies behind it."""
    count = 0
    for at, segment in enumerate(segments):
        if segment.size_bytes:
            if not _is_older(segment, oldest_ms):
                break
            count = at + 1
    return count


def _is_older(segment: SegmentSummary, oldest_ms: int) -> bool:
    # Without a timestamp there is no age to go by.
    return segment.max_timestamp is not None and 0 <= segment.max_timestamp < oldest_ms


def _leading(segments: Sequence[SegmentSummary], goes: Callable[[int, SegmentSummary], bool]) -> int:
    count = 0
    while count < len(segments) and goes(count, segments[count]):
        count += 1
    return count
