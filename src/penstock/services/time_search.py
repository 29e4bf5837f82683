"""Looking for a time in a log: made on the loop, run in a thread, bounded by what was committed when it was made."""

from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.records.lookup import TimestampedOffset, first_at_or_after, max_timestamp_record
from penstock.records.reader import read_records
from penstock.storage.checkpoint import LogEnd
from penstock.storage.index import SegmentIndex
from penstock.storage.log import Log
from penstock.storage.segment import NO_TIMESTAMP, Segment


class TimeSearch:
    def __init__(self, log: Log, committed: LogEnd) -> None:
        self._start = log.start_offset
        # (segment, the byte its committed part ends at), of what may hold a record that readers see.
        self._parts: list[tuple[Segment, int]] = []
        followers = [*log.segments[1:], None]
        for segment, follower in zip(log.segments, followers, strict=True):
            if segment.base_offset > committed.segment:
                break
            if follower is None or follower.base_offset > self._start:
                last = segment.base_offset == committed.segment
                self._parts.append((segment, committed.position if last else segment.size))

    def first_at_or_after(self, timestamp: int) -> TimestampedOffset | None:
        """The first record, in offset order, whose time is not below `timestamp`."""
        for segment, end in self._parts:
            if _is_before(segment, timestamp):
                continue
            with _index_of(segment) as index:
                begin = index.before_timestamp(timestamp)
            for position, header in segment.walk(begin, end, wait=True):
                if header.max_timestamp >= timestamp and header.last_offset >= self._start:
                    batch = segment.read_batch(position)
                    found = first_at_or_after(batch, timestamp, from_offset=self._start)
                    if found is not None:
                        return found
        return None

    def latest(self) -> TimestampedOffset | None:
        """The first of the records with the largest time."""
        best: TimestampedOffset | None = None
        for segment, end in self._parts:
            if best is not None and _is_before(segment, best.timestamp + 1):
                continue
            for found in self._latest_in(segment, end):
                if best is None or found.timestamp > best.timestamp:
                    best = found
        return best

    def _latest_in(self, segment: Segment, end: int) -> Iterator[TimestampedOffset]:
        """The latest of a segment; and of the batch that the log's start cut, whose header no longer tells."""
        with _index_of(segment) as index:
            holds_start = segment.base_offset < self._start
            begin = index.floor(self._start)[1] if holds_start else _before_largest(index, end)
        largest: tuple[int, int] | None = None  # (timestamp, position)
        for position, header in segment.walk(begin, end, wait=True):
            if header.base_offset < self._start:
                if header.last_offset >= self._start:
                    yield from _latest_from(segment.read_batch(position), self._start)
            elif largest is None or header.max_timestamp > largest[0]:
                largest = header.max_timestamp, position
                if header.max_timestamp >= segment.max_timestamp:
                    break
        if largest is not None:
            found = max_timestamp_record(segment.read_batch(largest[1]))
            if found is not None:
                yield found


def _latest_from(batch: bytes, offset: int) -> Iterator[TimestampedOffset]:
    left = [record for record in read_records(batch) if record.offset >= offset]
    if left:
        latest = max(left, key=lambda record: record.timestamp)
        yield TimestampedOffset(latest.offset, latest.timestamp)


@contextmanager
def _index_of(segment: Segment) -> Iterator[SegmentIndex]:
    """The segment's index, read for the occasion where it is not in memory."""
    loaded = segment.index is None
    if loaded:
        segment.load_index()
    index = segment.index
    assert index is not None
    yield index
    if loaded:
        segment.drop_index()


def _is_before(segment: Segment, timestamp: int) -> bool:
    """Whether every record is older. A segment sealed by an earlier process has to be asked first."""
    if segment.index is None and segment.max_timestamp == NO_TIMESTAMP:
        with _index_of(segment):
            pass
    return segment.max_timestamp < timestamp


def _before_largest(index: SegmentIndex, end: int) -> int:
    """A position behind which the largest time below `end` first appears: entries carry the largest so far."""
    at = bisect_left(index.positions, end) - 1
    return index.before_timestamp(index.timestamps[at]) if at >= 0 else 0
