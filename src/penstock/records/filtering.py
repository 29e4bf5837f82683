"""Taking records out of a batch, as compaction does: what is left keeps its offset, its time and its bytes.

`walk` looks at just as much of each record as compaction asks about, an order of magnitude faster than opening it.
A filtered batch keeps its base offset, last offset delta, producer fields, codec and timestamp type, so that offsets
and sequences mean what they meant; only its records, its length, its largest time and its CRC change. The first batch
to lose a tombstone later on is marked: its base timestamp becomes the time from which its tombstones may go (the
delete horizon), and the times of its records are written anew relative to it.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from penstock.core.error_codes import ErrorCode
from penstock.core.varints import VarintError, encode_varint, read_uvarint
from penstock.records.batch import (
    CODEC_MASK,
    DELETE_HORIZON_MASK,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    InvalidBatch,
    stamp_crc,
)
from penstock.records.compression import compress


class Walked(NamedTuple):
    """A record where it lies: its bytes are `payload[start:end]`, its time is that of the batch plus the delta."""

    start: int
    end: int
    offset_delta: int
    timestamp_delta: int
    key: bytes | None
    has_value: bool


# Without a call in Python, and with the fields known to be there.
_new: Any = tuple.__new__


def walk(payload: Buffer, count: int) -> Iterator[Walked]:
    """The records of an uncompressed payload; InvalidBatch when it is not made of so many."""
    data = payload if isinstance(payload, bytes) else bytes(payload)
    position, size = 0, len(data)
    try:
        for _ in range(count):
            start = position
            # Flat, since it runs for every record: nearly all of these varints take one byte.
            length = data[position]
            position += 1
            if length >= 0x80:
                length, position = read_uvarint(data, start)
            end = position + (length >> 1)
            at = position + 1  # behind the attributes
            time = data[at]
            position = at + 1
            if time >= 0x80:
                time, position = read_uvarint(data, at)
            at = position
            offset = data[at]
            position = at + 1
            if offset >= 0x80:
                offset, position = read_uvarint(data, at)
            at = position
            key_size = data[at]
            position = at + 1
            if key_size >= 0x80:
                key_size, position = read_uvarint(data, at)
            key = None
            if not key_size & 1:
                at = position
                position += key_size >> 1
                key = data[at:position]
            # Zigzag: a negative length, and so a null value, is an odd number, which its lowest byte tells.
            has_value = not data[position] & 1
            if position >= end or end > size:
                raise _malformed()
            yield _new(
                Walked,
                (start, end, (offset >> 1) ^ -(offset & 1), (time >> 1) ^ -(time & 1), key, has_value),
            )
            position = end
    except (IndexError, VarintError):
        raise _malformed() from None
    if position != size:
        raise _malformed()


def _malformed() -> InvalidBatch:
    return InvalidBatch(ErrorCode.INVALID_RECORD, "the records do not fill their batch")


def without(header: BatchHeader, payload: Buffer, kept: list[Walked], horizon_ms: int | None) -> bytearray:
    """The batch with nothing but the `kept` records (at least one); `horizon_ms` sets a delete horizon."""
    base_timestamp = header.base_timestamp
    with memoryview(payload) as view:
        if horizon_ms is None:
            records = b"".join([view[record.start : record.end] for record in kept])
        else:
            records = b"".join([_moved(view, record, base_timestamp - horizon_ms) for record in kept])
    max_timestamp = header.max_timestamp
    if not header.is_append_time:
        max_timestamp = max(base_timestamp + record.timestamp_delta for record in kept)
    attributes = header.attributes
    if horizon_ms is not None:
        attributes |= DELETE_HORIZON_MASK
        base_timestamp = horizon_ms
    anew = header._replace(
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        record_count=len(kept),
    )
    return _assembled(anew, compress(header.codec, records))


def emptied(header: BatchHeader) -> bytearray:
    """The batch without any record: it still says how far its producer, and the log, had come."""
    anew = header._replace(
        attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON_MASK),
        base_timestamp=NO_TIMESTAMP,
        record_count=0,
    )
    return _assembled(anew, b"")


def _moved(view: memoryview, walked: Walked, shift_ms: int) -> bytes:
    """The record with its time told from another base."""
    position = walked.start
    while view[position] >= 0x80:
        position += 1
    attributes_at = position + 1
    position = attributes_at + 1
    while view[position] >= 0x80:
        position += 1
    body = b"".join(
        (
            view[attributes_at : attributes_at + 1],
            encode_varint(walked.timestamp_delta + shift_ms),
            view[position + 1 : walked.end],
        )
    )
    return encode_varint(len(body)) + body


def _assembled(header: BatchHeader, payload: Buffer) -> bytearray:
    size_bytes = HEADER_BYTES + len(payload)
    out = bytearray(size_bytes)
    HEADER.pack_into(out, 0, *header._replace(batch_length=size_bytes - LOG_OVERHEAD_BYTES))
    out[HEADER_BYTES:] = payload
    with memoryview(out) as view:
        stamp_crc(view, 0, size_bytes)
    return out
