"""The sparse index of one segment: for every few kilobytes, where a batch starts and how old it is.

An entry is (base offset of a batch, its position, largest timestamp up to and including it). The arrays in memory
are the index; the two files hold the same entries so that a restart need not scan what was already durable:

    .index      entry: relative base offset u32 | position u32
    .timeindex  entry: largest timestamp so far i64 | relative base offset u32

Both are rebuildable from the segment. Unlike Apache Kafka's, an entry names the *first* offset of its batch: a
sequential reader asks for exactly that offset, so it finds its place without reading the log.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from pathlib import Path

from penstock.core.files import Files
from penstock.storage.layout import OFFSET_INDEX, TIME_INDEX

_OFFSET_ENTRY = struct.Struct(">II")
_TIME_ENTRY = struct.Struct(">qI")


class SegmentIndex:
    __slots__ = ("offsets", "persisted", "positions", "timestamps")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.positions = array("q")
        self.timestamps = array("q")
        self.persisted = 0  # how many entries the files hold

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, offset: int, position: int, timestamp_max: int) -> None:
        self.offsets.append(offset)
        self.positions.append(position)
        self.timestamps.append(timestamp_max)

    def floor(self, offset: int) -> tuple[int, int]:
        """The last entry at or before `offset`, as (its offset, position); the segment's start when none is."""
        at = bisect_right(self.offsets, offset) - 1
        return (self.offsets[at], self.positions[at]) if at >= 0 else (-1, 0)

    def floor_position(self, position: int) -> int:
        """The largest indexed batch start at or below a byte position (0, the segment's start, when none is)."""
        at = bisect_right(self.positions, position) - 1
        return self.positions[at] if at >= 0 else 0

    def before_timestamp(self, timestamp: int) -> int:
        """A position from which a forward scan cannot miss the first batch at or after `timestamp`."""
        at = bisect_left(self.timestamps, timestamp) - 1
        return self.positions[at] if at >= 0 else 0

    def truncate(self, position: int) -> None:
        """Forget the entries at or behind a byte position."""
        keep = bisect_left(self.positions, position)
        del self.offsets[keep:], self.positions[keep:], self.timestamps[keep:]
        self.persisted = min(self.persisted, keep)

    def unsaved(self) -> "SegmentIndex | None":
        """A copy of the entries the files do not hold yet: taken on the loop, written in a thread."""
        if self.persisted == len(self.offsets):
            return None
        rest = SegmentIndex()
        first = rest.persisted = self.persisted
        rest.offsets = self.offsets[first:]
        rest.positions = self.positions[first:]
        rest.timestamps = self.timestamps[first:]
        return rest


def save(files: Files, stem: Path, base_offset: int, unsaved: SegmentIndex, *, durable: bool) -> None:
    """Write the unsaved entries behind those the files hold; whatever else stood there goes."""
    relative = [offset - base_offset for offset in unsaved.offsets]
    entries = b"".join(map(_OFFSET_ENTRY.pack, relative, unsaved.positions))
    times = b"".join(map(_TIME_ENTRY.pack, unsaved.timestamps, relative))
    first = unsaved.persisted
    for suffix, entry, data in ((OFFSET_INDEX, _OFFSET_ENTRY, entries), (TIME_INDEX, _TIME_ENTRY, times)):
        file = files.open(stem.with_name(stem.name + suffix), create=True)
        try:
            file.pwrite(data, first * entry.size)
            file.truncate(first * entry.size + len(data))
            if durable:
                file.sync()
        finally:
            file.close()


def load(files: Files, stem: Path, base_offset: int, count: int | None = None) -> SegmentIndex | None:
    """The saved index of a segment (its first `count` entries), or None when the files do not hold that much."""
    try:
        entries = files.read(stem.with_name(stem.name + OFFSET_INDEX))
        times = files.read(stem.with_name(stem.name + TIME_INDEX))
    except FileNotFoundError:
        return None
    if count is None:
        count = len(entries) // _OFFSET_ENTRY.size
    if len(entries) < count * _OFFSET_ENTRY.size or len(times) < count * _TIME_ENTRY.size:
        return None
    index = SegmentIndex()
    for relative, position in _OFFSET_ENTRY.iter_unpack(entries[: count * _OFFSET_ENTRY.size]):
        index.offsets.append(base_offset + relative)
        index.positions.append(position)
    index.timestamps.extend(t for t, _ in _TIME_ENTRY.iter_unpack(times[: count * _TIME_ENTRY.size]))
    index.persisted = count
    ascending = all(a < b for a, b in zip(index.positions, index.positions[1:], strict=False))
    return index if ascending else None
