"""Where each record starts: the one step that depends on the step before it, and so is left to Python.

A record's length is the only thing looked at here; the vectorised decoding that follows checks every
length again, so this walk may be careless about signs and ends as long as it terminates and never
leaves the buffer.
"""

from collections.abc import Sequence

import numpy as np

from penstock.core.varints import VarintError, read_varint
from penstock.records.columns_batches import Batch, CorruptBatchError
from penstock.records.columns_varints import Longs

# What the first byte of a two-byte length adds to the position (itself and its successor included), and
# what the second adds. Halved, because zigzag doubles what is not negative.
_FIRST = tuple((byte & 0x7F) // 2 + 2 for byte in range(256))
_SECOND = tuple((byte & 0x7F) << 6 for byte in range(256))


def record_starts(data: memoryview, batches: Sequence[Batch]) -> Longs:
    """The position of every record of all `batches` in `data`, in order."""
    starts: list[int] = []
    append = starts.append
    for header, position, end in batches:
        try:
            for _ in range(header.record_count):
                append(position)
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
        except (IndexError, VarintError):
            raise CorruptBatchError(header.base_offset, "a record runs past its end") from None
        if position != end:
            raise CorruptBatchError(
                header.base_offset, f"its records end {position - end:+d} bytes from its end"
            )
    return np.fromiter(starts, np.int64, len(starts))
