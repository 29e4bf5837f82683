"""The segments of one log in their order: finding the one that holds an offset, and which indexes stay in memory."""

from bisect import bisect_left, bisect_right

from penstock.storage.aborted_transactions import AbortedTransaction, AbortedTransactions
from penstock.storage.checkpoint import Checkpoint, LogEnd
from penstock.storage.open_transactions import rebuilt_aborted
from penstock.storage.retention import SegmentSummary
from penstock.storage.segment import Segment, Slice

# Sealed segments whose index a log keeps in memory: readers far behind are few, and sit in one place each.
_SEALED_INDEXES_KEPT = 4


class SegmentRow:
    """All but the last, `active`, are sealed."""

    __slots__ = ("_bases", "_recent", "_sealed_bytes", "aborted", "active", "merged", "segments")

    def __init__(self, segments: list[Segment], aborted: AbortedTransactions) -> None:
        self.aborted = aborted
        self._recent: list[Segment] = []  # sealed ones whose index is kept, the last used at the end
        # From where to where one took the place of others since the last checkpoint.
        self.merged: list[tuple[int, int]] = []
        self.replace(segments)

    def replace(self, segments: list[Segment]) -> None:
        self.segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        self._sealed_bytes = sum(segment.size for segment in segments[:-1])
        self._recent = [segment for segment in self._recent if segment in segments[:-1]]

    @property
    def size_bytes(self) -> int:
        return self._sealed_bytes + self.active.size

    def add(self, segment: Segment) -> None:
        """The next one to be written to; the one before is sealed, or goes when it is empty."""
        sealed = self.active
        if not sealed.size:
            self.replace([*self.segments[:-1], segment])
            return
        self.segments.append(segment)
        self._bases.append(segment.base_offset)
        self._sealed_bytes += sealed.size
        self.active = segment
        self._remember(sealed)

    def remove_first(self, count: int) -> list[Segment]:
        """Take out the oldest `count` sealed ones."""
        count = min(count, len(self.segments) - 1)
        removed = self.segments[:count]
        del self.segments[:count], self._bases[:count]
        self._sealed_bytes -= sum(segment.size for segment in removed)
        self._recent = [segment for segment in self._recent if segment not in removed]
        self.aborted.keep_from(self._bases[0])
        return removed

    def between(self, base_offset: int, end_offset: int) -> list[Segment]:
        """The sealed segments that begin from `base_offset` on and end by `end_offset`; none unless they fill it."""
        first, behind = bisect_left(self._bases, base_offset), bisect_left(self._bases, end_offset)
        fills = behind < len(self._bases) and self._bases[behind] == end_offset and first < behind
        return self.segments[first:behind] if fills and self._bases[first] == base_offset else []

    def exchange(self, old: list[Segment], new: Segment, end_offset: int) -> None:
        """One that was compacted takes the place of neighbours, up to `end_offset`."""
        # Of aborted transactions it has no records, nor have those before it: rounds go from the oldest on.
        self.aborted.drop(segment.base_offset for segment in old)
        self.merged.append((new.base_offset, end_offset))
        at = self.segments.index(old[0])
        self.replace([*self.segments[:at], new, *self.segments[at + len(old) :]])

    def count_before(self, base_offset: int) -> int:
        return bisect_left(self._bases, base_offset)

    def summaries(self, end_offset: int) -> list[SegmentSummary]:
        next_offsets = [*self._bases[1:], end_offset]
        return [
            SegmentSummary(s.base_offset, next_offset, s.size, s.max_timestamp if s.times_known else None)
            for s, next_offset in zip(self.segments, next_offsets, strict=True)
        ]

    def read(self, offset: int, size_max: int, limit: LogEnd, *, at_least_one: bool) -> Slice | None:
        at = bisect_right(self._bases, offset) - 1
        if at < 0:
            at = 0
        while at < len(self.segments):
            segment = self.segments[at]
            if segment.base_offset > limit.segment:
                return None
            is_last = segment.base_offset == limit.segment
            end = limit.position if is_last else segment.size
            if not end:  # compaction left nothing of it, as of any number of its neighbours
                at += 1
                continue
            if segment is not self.active:
                self._remember(segment)
            # In a gap, the first batch behind it: no index is needed, so a row of segments cannot make each other's
            # indexes leave memory.
            position = 0 if offset <= segment.base_offset else segment.locate(offset, end)
            if position is not None:
                found = segment.slice_from(position, end, size_max, at_least_one=at_least_one)
                if is_last and found is not None and position + found.size == end:
                    segment.remember_end(limit.offset, end)
                return found
            at += 1
        return None

    def aborted_in(self, offset: int, found: Slice, limit: LogEnd) -> list[tuple[int, int]]:
        """(Producer, first offset) of aborted transactions with records in what `read` found at `offset`.

        Perhaps also of some behind it. ColdRead: some are in a file.
        """
        end, at = limit.offset, max(bisect_right(self._bases, offset) - 1, 0)
        for number, segment in enumerate(self.segments[at:], at):
            if segment.handle is found.file:
                behind = (
                    None
                    if segment.index is None
                    else segment.index.offset_behind(found.position + found.size)
                )
                following = self._bases[number + 1] if number + 1 < len(self._bases) else end
                end = min(end, following if behind is None else behind)
                break
        return self.aborted.between(offset, end, self.rebuild_aborted)

    def rebuild_aborted(self, base: int) -> list[AbortedTransaction]:
        """Those of a segment whose file is damaged. Blocks."""
        return rebuilt_aborted(list(self.segments), base)

    def _remember(self, segment: Segment) -> None:
        recent = self._recent
        if recent and recent[-1] is segment:
            return
        if segment in recent:
            recent.remove(segment)
        recent.append(segment)
        if len(recent) > _SEALED_INDEXES_KEPT:
            recent.pop(0).drop_index()

    def unknown_times(self) -> list[Segment]:
        """Segments whose age is not in memory: call `load_times` of each in a thread before they may expire."""
        return [segment for segment in self.segments if not segment.times_known]

    def indexes_saved(self, checkpoint: Checkpoint) -> None:
        """What it has of them is on disk: unused ones leave memory."""
        saved = {index.base_offset: len(index) for _, index in checkpoint.unsaved}
        self.aborted.saved(checkpoint.aborted, self.active.base_offset)
        for segment in self.segments:
            entries = saved.get(segment.base_offset)
            if entries is None or segment.index is None:
                continue
            segment.index.persisted = max(segment.index.persisted, entries)
            if segment is not self.active and segment not in self._recent:
                segment.drop_index()
