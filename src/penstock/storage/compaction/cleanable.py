"""What of a log may be compacted, and whether it is worth it: pure functions over segment summaries.

A compacted log has a clean head, where a key occurs once, and a dirty tail. A segment may be compacted when all of it
lies below the high watermark, below what the archive must still take, and is older than `min.compaction.lag.ms`; the
first that may not ends the row. The log is due when the dirty share of it is larger than `min.cleanable.dirty.ratio`,
or when its oldest dirty record has waited for `max.compaction.lag.ms`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.storage.retention import SegmentSummary
from penstock.storage.segment import RELATIVE_OFFSET_MAX


class CleanLimits(NamedTuple):
    limit_offset: int  # nothing at or above it is committed
    limit_segment: int  # base offset of the first segment that must stay as it is for other reasons
    archived_offset: int | None  # an archive has everything below it; None: no archive is waited for
    min_lag_ms: int


class Cleanable(NamedTuple):
    segments: list[SegmentSummary]  # all that may be rewritten, from the log's first on
    first_dirty: int
    clean_bytes: int
    dirty_bytes: int

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    @property
    def end_offset(self) -> int:
        return self.segments[-1].next_offset if self.segments else self.first_dirty

    def dirty_segments(self) -> list[SegmentSummary]:
        return [segment for segment in self.segments if segment.next_offset > self.first_dirty]


def cleanable(
    segments: Sequence[SegmentSummary], start_offset: int, cleaned_to: int, limits: CleanLimits, now_ms: int
) -> Cleanable:
    """`segments` are all of the log, the active one last; `cleaned_to` is what the last compaction reached."""
    active = segments[-1].base_offset
    # Beyond these it tells of a log that is no more: one that was cut back, or whose beginning was deleted.
    first_dirty = cleaned_to if start_offset <= cleaned_to <= active else start_offset
    end = min(limits.limit_segment, active)
    offset_max = limits.limit_offset
    if limits.archived_offset is not None:
        offset_max = min(offset_max, limits.archived_offset)
    free: list[SegmentSummary] = []
    for segment in segments:
        if segment.base_offset >= end or segment.next_offset > offset_max:
            break
        if (
            limits.min_lag_ms > 0
            and segment.next_offset > first_dirty
            and _is_young(segment, now_ms, limits.min_lag_ms)
        ):
            break
        free.append(segment)
    dirty = sum(summary.size_bytes for summary in free if summary.next_offset > first_dirty)
    return Cleanable(free, first_dirty, sum(summary.size_bytes for summary in free) - dirty, dirty)


def _is_young(segment: SegmentSummary, now_ms: int, min_lag_ms: int) -> bool:
    return segment.max_timestamp is None or segment.max_timestamp > now_ms - min_lag_ms


def is_due(found: Cleanable, ratio_min: float, waited_ms: int, max_lag_ms: int) -> bool:
    """`waited_ms` is the age of the oldest dirty segment's first batch."""
    if not found.dirty_bytes:
        return False
    return found.dirty_ratio > ratio_min or waited_ms > max_lag_ms


class SizedSegment(NamedTuple):
    base_offset: int
    next_offset: int
    size_bytes: int
    index_bytes: int


def group_segments(
    segments: Sequence[SizedSegment], segment_bytes: int, index_bytes_max: int
) -> list[list[SizedSegment]]:
    """Neighbours that become one segment: as many as fit by size, by index and by the reach of its offsets."""
    groups: list[list[SizedSegment]] = []
    for segment in segments:
        group = groups[-1] if groups else []
        if (
            group
            and sum(each.size_bytes for each in group) + segment.size_bytes <= segment_bytes
            and sum(each.index_bytes for each in group) + segment.index_bytes <= index_bytes_max
            and segment.next_offset - 1 - group[0].base_offset <= RELATIVE_OFFSET_MAX
        ):
            group.append(segment)
        else:
            groups.append([segment])
    return groups
