"""A column of headers, list<struct<key, value>>, to the bytes that stand behind each record's value.

All headers of all rows are encoded as one binary column; the headers of a row are neighbours in it, so
its bytes are already in place, and only the offsets differ.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.records.columns.arrow import binary_column, lengths_of, numbers_column, one_array
from penstock.records.columns.varints import Longs, zigzag


class HeaderBlocks(NamedTuple):
    """Per row: how many headers, how many bytes they take, and the bytes."""

    counts: Longs
    sizes: Longs
    blocks: pa.BinaryArray

    def part(self, start: int, stop: int) -> "HeaderBlocks":
        return HeaderBlocks(self.counts[start:stop], self.sizes[start:stop], self.blocks[start:stop])


def header_blocks(headers: pa.Array | pa.ChunkedArray) -> HeaderBlocks | None:
    """None where no row has a header."""
    _check_type(headers.type)
    headers = one_array(headers)
    counts = pc.fill_null(pc.list_value_length(headers), 0).to_numpy().astype(np.int64)
    if not counts.any():
        return None
    entries = headers.flatten()
    names, values = entries.field(0), entries.field(1)
    if entries.null_count or names.null_count:
        wrong = pc.or_(entries.is_null(), names.is_null()).index(True).as_py()
        row = int(np.searchsorted(np.cumsum(counts), wrong, side="right"))
        raise ValueError(f"row {row} has a header without a key")
    names, values = binary_column(names), binary_column(values)
    encoded = pc.binary_join_element_wise(
        numbers_column(zigzag(lengths_of(names))),
        names,
        numbers_column(zigzag(lengths_of(values))),
        values,
        pa.scalar(b""),
        null_handling="replace",
        null_replacement=b"",
    )
    _, offsets, data = encoded.buffers()
    rows = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=rows[1:])
    bounds = np.frombuffer(offsets, np.int32)[rows]
    blocks = pa.BinaryArray.from_buffers(pa.binary(), len(counts), [None, pa.py_buffer(bounds), data])
    return HeaderBlocks(counts, np.diff(bounds).astype(np.int64), blocks)


def _check_type(of: pa.DataType) -> None:
    is_list = pa.types.is_list(of) or pa.types.is_large_list(of)
    if not is_list or not pa.types.is_struct(of.value_type) or of.value_type.num_fields != 2:
        raise TypeError(f"headers are list<struct<key: string, value: binary>>, not {of}")
