"""Between Arrow columns and numpy: lengths, positions and bytes of a binary column, and columns of varints."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.records.columns.varints import Bytes, Longs, varint_sizes, write_varints

_NOTHING: Bytes = np.zeros(0, np.uint8)


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    try:
        return column.combine_chunks()
    except pa.ArrowInvalid:
        raise _too_large() from None


def binary_column(column: pa.Array | pa.ChunkedArray) -> pa.BinaryArray:
    """One 32-bit binary array, whatever the column is of: text, large or viewed binary, several chunks."""
    if not _is_bytes(column.type):
        raise TypeError(f"keys, values and headers are binary or string, not {column.type}")
    column = one_array(column)
    try:
        return column if column.type == pa.binary() else column.cast(pa.binary())
    except pa.ArrowInvalid:
        raise _too_large() from None


def lengths_of(column: pa.BinaryArray) -> Longs:
    """-1 where null."""
    lengths = np.diff(_offsets(column)).astype(np.int64)
    if column.null_count:
        lengths[column.is_null().to_numpy(zero_copy_only=False)] = -1
    return lengths


def values_of(column: pa.BinaryArray) -> tuple[Longs, Bytes]:
    """Where each value starts, and the bytes it starts in."""
    buffer = column.buffers()[2]
    data = _NOTHING if buffer is None else np.frombuffer(buffer, np.uint8)
    return _offsets(column)[:-1].astype(np.int64), data


def _offsets(column: pa.BinaryArray) -> np.ndarray:
    buffer = column.buffers()[1]
    if buffer is None or not len(column):
        return np.zeros(len(column) + 1, np.int32)
    return np.frombuffer(buffer, np.int32)[column.offset : column.offset + len(column) + 1]


def _too_large() -> ValueError:
    return ValueError("more than 2 GB in one column: write fewer rows at a time")


def _is_bytes(of: pa.DataType) -> bool:
    kinds = pa.types
    return bool(
        kinds.is_binary(of)
        or kinds.is_string(of)
        or kinds.is_large_binary(of)
        or kinds.is_large_string(of)
        or kinds.is_binary_view(of)
        or kinds.is_string_view(of)
        or kinds.is_fixed_size_binary(of)
        or kinds.is_null(of)
    )


def numbers_column(*columns: NDArray[np.uint64]) -> pa.BinaryArray:
    """The varints of each row side by side, as a binary column."""
    sizes = [varint_sizes(column) for column in columns]
    offsets = np.zeros(len(columns[0]) + 1, np.int64)
    np.cumsum(np.sum(sizes, axis=0), out=offsets[1:])
    out = np.empty(int(offsets[-1]), np.uint8)
    at = offsets[:-1].copy()
    for column, size in zip(columns, sizes, strict=True):
        write_varints(out, at, column, size)
        at += size
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(out)]
    return pa.BinaryArray.from_buffers(pa.binary(), len(columns[0]), buffers)
