"""Record batches to Arrow columns: no Python object per record, and hardly a Python step.

    Fetch answer ── batches (header, CRC, aborted, range) ── parts of uncompressed records
        ── starts: the length varints, one after the other
        ── numpy: the other varints of all records together, every length checked
        ── Arrow: keys, values and headers copied out of the part

The columns of one part are ordinary 32-bit Arrow arrays, so no column may pass 2 GB. `decode_in_parts`
never comes near; `decode` joins the parts and refuses what does not fit.

Only CorruptBatchError leaves this module on account of the bytes, whatever they are; memory stays within
a constant factor of `part_bytes_max` plus one unpacked batch.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.core.errors import PenstockError
from penstock.core.varints import VARLONG_BYTES_MAX
from penstock.records.batch import Buffer
from penstock.records.columns_batches import (
    PART_BYTES_MAX,
    Batch,
    CorruptBatchError,
    OldFormatError,
    Part,
    open_parts,
)
from penstock.records.columns_gather import COLUMN_BYTES_MAX, gather
from penstock.records.columns_headers import HEADERS_TYPE, MalformedHeadersError, read_headers
from penstock.records.columns_varints import Bytes, Longs, OverlongError, read_varints
from penstock.records.columns_walk import record_starts
from penstock.records.compression import DECOMPRESSED_BYTES_MAX
from penstock.records.reader import RECORD_BYTES_MIN

__all__ = [
    "HEADERS_TYPE",
    "Columns",
    "ColumnsTooLargeError",
    "CorruptBatchError",
    "OldFormatError",
    "decode",
    "decode_in_parts",
]


class Columns(NamedTuple):
    """Equal lengths, one row per record, in the order of the log."""

    key: pa.BinaryArray
    value: pa.BinaryArray
    offset: pa.Int64Array
    timestamp: pa.Int64Array  # milliseconds since 1970
    timestamp_type: pa.Int32Array  # 0: set by the producer, 1: by the broker on append
    headers: (
        pa.ListArray | None
    )  # list<struct<key, value>>, null where a record has none; None: not asked for


class ColumnsTooLargeError(PenstockError):
    """More than one Arrow column can hold; nothing is wrong with the batches."""


class _Fields(NamedTuple):
    """Where the parts of each record lie; every position proven to be inside the record."""

    timestamp_delta: Longs
    offset_delta: Longs
    key_start: Longs
    key_length: Longs
    value_start: Longs
    value_length: Longs
    header_count: Longs
    headers_start: Longs
    end: Longs


def decode(
    records: Buffer,
    *,
    first: int,
    end: int,
    aborted: Sequence[tuple[int, int]] = (),
    headers: bool = False,
    batch_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> Columns:
    """Every record with `first <= offset < end` that a consumer sees; whole batches, back to back.

    `aborted` has producer ids with the first offset of their aborted transaction, as the Fetch answer
    has them under read_committed. `batch_bytes_max` bounds what one batch may unpack to.
    """
    parts: list[Columns] = []
    size_bytes = 0
    for columns in decode_in_parts(
        records, first=first, end=end, aborted=aborted, headers=headers, batch_bytes_max=batch_bytes_max
    ):
        size_bytes += sum(column.nbytes for column in columns if column is not None)
        if parts and size_bytes > COLUMN_BYTES_MAX:
            raise ColumnsTooLargeError(
                f"{len(records)} bytes of batches unpack to more than {COLUMN_BYTES_MAX}: decode them in parts"
            )
        parts.append(columns)
    if not parts:
        return _empty(headers)
    if len(parts) == 1:
        return parts[0]
    return Columns(
        *(None if column[0] is None else pa.concat_arrays(column) for column in zip(*parts, strict=True))
    )


def decode_in_parts(
    records: Buffer,
    *,
    first: int,
    end: int,
    aborted: Sequence[tuple[int, int]] = (),
    headers: bool = False,
    batch_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    part_bytes_max: int = PART_BYTES_MAX,
) -> Iterator[Columns]:
    """As `decode`, a part at a time: one for what is not compressed, more for what unpacks to a lot."""
    for part in open_parts(
        records,
        first=first,
        end=end,
        aborted=aborted,
        batch_bytes_max=batch_bytes_max,
        part_bytes_max=part_bytes_max,
    ):
        batches = [batch for batch in part.batches if batch.header.record_count]
        if batches:
            yield _decode_part(Part(part.data, batches), first, end, headers)


def _decode_part(part: Part, first: int, end: int, with_headers: bool) -> Columns:
    data: Bytes = np.frombuffer(part.data, np.uint8)
    batches = part.batches
    counts = np.array([batch.header.record_count for batch in batches])
    fields = _read_fields(data, record_starts(part.data, batches), counts, batches)
    offset = fields.offset_delta + _spread([b.header.base_offset for b in batches], counts)
    timestamp, timestamp_type = _timestamps(fields, counts, batches)
    buffer = pa.py_buffer(part.data)
    if batches[0].header.base_offset < first or batches[-1].header.last_offset >= end:
        wanted = np.flatnonzero((offset >= first) & (offset < end))
        offset, timestamp, timestamp_type = offset[wanted], timestamp[wanted], timestamp_type[wanted]
    else:
        wanted = None
    headers = _headers(data, buffer, fields, counts, batches) if with_headers else None
    if wanted is not None and headers is not None:
        headers = headers.take(pa.array(wanted))
    return Columns(
        gather(buffer, *_only(wanted, fields.key_start, fields.key_length)),
        gather(buffer, *_only(wanted, fields.value_start, fields.value_length)),
        pa.array(offset),
        pa.array(timestamp),
        pa.array(timestamp_type),
        headers,
    )


def _read_fields(data: Bytes, starts: Longs, counts: Longs, batches: list[Batch]) -> _Fields:
    """Decode all varints of all records. Each position follows from the one before and none goes back, so
    a record whose last field ends where its length says has all its fields inside."""
    ends = np.empty_like(starts)
    ends[:-1] = starts[1:]
    ends[np.cumsum(counts) - 1] = [batch.end for batch in batches]
    try:
        length, at = read_varints(data, starts)
        _refuse(
            (at + length != ends) | (length < RECORD_BYTES_MIN - 1), "its length is wrong", counts, batches
        )
        # One byte of attributes, unused so far.
        timestamp_delta, at = read_varints(data, at + 1, VARLONG_BYTES_MAX)
        offset_delta, at = read_varints(data, at)
        key_length, key_start = read_varints(data, at)
        value_length, value_start = read_varints(data, key_start + np.maximum(key_length, 0))
        header_count, at = read_varints(data, value_start + np.maximum(value_length, 0))
    except OverlongError as error:
        raise _corrupt(error.lane, "an overlong varint", counts, batches) from None
    _refuse(
        ((at != ends) & (header_count == 0)) | (at > ends) | (header_count < 0),
        "its fields do not end where its length says",
        counts,
        batches,
    )
    last_delta = _spread([batch.header.last_offset_delta for batch in batches], counts)
    _refuse(
        (offset_delta < 0) | (offset_delta > last_delta), "its offset is outside the batch", counts, batches
    )
    return _Fields(
        timestamp_delta,
        offset_delta,
        key_start,
        key_length,
        value_start,
        value_length,
        header_count,
        at,
        ends,
    )


def _timestamps(fields: _Fields, counts: Longs, batches: list[Batch]) -> tuple[Longs, np.ndarray]:
    """Time and its type; where the broker set it, all records of a batch share the batch's latest."""
    appended = np.array([batch.header.is_append_time for batch in batches])
    base = _spread([batch.header.base_timestamp for batch in batches], counts)
    delta = fields.timestamp_delta
    timestamp = base + delta
    if not appended.any():
        wrapped = ((base ^ timestamp) & (delta ^ timestamp)) < 0
        _refuse(wrapped, "a timestamp beyond 64 bits", counts, batches)
        return timestamp, np.zeros(len(timestamp), np.int32)
    by_broker = np.repeat(appended, counts)
    wrapped = (((base ^ timestamp) & (delta ^ timestamp)) < 0) & ~by_broker
    _refuse(wrapped, "a timestamp beyond 64 bits", counts, batches)
    latest = _spread([batch.header.max_timestamp for batch in batches], counts)
    return np.where(by_broker, latest, timestamp), by_broker.astype(np.int32)


def _headers(
    data: Bytes, buffer: pa.Buffer, fields: _Fields, counts: Longs, batches: list[Batch]
) -> pa.ListArray:
    try:
        return read_headers(data, buffer, fields.headers_start, fields.header_count, fields.end)
    except MalformedHeadersError as error:
        raise _corrupt(error.lane, str(error), counts, batches) from None


def _only(wanted: Longs | None, *arrays: Longs) -> tuple[Longs, ...]:
    return arrays if wanted is None else tuple(array[wanted] for array in arrays)


def _spread(values: list[int], counts: Longs) -> Longs:
    """One value per batch to one per record."""
    return np.repeat(np.array(values, np.int64), counts)


def _refuse(wrong: np.ndarray, message: str, counts: Longs, batches: list[Batch]) -> None:
    if wrong.any():
        raise _corrupt(int(wrong.argmax()), message, counts, batches)


def _corrupt(record: int, message: str, counts: Longs, batches: list[Batch]) -> CorruptBatchError:
    ends = np.cumsum(counts)
    index = int(np.searchsorted(ends, record, side="right"))
    within = record - int(ends[index] - counts[index])
    return CorruptBatchError(batches[index].header.base_offset, f"record {within}: {message}")


def _empty(with_headers: bool) -> Columns:
    return Columns(
        pa.array([], pa.binary()),
        pa.array([], pa.binary()),
        pa.array([], pa.int64()),
        pa.array([], pa.int64()),
        pa.array([], pa.int32()),
        pa.array([], HEADERS_TYPE) if with_headers else None,
    )
