"""Copying many stretches of one buffer into an Arrow column, in C.

The buffer is described to Arrow as a binary array of alternating gaps and wanted values, without a copy;
`take` of every second entry then copies the values, and only them, into a column of their own.
"""

import numpy as np
import pyarrow as pa

from penstock.records.columns.varints import Longs

# Arrow's binary arrays have 32-bit offsets.
COLUMN_BYTES_MAX = 2**31 - 1


def gather(buffer: pa.Buffer, starts: Longs, lengths: Longs) -> pa.BinaryArray:
    """`buffer[start : start + length]` for rising, disjoint stretches; a negative length is null."""
    count = len(starts)
    null = lengths < 0
    some_null = bool(null.any())
    if some_null and null.all():
        return pa.nulls(count, pa.binary())
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0] = 0
    offsets[1::2] = starts
    np.add(starts, np.maximum(lengths, 0) if some_null else lengths, out=offsets[2::2], casting="unsafe")
    alternating = pa.BinaryArray.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(offsets), buffer])
    wanted = np.arange(1, 2 * count, 2, dtype=np.int32)
    return alternating.take(pa.array(wanted, mask=null if some_null else None))
