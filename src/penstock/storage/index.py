"""The sparse index of one segment: for every few kilobytes, where a batch starts and how old it is.

An entry is (base offset of a batch, its position, largest timestamp up to and including it). The arrays in memory
are the index; the two files hold the same entries so that a restart need not scan what was already durable:

    .index      entry: base offset, relative to the segment's, u32 | position u32
    .timeindex  entry: largest timestamp so far i64 | check u64

`check` is 0, except in the last entry of each save: there it is the CRC-32C of everything up to it. A damaged index
would send readers into the middle of a batch, so one that does not match is thrown away and rebuilt from the segment.
Unlike Apache Kafka's, an entry names the *first* offset of its batch: a sequential reader asks for exactly that
offset, so it finds its place without reading the log.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from pathlib import Path

from penstock.core.crc32c import crc32c
from penstock.core.files import Files
from penstock.storage.layout import OFFSET_INDEX, TIME_INDEX

_OFFSET_ENTRY_BYTES = 8
_TIME_ENTRY_BYTES = 16
_SWAP = sys.byteorder == "little"
SUFFIXES = (OFFSET_INDEX, TIME_INDEX)


class SegmentIndex:
    __slots__ = ("base_offset", "offsets", "persisted", "positions", "timestamps")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.offsets = array("I")  # relative to the base offset
        self.positions = array("I")
        self.timestamps = array("q")
        self.persisted = 0  # how many entries the files hold

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, offset: int, position: int, timestamp_max: int) -> None:
        self.offsets.append(offset - self.base_offset)
        self.positions.append(position)
        # Last, because threads that look up a time go from here to the others.
        self.timestamps.append(timestamp_max)

    def floor(self, offset: int) -> tuple[int, int]:
        """The last entry at or before `offset`, as (its offset, position); the segment's start when none is."""
        base = self.base_offset
        at = bisect_right(self.offsets, offset - base) - 1
        return (self.offsets[at] + base, self.positions[at]) if at >= 0 else (-1, 0)

    def floor_position(self, position: int) -> int:
        """The largest indexed batch start at or below a byte position (0, the segment's start, when none is)."""
        at = bisect_right(self.positions, position) - 1
        return self.positions[at] if at >= 0 else 0

    def before_timestamp(self, timestamp: int) -> int:
        """A position from which a forward scan cannot miss the first batch at or after `timestamp`."""
        at = bisect_left(self.timestamps, timestamp) - 1
        return self.positions[at] if at >= 0 else 0

    def before_position(self, position: int) -> tuple[int, int]:
        """The last entry below a byte position, as (its position, largest timestamp up to and including it)."""
        at = bisect_left(self.positions, position) - 1
        return (self.positions[at], self.timestamps[at]) if at >= 0 else (0, -1)

    def entries_below(self, position: int) -> int:
        return bisect_left(self.positions, position)

    def offset_behind(self, position: int) -> int | None:
        """Of the first entry from a byte position on: no batch before that reaches as far. None: there is none."""
        at = self.entries_below(position)
        return self.base_offset + self.offsets[at] if at < len(self) else None

    def truncate(self, position: int) -> None:
        """Forget the entries at or behind a byte position."""
        keep = self.entries_below(position)
        del self.offsets[keep:], self.positions[keep:], self.timestamps[keep:]
        if self.persisted > keep:
            # The files still hold more: writing the last entry again cuts them, and renews its check.
            self.persisted = max(keep - 1, 0)

    def unsaved(self) -> "SegmentIndex | None":
        """A copy, when the files lack some of it: taken on the loop, written in a thread."""
        return None if self.persisted == len(self.offsets) else self.copy()

    def copy(self) -> "SegmentIndex":
        copy = SegmentIndex(self.base_offset)
        copy.offsets, copy.positions, copy.timestamps = self.offsets[:], self.positions[:], self.timestamps[:]
        copy.persisted = self.persisted
        return copy


def _offset_bytes(index: SegmentIndex) -> bytes:
    pairs = array("I", bytes(_OFFSET_ENTRY_BYTES * len(index)))
    pairs[0::2] = index.offsets
    pairs[1::2] = index.positions
    if _SWAP:
        pairs.byteswap()
    return pairs.tobytes()


def _check(offset_bytes: bytes, timestamps: "array[int]") -> int:
    return crc32c(timestamps.tobytes(), crc32c(offset_bytes))


def save(files: Files, stem: Path, index: SegmentIndex, *, durable: bool) -> None:
    """Write the entries that the files do not hold behind those they do; whatever else stood there goes."""
    offsets = _offset_bytes(index)
    times = array("q", bytes(_TIME_ENTRY_BYTES * len(index)))
    times[0::2] = index.timestamps
    times[-1] = _check(offsets, index.timestamps)
    if _SWAP:
        times.byteswap()
    for suffix, entry_bytes, data in (
        (OFFSET_INDEX, _OFFSET_ENTRY_BYTES, offsets),
        (TIME_INDEX, _TIME_ENTRY_BYTES, times.tobytes()),
    ):
        first = index.persisted * entry_bytes
        file = files.open(stem.with_name(stem.name + suffix), create=True)
        try:
            file.pwrite(memoryview(data)[first:], first)
            file.truncate(len(data))
            if durable:
                file.sync()
        finally:
            file.close()


def load(files: Files, stem: Path, base_offset: int, count: int | None = None) -> SegmentIndex | None:
    """The saved index of a segment (as of the save that made it `count` entries long), or None if it is not whole."""
    try:
        offsets = files.read(stem.with_name(stem.name + OFFSET_INDEX))
        times = files.read(stem.with_name(stem.name + TIME_INDEX))
    except FileNotFoundError:
        return None
    if count is None:
        count = len(offsets) // _OFFSET_ENTRY_BYTES
    if not count or len(offsets) < count * _OFFSET_ENTRY_BYTES or len(times) < count * _TIME_ENTRY_BYTES:
        return None
    offsets = offsets[: count * _OFFSET_ENTRY_BYTES]
    pairs, checked = array("I", offsets), array("q", times[: count * _TIME_ENTRY_BYTES])
    if _SWAP:
        pairs.byteswap()
        checked.byteswap()
    index = SegmentIndex(base_offset)
    index.offsets, index.positions, index.timestamps = pairs[0::2], pairs[1::2], checked[0::2]
    index.persisted = count
    return index if checked[-1] == _check(offsets, index.timestamps) else None
