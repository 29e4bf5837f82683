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
from numpy.typing import NDArray

from penstock.core.errors import PenstockError
from penstock.records.batch import BatchHeader, Buffer
from penstock.records.columns.batches import (
    PART_BYTES_MAX,
    CorruptBatchError,
    OldFormatError,
    Part,
    open_parts,
)
from penstock.records.columns.fields import Fields, read_fields
from penstock.records.columns.gather import COLUMN_BYTES_MAX, gather
from penstock.records.columns.headers import HEADERS_TYPE, read_headers
from penstock.records.columns.varints import Bytes, LaneError, Longs, refuse
from penstock.records.columns.walk import record_starts
from penstock.records.compression import DECOMPRESSED_BYTES_MAX, Unpacker

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


def decode(
    records: Buffer,
    *,
    first: int,
    end: int,
    aborted: Sequence[tuple[int, int]] = (),
    headers: bool = False,
    batch_bytes_max: int = DECOMPRESSED_BYTES_MAX,
    unpacker: Unpacker | None = None,
) -> Columns:
    """Every record with `first <= offset < end` that a consumer sees; whole batches, back to back.

    `aborted` has producer ids with the first offset of their aborted transaction, as the Fetch answer
    has them under read_committed. `batch_bytes_max` bounds what one batch may unpack to. `unpacker`: see
    `decode_in_parts`.
    """
    parts: list[Columns] = []
    size_bytes = 0
    for columns in decode_in_parts(
        records,
        first=first,
        end=end,
        aborted=aborted,
        headers=headers,
        batch_bytes_max=batch_bytes_max,
        unpacker=unpacker,
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
    unpacker: Unpacker | None = None,
) -> Iterator[Columns]:
    """As `decode`, a part at a time: one for what is not compressed, more for what unpacks to a lot.

    `unpacker`: memory for compressed batches, for callers who decode one Fetch answer after the other; columns are
    copies and stay what they are when it is used again.
    """
    if part_bytes_max + batch_bytes_max > COLUMN_BYTES_MAX:
        raise ValueError(f"a part and one more batch must stay below {COLUMN_BYTES_MAX} bytes")
    for part in open_parts(
        records,
        first=first,
        end=end,
        aborted=aborted,
        batch_bytes_max=batch_bytes_max,
        part_bytes_max=part_bytes_max,
        unpacker=unpacker,
    ):
        batches = [batch for batch in part.batches if batch.header.record_count]
        if batches:
            yield _decode_part(Part(part.data, batches), first, end, headers)


def _decode_part(part: Part, first: int, end: int, with_headers: bool) -> Columns:
    batches = part.batches
    counts = np.array([batch.header.record_count for batch in batches])
    try:
        return _columns(part, counts, first, end, with_headers)
    except LaneError as error:
        ends = np.cumsum(counts)
        index = int(np.searchsorted(ends, error.lane, side="right"))
        within = error.lane - int(ends[index] - counts[index])
        raise CorruptBatchError(batches[index].header.base_offset, f"record {within}: {error}") from None


def _columns(part: Part, counts: Longs, first: int, end: int, with_headers: bool) -> Columns:
    data: Bytes = np.frombuffer(part.data, np.uint8)
    headers = [batch.header for batch in part.batches]
    starts = record_starts(part.data, part.batches)
    ends = np.empty_like(starts)
    ends[:-1] = starts[1:]
    ends[np.cumsum(counts) - 1] = [batch.end for batch in part.batches]
    fields = read_fields(data, starts, ends, _spread([h.last_offset_delta for h in headers], counts))
    offset = fields.offset_delta + _spread([h.base_offset for h in headers], counts)
    timestamp, timestamp_type = _timestamps(fields.timestamp_delta, counts, headers)
    buffer = pa.py_buffer(part.data)
    found = None
    if with_headers:
        found = read_headers(data, buffer, fields.headers_start, fields.header_count, ends)
    if any(header.base_offset < first or header.last_offset >= end for header in headers):
        wanted = np.flatnonzero((offset >= first) & (offset < end))
        fields = Fields(*(field[wanted] for field in fields))
        offset, timestamp, timestamp_type = offset[wanted], timestamp[wanted], timestamp_type[wanted]
        found = None if found is None else found.take(pa.array(wanted))
    return Columns(
        gather(buffer, fields.key_start, fields.key_length),
        gather(buffer, fields.value_start, fields.value_length),
        pa.array(offset),
        pa.array(timestamp),
        pa.array(timestamp_type),
        found,
    )


def _timestamps(delta: Longs, counts: Longs, headers: list[BatchHeader]) -> tuple[Longs, NDArray[np.int32]]:
    """Time and its type; where the broker set it, all records of a batch share the batch's latest."""
    base = _spread([header.base_timestamp for header in headers], counts)
    timestamp = base + delta
    wrapped = ((base ^ timestamp) & (delta ^ timestamp)) < 0
    if not any(header.is_append_time for header in headers):
        refuse(wrapped, "a timestamp beyond 64 bits")
        return timestamp, np.zeros(len(timestamp), np.int32)
    by_broker = np.repeat([header.is_append_time for header in headers], counts)
    refuse(wrapped & ~by_broker, "a timestamp beyond 64 bits")
    latest = _spread([header.max_timestamp for header in headers], counts)
    return np.where(by_broker, latest, timestamp), by_broker.astype(np.int32)


def _spread(values: list[int], counts: Longs) -> Longs:
    """One value per batch to one per record."""
    return np.repeat(np.array(values, np.int64), counts)


def _empty(with_headers: bool) -> Columns:
    return Columns(
        pa.array([], pa.binary()),
        pa.array([], pa.binary()),
        pa.array([], pa.int64()),
        pa.array([], pa.int64()),
        pa.array([], pa.int32()),
        pa.array([], HEADERS_TYPE) if with_headers else None,
    )
