"""Arrow columns to record batches: sizes first, then all varints of many records, then one join.

    rows ── upper bound of each record's bytes ── cut into batches ── groups of batches
        ── numpy: the numbers of each record, written as varints into one binary column
        ── Arrow: that column, keys, values and headers joined row by row: the records, back to back
        ── per batch: compress, header, CRC

Offset and timestamp deltas count from their batch, so a record's size depends on where the batch
began; the cut is made with the longest a delta can be, and a batch comes out some bytes below the limit.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.records.batch import (
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    Buffer,
    stamp_crc,
)
from penstock.records.columns.arrow import binary_column, lengths_of, numbers_column
from penstock.records.columns.headers_encode import HeaderBlocks, header_blocks
from penstock.records.columns.partitioner import partition_of
from penstock.records.columns.varints import Longs, varint_sizes, zigzag
from penstock.records.compression import Codec, compress

__all__ = ["BATCH_BYTES_DEFAULT", "encode", "partition_of"]

# Below the 1,048,588 bytes that brokers take by default.
BATCH_BYTES_DEFAULT = 1_000_000
# Batches encoded in one go. Small enough for the processor's caches, large enough that thousands of rows
# share the cost of each call.
_GROUP_BYTES = 4 * 1024 * 1024
_RECORD_BYTES_MAX = 2**31 - 1 - HEADER_BYTES
_INT64_MAX = 2**63 - 1


class _Rows(NamedTuple):
    key: pa.BinaryArray
    value: pa.BinaryArray
    key_length: Longs
    value_length: Longs
    timestamp: Longs
    headers: HeaderBlocks | None

    def part(self, start: int, stop: int) -> "_Rows":
        return _Rows(
            self.key[start:stop],
            self.value[start:stop],
            self.key_length[start:stop],
            self.value_length[start:stop],
            self.timestamp[start:stop],
            None if self.headers is None else self.headers.part(start, stop),
        )


def encode(
    key: pa.Array | pa.ChunkedArray | None,
    value: pa.Array | pa.ChunkedArray | None,
    *,
    timestamp: pa.Array | pa.ChunkedArray | None = None,
    headers: pa.Array | pa.ChunkedArray | None = None,
    compression: str = "none",
    level: int | None = None,
    batch_bytes_max: int = BATCH_BYTES_DEFAULT,
    timestamp_default: int = NO_TIMESTAMP,
) -> Iterator[bytearray]:
    """The rows, all for one partition and in order, as whole batches that a producer can stamp and send.

    `timestamp` is int64 milliseconds; rows without one get `timestamp_default`. `headers` is
    list<struct<key, value>>. `batch_bytes_max` counts before compression; a single record larger
    than it is a batch of its own, for the broker to judge. Wrong columns are ValueError or TypeError.
    """
    codec = _codec(compression)
    rows = _rows(key, value, timestamp, headers, timestamp_default)
    if not len(rows.timestamp):
        return
    if batch_bytes_max <= HEADER_BYTES:
        raise ValueError(f"a batch needs more than {HEADER_BYTES} bytes, not {batch_bytes_max}")
    bounds, sizes = _cut(rows, batch_bytes_max - HEADER_BYTES)
    for group in _groups(bounds, sizes):
        start, stop = int(group[0]), int(group[-1])
        yield from _encode_group(rows.part(start, stop), group - start, codec, level)


def _codec(name: str) -> Codec:
    try:
        return Codec[name.upper()]
    except KeyError:
        known = ", ".join(codec.name.lower() for codec in Codec)
        raise ValueError(f"no compression {name!r}; there are {known}") from None


def _rows(key: Any, value: Any, timestamp: Any, headers: Any, timestamp_default: int) -> _Rows:
    given = [column for column in (key, value, timestamp, headers) if column is not None]
    count = len(given[0]) if given else 0
    if any(len(column) != count for column in given):
        raise ValueError(f"columns of unequal length: {[len(column) for column in given]}")
    keys, values = (pa.nulls(count, pa.binary()) if c is None else binary_column(c) for c in (key, value))
    if timestamp is None:
        times = np.full(count, timestamp_default, np.int64)
    else:
        if timestamp.type != pa.int64():
            raise TypeError(f"timestamps are int64 milliseconds, not {timestamp.type}")
        times = timestamp.fill_null(timestamp_default).to_numpy()
    blocks = None if headers is None else header_blocks(headers)
    return _Rows(keys, values, lengths_of(keys), lengths_of(values), times, blocks)


def _cut(rows: _Rows, payload_bytes_max: int) -> tuple[Longs, Longs]:
    """The first row of each batch, and the end; and the most bytes that the rows up to each end take."""
    spread = int(rows.timestamp.max()) - int(rows.timestamp.min())
    if spread > _INT64_MAX:
        raise ValueError("timestamps lie too far apart for one write")
    count = len(rows.timestamp)
    longest_deltas = varint_sizes(zigzag(np.array([-spread, count], np.int64)))
    bodies = _body_sizes(rows) + int(longest_deltas.sum())
    longest = int(bodies.max())
    if longest > _RECORD_BYTES_MAX:
        raise ValueError(f"row {int(bodies.argmax())} takes {longest} bytes, more than a batch can hold")
    ends = np.cumsum(bodies + int(varint_sizes(zigzag(np.array([longest], np.int64)))[0]))
    bounds = [0]
    taken = 0
    while bounds[-1] < count:
        stop = max(int(np.searchsorted(ends, taken + payload_bytes_max, side="right")), bounds[-1] + 1)
        taken = int(ends[stop - 1])
        bounds.append(stop)
    return np.array(bounds), np.concatenate([[0], ends[np.array(bounds[1:]) - 1]])


def _groups(bounds: Longs, ends: Longs) -> Iterator[Longs]:
    """Neighbouring batches that are encoded together: their bounds."""
    first = 0
    while first < len(bounds) - 1:
        last = int(np.searchsorted(ends, ends[first] + _GROUP_BYTES, side="right")) - 1
        last = max(last, first + 1)
        yield bounds[first : last + 1]
        first = last


def _encode_group(rows: _Rows, bounds: Longs, codec: Codec, level: int | None) -> Iterator[bytearray]:
    counts = np.diff(bounds)
    base_timestamps = rows.timestamp[bounds[:-1]]
    max_timestamps = np.maximum(np.maximum.reduceat(rows.timestamp, bounds[:-1]), NO_TIMESTAMP)
    offset_delta = np.arange(bounds[-1]) - np.repeat(bounds[:-1], counts)
    joined = _join(rows, rows.timestamp - np.repeat(base_timestamps, counts), offset_delta)
    ends = np.frombuffer(joined.buffers()[1], np.int32)[bounds]
    payload = memoryview(joined.buffers()[2])
    for index, count in enumerate(counts.tolist()):
        yield _batch(
            _compressed(codec, payload[ends[index] : ends[index + 1]], level),
            codec,
            count,
            int(base_timestamps[index]),
            int(max_timestamps[index]),
        )


def _compressed(codec: Codec, payload: memoryview, level: int | None) -> Buffer:
    return payload if codec == Codec.NONE else compress(codec, payload, level)


def _body_sizes(rows: _Rows) -> Longs:
    """What a record takes beyond its length and its two deltas."""
    sizes = 1 + np.maximum(rows.key_length, 0) + np.maximum(rows.value_length, 0)
    sizes += varint_sizes(zigzag(rows.key_length)) + varint_sizes(zigzag(rows.value_length))
    if rows.headers is None:
        return sizes + 1
    return sizes + rows.headers.sizes + varint_sizes(zigzag(rows.headers.counts))


def _join(rows: _Rows, timestamp_delta: Longs, offset_delta: Longs) -> pa.BinaryArray:
    """The records, one per row."""
    deltas = [zigzag(timestamp_delta), zigzag(offset_delta)]
    length = _body_sizes(rows) + varint_sizes(deltas[0]) + varint_sizes(deltas[1])
    # The attributes byte is 0, as is the varint of 0.
    attributes = np.zeros(len(length), np.uint64)
    head = [zigzag(length), attributes, *deltas, zigzag(rows.key_length)]
    if rows.key.null_count == len(rows.key):
        # One piece less to join for topics without keys.
        pieces = [numbers_column(*head, zigzag(rows.value_length)), rows.value]
    else:
        value_length = numbers_column(zigzag(rows.value_length))
        pieces = [numbers_column(*head), rows.key, value_length, rows.value]
    if rows.headers is None:
        pieces.append(pa.scalar(b"\x00"))
    else:
        pieces += [numbers_column(zigzag(rows.headers.counts)), rows.headers.blocks]
    return pc.binary_join_element_wise(*pieces, pa.scalar(b""), null_handling="replace", null_replacement=b"")


def _batch(payload: Buffer, codec: Codec, count: int, base_timestamp: int, max_timestamp: int) -> bytearray:
    size_bytes = HEADER_BYTES + len(payload)
    header = HEADER.pack(
        0,
        size_bytes - LOG_OVERHEAD_BYTES,
        NO_LEADER_EPOCH,
        MAGIC,
        0,
        codec,
        count - 1,
        base_timestamp,
        max_timestamp,
        NO_PRODUCER_ID,
        NO_PRODUCER_EPOCH,
        NO_SEQUENCE,
        count,
    )
    # Joined rather than filled in: a new bytearray of a given size is zeroed first, which costs half as much again.
    out = bytearray().join((header, payload))
    with memoryview(out) as view:
        stamp_crc(view, 0, size_bytes)
    return out
