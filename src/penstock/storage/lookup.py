"""Finding records by time over a whole log, as ListOffsets asks: jobs for threads, since they read from the disk."""

from penstock.records.compression import WHOLE, OpeningLimit
from penstock.records.lookup import TimestampedOffset, first_at_or_after, max_timestamp_record
from penstock.records.reader import read_records
from penstock.storage.checkpoint import LogEnd
from penstock.storage.index import SegmentIndex
from penstock.storage.segment import NO_TIMESTAMP, Segment


class TimeLookup:
    """Looks at the segments as they were when it was made, from the log's start up to `limit`."""

    __slots__ = ("_limit", "_segments", "_start_offset")

    def __init__(self, segments: list[Segment], start_offset: int, limit: LogEnd) -> None:
        self._segments = [segment for segment in segments if segment.base_offset <= limit.segment]
        self._start_offset = start_offset
        self._limit = limit

    def first_at_or_after(self, timestamp: int, limit: OpeningLimit = WHOLE) -> TimestampedOffset | None:
        """The first record, in offset order, whose timestamp is not below `timestamp`. Blocks."""
        for segment in self._segments:
            segment.load_times()
            if segment.max_timestamp < timestamp:
                continue
            position = _index_of(segment).before_timestamp(timestamp)
            for at, header in segment.walk(position, self._end_of(segment), wait=True):
                if header.max_timestamp < timestamp or header.last_offset < self._start_offset:
                    continue
                batch = segment.read_batch(at)
                found = first_at_or_after(batch, timestamp, from_offset=self._start_offset, limit=limit)
                if found is not None:
                    return found
        return None

    def latest(self, limit: OpeningLimit = WHOLE) -> TimestampedOffset | None:
        """The first record that carries the largest timestamp. Blocks."""
        best, best_segment = NO_TIMESTAMP, None
        for segment in self._segments:
            timestamp = self._max_timestamp(segment)
            if timestamp > best:
                best, best_segment = timestamp, segment
        found = None if best_segment is None else self._first_with(best, best_segment, limit)
        cut = self._latest_of_cut_batch(limit)
        if cut is not None and (found is None or cut.timestamp >= found.timestamp):
            return cut
        return found

    def _first_with(self, timestamp: int, segment: Segment, limit: OpeningLimit) -> TimestampedOffset | None:
        position = _index_of(segment).before_timestamp(timestamp)
        for at, header in segment.walk(position, self._end_of(segment), wait=True):
            if header.max_timestamp == timestamp and header.base_offset >= self._start_offset:
                return max_timestamp_record(segment.read_batch(at), limit=limit)
        return None

    def _latest_of_cut_batch(self, limit: OpeningLimit) -> TimestampedOffset | None:
        """Of the batch that the log's start cuts in two: its header still speaks of records that are gone."""
        start = self._start_offset
        for segment in reversed(self._segments):
            if segment.base_offset >= start:
                continue
            for at, header in segment.walk(
                _index_of(segment).floor(start)[1], self._end_of(segment), wait=True
            ):
                if header.base_offset >= start:
                    break
                if header.last_offset >= start:
                    limit.check_count(header.record_count)
                    records = read_records(segment.read_batch(at), limit_bytes=limit.size_bytes)
                    left = [record for record in records if record.offset >= start]
                    latest = max(left, key=lambda record: record.timestamp, default=None)
                    return None if latest is None else TimestampedOffset(latest.offset, latest.timestamp)
            break
        return None

    def _end_of(self, segment: Segment) -> int:
        return self._limit.position if segment.base_offset == self._limit.segment else segment.size

    def _max_timestamp(self, segment: Segment) -> int:
        """The largest timestamp of the batches of a segment that may be seen whole."""
        end = self._end_of(segment)
        if segment.base_offset < self._start_offset:
            headers = (header for _, header in segment.walk(0, end, wait=True))
            times = (h.max_timestamp for h in headers if h.base_offset >= self._start_offset)
            return max(times, default=NO_TIMESTAMP)
        segment.load_times()
        if end == segment.size:
            return segment.max_timestamp
        position, timestamp = _index_of(segment).before_position(end)
        for _, header in segment.walk(position, end, wait=True):
            timestamp = max(timestamp, header.max_timestamp)
        return timestamp


def _index_of(segment: Segment) -> SegmentIndex:
    """The index in memory, or one of its own for this job: the loop decides which ones to keep."""
    index = segment.index  # once: the loop may drop it meanwhile
    return segment.index_up_to(segment.size)[0] if index is None else index
