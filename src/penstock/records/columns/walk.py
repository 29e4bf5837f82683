"""Where each record starts: the one step that depends on the step before it, and so is left to Python.

Except where records are alike: when a few in a row have the same size, numpy looks at the places where
the next ones would start. Those that begin with the same length bytes prove each other, one after the
other, and a run of thousands is found with one comparison. It ends where a size changes, as it does
even among equal values when a delta needs one byte more.

Lengths are the only thing looked at here; the decoding that follows checks every length again, so this
walk may be careless about signs and ends as long as it terminates and never leaves the buffer.
"""

from collections.abc import Sequence

import numpy as np

from penstock.core.varints import VarintError, read_varint
from penstock.records.columns.batches import Batch, CorruptBatchError
from penstock.records.columns.varints import Bytes, Longs

# What the first byte of a two-byte length adds to the position (itself and its successor included), and
# what the second adds. Halved, because zigzag doubles what is not negative.
_FIRST = tuple((byte & 0x7F) // 2 + 2 for byte in range(256))
_SECOND = tuple((byte & 0x7F) << 6 for byte in range(256))

# Records taken one by one before the first look for a run; twice as many after each look in vain, so that
# records of all sizes pay nothing.
_STRETCH = 32
_STRETCH_MAX = 4096
# Below this many records a run saves less than the look for it costs.
_RUN_MIN = 256
# Places compared at first, and how many more when all of them matched.
_LOOK = 512
_LOOK_GROWTH = 8


def record_starts(data: memoryview, batches: Sequence[Batch]) -> Longs:
    """The position of every record of all `batches` in `data`, in order."""
    array: Bytes = np.frombuffer(data, np.uint8)
    pieces: list[Longs] = []
    loose: list[int] = []
    for header, position, end in batches:
        try:
            if header.record_count < _RUN_MIN:
                position = _walk(data, position, header.record_count, loose)
            else:
                position = _walk_runs(data, array, position, header.record_count, loose, pieces)
        except (IndexError, VarintError):
            raise CorruptBatchError(header.base_offset, "a record runs past its end") from None
        if position != end:
            raise CorruptBatchError(
                header.base_offset, f"its records end {position - end:+d} bytes from its end"
            )
    if not pieces:
        return _array(loose)
    return np.concatenate([*pieces, _array(loose)])


def _walk(data: memoryview, position: int, count: int, starts: list[int]) -> int:
    """Append the starts of `count` records, and say where the next one would be."""
    for _ in range(count):
        starts.append(position)
        first = data[position]
        if first < 0x80:
            position += (first >> 1) + 1
        else:
            second = data[position + 1]
            if second < 0x80:
                position += _FIRST[first] + _SECOND[second]
            else:
                length, position = read_varint(data, position)
                position += abs(length)
    return position


def _walk_runs(
    data: memoryview, array: Bytes, position: int, count: int, loose: list[int], pieces: list[Longs]
) -> int:
    """As `_walk`, but runs go to `pieces`, behind what was `loose` before them."""
    stretch = _STRETCH
    while count:
        step = min(stretch, count)
        position = _walk(data, position, step, loose)
        count -= step
        stretch = min(2 * stretch, _STRETCH_MAX)
        if count < _RUN_MIN or step < 3:
            continue
        size = position - loose[-1]
        if size != loose[-1] - loose[-2] or size != loose[-2] - loose[-3]:
            continue
        run = _run(array, loose[-1], size, count)
        if run:
            pieces += (_array(loose), np.arange(position, position + run * size, size))
            loose.clear()
            position += run * size
            count -= run
            stretch = _STRETCH
    return position


def _run(array: Bytes, pattern: int, size: int, count: int) -> int:
    """How many records of `size` bytes follow the one at `pattern`, as far as their lengths tell."""
    length_bytes = 1
    while array[pattern + length_bytes - 1] >= 0x80:
        length_bytes += 1
    found = 0
    look = _LOOK
    # The whole of a record's bytes must be there; what follows a wrong length is found out later.
    count = min(count, (len(array) - pattern) // size - 1)
    while found < count:
        look = min(look, count - found)
        at = pattern + (found + 1) * size
        alike = array[at : at + look * size : size] == array[pattern]
        for index in range(1, length_bytes):
            alike &= array[at + index : at + look * size : size] == array[pattern + index]
        first_other = int(alike.argmin())
        if not alike[first_other]:
            return found + first_other
        found += look
        look *= _LOOK_GROWTH
    return found


def _array(starts: list[int]) -> Longs:
    return np.fromiter(starts, np.int64, len(starts))
