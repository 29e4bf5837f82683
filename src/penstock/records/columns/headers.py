"""Record headers as one Arrow column: list<struct<key: string, value: binary>>.

    header count varint | { key length varint, key | value length varint, value }…

All records walk their n-th header together, so the passes are as many as the longest list of headers, not
as many as there are headers. The few records that have more than the rest are finished one by one.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.core.varints import VarintError, read_varint
from penstock.records.columns.gather import gather
from penstock.records.columns.varints import Bytes, LaneError, Longs, read_varints, refuse

HEADER_TYPE = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS_TYPE = pa.list_(HEADER_TYPE)

# Fewer lanes than this are quicker in plain Python: a numpy pass costs as much as some twenty headers.
_LANES_MIN = 16


class _Slots(NamedTuple):
    """Where each header's key and value lie, by header."""

    key_start: Longs
    key_length: Longs
    value_start: Longs
    value_length: Longs


def read_headers(data: Bytes, buffer: pa.Buffer, at: Longs, counts: Longs, ends: Longs) -> pa.ListArray:
    """The headers column of records whose `counts` headers lie in `data[at:ends]`."""
    # Two bytes at least for each: checked before anything is allocated by these counts.
    wrong = (counts < 0) | (counts > (ends - at) // 2)
    if wrong.any():
        lane = int(wrong.argmax())
        raise LaneError(lane, f"{counts[lane]} headers in {ends[lane] - at[lane]} bytes")
    if not counts.any():
        return pa.nulls(len(counts), HEADERS_TYPE)
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    total = int(offsets[-1])
    slots = _Slots(*(np.empty(total, np.int64) for _ in range(4)))
    at = at.copy()
    _walk(data, slots, at, counts, offsets[:-1])
    short = at != ends
    if short.any():
        lane = int(short.argmax())
        raise LaneError(lane, f"its headers end {at[lane] - ends[lane]:+d} bytes from its length")
    keys = _text(gather(buffer, slots.key_start, slots.key_length))
    values = gather(buffer, slots.value_start, slots.value_length)
    entries = pa.StructArray.from_arrays([keys, values], fields=list(HEADER_TYPE))
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), entries, mask=pa.array(counts == 0))


def _walk(data: Bytes, slots: _Slots, at: Longs, counts: Longs, first_slot: Longs) -> None:
    """Fill the slots, and move `at` behind each record's headers."""
    lanes = np.flatnonzero(counts)
    index = 0
    while lanes.size >= _LANES_MIN:
        slot = first_slot[lanes] + index
        try:
            length, position = read_varints(data, at[lanes])
            refuse(length < 0, "a header without a key")
            slots.key_start[slot], slots.key_length[slot] = position, length
            length, position = read_varints(data, position + length)
        except LaneError as error:
            raise LaneError(int(lanes[error.lane]), str(error)) from None
        slots.value_start[slot], slots.value_length[slot] = position, length
        at[lanes] = position + np.maximum(length, 0)
        index += 1
        lanes = lanes[counts[lanes] > index]
    view = data.data
    for lane in lanes.tolist():
        _finish(
            view, slots, at, lane, range(int(first_slot[lane]) + index, int(first_slot[lane] + counts[lane]))
        )


def _finish(view: memoryview, slots: _Slots, at: Longs, lane: int, rest: range) -> None:
    position = int(at[lane])
    try:
        for slot in rest:
            length, position = read_varint(view, position)
            if length < 0:
                raise LaneError(lane, "a header without a key")
            slots.key_start[slot], slots.key_length[slot] = position, length
            length, position = read_varint(view, position + length)
            slots.value_start[slot], slots.value_length[slot] = position, max(length, -1)
            position += max(length, 0)
    except (VarintError, OverflowError) as error:
        raise LaneError(lane, str(error)) from None
    at[lane] = min(position, np.iinfo(np.int64).max)


def _text(keys: pa.BinaryArray) -> pa.StringArray:
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        # Not UTF-8, which the protocol asks for but no broker checks. Java's client reads it the same way.
        return pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())
