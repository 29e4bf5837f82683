"""Opening batches: the records inside, with every length checked before it is believed.

A record, after decompression of the batch (varints are zigzag, a negative length stands for null):

    length varint | attributes int8 | timestamp delta varlong | offset delta varint
    key length varint, key | value length varint, value
    header count varint | { key length varint, key | value length varint, value }…

Only InvalidBatch leaves this module, whatever the bytes are.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from penstock.core.error_codes import ErrorCode
from penstock.core.varints import VarintError, read_varint
from penstock.records.batch import (
    HEADER_BYTES,
    MAGIC,
    NO_TIMESTAMP,
    RECORD_BYTES_MIN,
    BatchHeader,
    Buffer,
    InvalidBatch,
    TruncatedBatch,
    check_batch,
    read_header,
    size_at,
)
from penstock.records.compression import DECOMPRESSED_BYTES_MAX, decompress

_INT64_MIN = -(2**63)
_INT64_MAX = 2**63 - 1

Header = tuple[str, bytes | None]
T = TypeVar("T")


@dataclass(slots=True)
class Record:
    """`headers` keep undecodable key bytes as surrogates, so that rebuilding a record loses nothing."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    size_bytes: int = 0


class InvalidRecord(InvalidBatch):
    """One record of a batch is wrong; `index` is its place in the batch."""

    def __init__(self, index: int, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, f"record {index}: {message}")
        self.index = index


class KeylessRecords(InvalidBatch):
    """Records without a key where every one must have one; `indexes` are their places in the batch."""

    def __init__(self, indexes: list[int]) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, f"{len(indexes)} records without a key")
        self.indexes = indexes


class VerifiedBatch(NamedTuple):
    """What a deep check learnt: the header, the uncompressed records and their real latest timestamp."""

    header: BatchHeader
    payload: Buffer
    max_timestamp: int


def iter_batches(
    buffer: Buffer, position: int = 0, end: int | None = None
) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every whole batch; a cut-off last one ends the walk, as in a Fetch answer."""
    if end is None:
        end = len(buffer)
    while True:
        size_bytes = size_at(buffer, position, end)
        if size_bytes is None or position + size_bytes > end:
            return
        if size_bytes < HEADER_BYTES:
            raise InvalidBatch(
                ErrorCode.CORRUPT_MESSAGE, f"a batch of {size_bytes} bytes is below its header"
            )
        header = read_header(buffer, position)
        if header.magic != MAGIC:
            raise InvalidBatch(ErrorCode.INVALID_RECORD, f"a batch of magic {header.magic}")
        yield position, header
        position += size_bytes


def read_records(
    batch: Buffer, position: int = 0, *, limit_bytes: int = DECOMPRESSED_BYTES_MAX
) -> Iterator[Record]:
    """The records of the batch at `position`, whose CRC is taken as checked."""
    header = read_header(batch, position)
    yield from records_in(header, payload_of(batch, position, header, limit_bytes))


def read_all(
    buffer: Buffer,
    *,
    from_offset: int = 0,
    with_control: bool = False,
    limit_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> Iterator[Record]:
    """The records of all whole batches, from `from_offset` on: what a consumer sees of a Fetch answer."""
    for position, header in iter_batches(buffer):
        if header.last_offset < from_offset or (header.is_control and not with_control):
            continue
        for record in records_in(header, payload_of(buffer, position, header, limit_bytes)):
            if record.offset >= from_offset:
                yield record


def payload_of(
    batch: Buffer, position: int, header: BatchHeader, limit_bytes: int = DECOMPRESSED_BYTES_MAX
) -> Buffer:
    """The uncompressed records of a batch."""
    end = position + header.size_bytes
    if header.size_bytes < HEADER_BYTES or end > len(batch):
        raise TruncatedBatch("the batch is longer than its bytes")
    return decompress(header.codec, memoryview(batch)[position + HEADER_BYTES : end], limit_bytes)


def records_in(header: BatchHeader, payload: Buffer) -> Iterator[Record]:
    """Parse `payload`; what is declared must be there, and nothing else."""
    return _walk(header, payload, _read_record)


def _walk(
    header: BatchHeader,
    payload: Buffer,
    read: Callable[[Buffer, int, BatchHeader, int | None], tuple[T, int, int]],
) -> Iterator[T]:
    """What `read` makes of each record; it also returns the offset delta, and the position behind the record."""
    count = header.record_count
    end = len(payload)
    if not 0 <= count <= end // RECORD_BYTES_MIN:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, f"{count} records in {end} bytes")
    append_time = header.max_timestamp if header.is_append_time else None
    last_delta = header.last_offset_delta
    position = 0
    for index in range(count):
        try:
            record, delta, position = read(payload, position, header, append_time)
        except VarintError as error:
            raise InvalidRecord(index, str(error)) from None
        except _Malformed as error:
            raise InvalidRecord(index, str(error)) from None
        if not 0 <= delta <= last_delta:
            raise InvalidRecord(index, f"offset delta {delta} beyond the last, {last_delta}")
        yield record
    if position != end:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, f"{end - position} bytes left over behind the records")


def verify_records(
    batch: memoryview,
    position: int = 0,
    *,
    key_required: bool = False,
    limit_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> VerifiedBatch:
    """The deep check of a new batch: every record well-formed, offset deltas 0…n-1, keys where required."""
    header = check_batch(batch, position)
    payload = payload_of(batch, position, header, limit_bytes)
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD,
            f"{header.record_count} records do not fit the last offset delta {header.last_offset_delta}",
        )
    max_timestamp = NO_TIMESTAMP
    keyless: list[int] = []
    for index, (delta, timestamp, has_key) in enumerate(_walk(header, payload, _skip_record)):
        if delta != index:
            raise InvalidRecord(index, f"offset delta {delta}")
        if key_required and not has_key:
            keyless.append(index)
        max_timestamp = max(max_timestamp, timestamp)
    if keyless:
        raise KeylessRecords(keyless)
    return VerifiedBatch(header, payload, max_timestamp)


class _Malformed(Exception):  # noqa: N818 - never leaves this module
    pass


def _read_record(
    data: Buffer, position: int, header: BatchHeader, append_time: int | None
) -> tuple[Record, int, int]:
    """The record at `position`, its offset delta, and the position behind it."""
    start = position
    timestamp_delta, offset_delta, position, end = _read_head(data, position)
    key, position = _read_bytes(data, position, end)
    value, position = _read_bytes(data, position, end)
    count, position = read_varint(data, position)
    headers: tuple[Header, ...] = ()
    if count:
        headers, position = _read_headers(data, position, end, count)
    timestamp = _time(header, timestamp_delta, append_time, position, end)
    offset = header.base_offset + offset_delta
    return Record(offset, timestamp, key, value, headers, end - start), offset_delta, end


def _skip_record(
    data: Buffer, position: int, header: BatchHeader, append_time: int | None
) -> tuple[tuple[int, int, bool], int, int]:
    """As `_read_record`, without copying anything out of it: (offset delta, timestamp, whether it has a key)."""
    timestamp_delta, offset_delta, position, end = _read_head(data, position)
    key_bytes, position = _read_length(data, position, end)
    value_bytes, position = _read_length(data, position + max(key_bytes, 0), end)
    count, position = read_varint(data, position + max(value_bytes, 0))
    if count:
        _, position = _read_headers(data, position, end, count)
    timestamp = _time(header, timestamp_delta, append_time, position, end)
    return (offset_delta, timestamp, key_bytes >= 0), offset_delta, end


def _read_head(data: Buffer, position: int) -> tuple[int, int, int, int]:
    """Timestamp delta, offset delta, the position behind them, and that behind the record."""
    length, position = read_varint(data, position)
    if not RECORD_BYTES_MIN - 1 <= length <= len(data) - position:
        raise _Malformed(f"a length of {length} with {len(data) - position} bytes left")
    end = position + length
    timestamp_delta, position = read_varint(data, position + 1)
    offset_delta, position = read_varint(data, position)
    return timestamp_delta, offset_delta, position, end


def _time(header: BatchHeader, delta: int, append_time: int | None, position: int, end: int) -> int:
    """A record's timestamp, when its fields ended at `position`, where they should."""
    if position != end:
        raise _Malformed(f"its fields end {position - end:+d} bytes from its length")
    timestamp = header.base_timestamp + delta if append_time is None else append_time
    if not _INT64_MIN <= timestamp <= _INT64_MAX:
        raise _Malformed("a timestamp beyond 64 bits")
    return timestamp


def _read_bytes(data: Buffer, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = _read_length(data, position, end)
    if length < 0:
        return None, position
    stop = position + length
    return bytes(data[position:stop]), stop


def _read_length(data: Buffer, position: int, end: int) -> tuple[int, int]:
    """Of a field, negative for null; it fits into what is left."""
    length, position = read_varint(data, position)
    if position + length > end:
        raise _Malformed(f"a field of {length} bytes with {end - position} left")
    return length, position


def _read_headers(data: Buffer, position: int, end: int, count: int) -> tuple[tuple[Header, ...], int]:
    # Each header takes two bytes at least: a larger count cannot be honest, and would be a long loop.
    if not 0 <= count <= (end - position) // 2:
        raise _Malformed(f"{count} headers in {end - position} bytes")
    headers: list[Header] = []
    for _ in range(count):
        key, position = _read_bytes(data, position, end)
        if key is None:
            raise _Malformed("a header without a key")
        value, position = _read_bytes(data, position, end)
        headers.append((key.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), position
