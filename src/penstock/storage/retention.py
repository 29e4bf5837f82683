"""Which segments a log may give up: a pure function over their summaries, as Apache Kafka decides it.

Whole segments, from the oldest on, and only below the high watermark. A segment goes when all of it lies below the
log's start (DeleteRecords), when the log without it still is as large as `retention.bytes`, or when its newest
record is older than `retention.ms`. Each rule stops at the first segment it keeps.
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
    # Each rule looks at what the one before has left.
    if limits.retention_bytes >= 0:
        excess = sum(s.size_bytes for s in segments[count:]) - limits.retention_bytes
        while count < committed and segments[count].size_bytes <= excess:
            excess -= segments[count].size_bytes
            count += 1
    if limits.retention_ms >= 0:
        oldest_ms = now_ms - limits.retention_ms
        count += _leading(segments[count:committed], lambda _, s: _is_older(s, oldest_ms))
    return count


def _is_older(segment: SegmentSummary, oldest_ms: int) -> bool:
    # Without a timestamp there is no age to go by.
    return segment.max_timestamp is not None and 0 <= segment.max_timestamp < oldest_ms


def _leading(segments: Sequence[SegmentSummary], goes: Callable[[int, SegmentSummary], bool]) -> int:
    count = 0
    while count < len(segments) and goes(count, segments[count]):
        count += 1
    return count
