"""Writing batches: from records, or from another batch whose compression changes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.core.varints import encode_varint
from penstock.records.batch import (
    APPEND_TIME_MASK,
    CODEC_MASK,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_MASK,
    BatchHeader,
    Buffer,
    stamp_crc,
)
from penstock.records.compression import DECOMPRESSED_BYTES_MAX, Codec, compress
from penstock.records.reader import Header, Record, verify_records

_NULL = encode_varint(-1)
_NO_HEADERS = encode_varint(0)


@dataclass(slots=True, kw_only=True)
class BatchOptions:
    """Everything of a batch that is not in its records."""

    base_offset: int = 0
    leader_epoch: int = NO_LEADER_EPOCH
    codec: int = Codec.NONE
    level: int | None = None
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    transactional: bool = False
    control: bool = False
    # Set: all records carry this time instead of their own.
    append_time_ms: int | None = None
    # Set by compaction: when tombstones in this batch may go. It takes the base timestamp's place.
    delete_horizon_ms: int | None = None
    # Set by compaction: the batch keeps its offset range although its last records are gone.
    last_offset_delta: int | None = None

    @property
    def attributes(self) -> int:
        return (
            self.codec
            | (APPEND_TIME_MASK if self.append_time_ms is not None else 0)
            | (TRANSACTIONAL_MASK if self.transactional else 0)
            | (CONTROL_MASK if self.control else 0)
            | (DELETE_HORIZON_MASK if self.delete_horizon_ms is not None else 0)
        )


class BatchBuilder:
    """Collects records until `build`. Their offsets rise, from `base_offset` on."""

    def __init__(self, options: BatchOptions | None = None) -> None:
        self.options = options or BatchOptions()
        self.count = 0
        self.size_bytes = HEADER_BYTES  # before compression
        self._payload = bytearray()
        self._base_timestamp = self.options.delete_horizon_ms
        self._max_timestamp = NO_TIMESTAMP
        self._last_delta = -1

    def append(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        timestamp: int = NO_TIMESTAMP,
        headers: Sequence[Header] = (),
        offset: int | None = None,
    ) -> int:
        """Add one record, at the next offset unless one is given, and say how many bytes it takes."""
        last_delta = self._last_delta
        delta = last_delta + 1 if offset is None else offset - self.options.base_offset
        if delta <= last_delta:
            raise ValueError(f"offset {offset} does not follow {self.options.base_offset + last_delta}")
        if self._base_timestamp is None:
            self._base_timestamp = timestamp
        encoded = encode_record(delta, timestamp - self._base_timestamp, key, value, headers)
        self._payload += encoded
        self._last_delta = delta
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        self.count += 1
        size = len(encoded)
        self.size_bytes += size
        return size

    def build(self) -> bytearray:
        """The finished batch; a bytearray, so that the log can stamp it in place."""
        options = self.options
        last_delta = self._last_delta if options.last_offset_delta is None else options.last_offset_delta
        if last_delta < max(self._last_delta, 0):
            raise ValueError(f"a last offset delta of {last_delta} for {self.count} records")
        header = BatchHeader(
            base_offset=options.base_offset,
            batch_length=0,
            leader_epoch=options.leader_epoch,
            magic=MAGIC,
            crc=0,
            attributes=options.attributes,
            last_offset_delta=last_delta,
            base_timestamp=NO_TIMESTAMP if self._base_timestamp is None else self._base_timestamp,
            max_timestamp=self._max_timestamp if options.append_time_ms is None else options.append_time_ms,
            producer_id=options.producer_id,
            producer_epoch=options.producer_epoch,
            base_sequence=options.base_sequence,
            record_count=self.count,
        )
        return _assemble(header, compress(options.codec, self._payload, options.level))


def build_batch(records: Iterable[Record], options: BatchOptions | None = None) -> bytearray:
    """A batch of `records` at their own offsets."""
    builder = BatchBuilder(options)
    for record in records:
        builder.append(
            record.value,
            key=record.key,
            timestamp=record.timestamp,
            headers=record.headers,
            offset=record.offset,
        )
    return builder.build()


def recompress(
    batch: memoryview,
    codec: int,
    level: int | None = None,
    *,
    key_required: bool = False,
    limit_bytes: int = DECOMPRESSED_BYTES_MAX,
) -> bytearray:
    """The same records under another codec, for the topic's `compression.type`.

    Offsets, timestamps and producer fields stay. The records are checked in depth on the way, because a
    broker that writes a batch anew answers for what is in it; the max timestamp becomes the real one.
    """
    verified = verify_records(batch, key_required=key_required, limit_bytes=limit_bytes)
    header = verified.header
    return _assemble(
        header._replace(
            attributes=header.attributes & ~CODEC_MASK | codec,
            max_timestamp=verified.max_timestamp,
        ),
        compress(codec, verified.payload, level),
    )


def encode_record(
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[Header],
) -> bytes:
    parts = [
        b"\x00",
        encode_varint(timestamp_delta),
        encode_varint(offset_delta),
        _NULL if key is None else encode_varint(len(key)),
        key or b"",
        _NULL if value is None else encode_varint(len(value)),
        value or b"",
    ]
    if headers:
        parts.append(encode_varint(len(headers)))
        for name, content in headers:
            encoded = name.encode("utf-8", "surrogateescape")
            parts += (encode_varint(len(encoded)), encoded)
            if content is None:
                parts.append(_NULL)
            else:
                parts += (encode_varint(len(content)), content)
    else:
        parts.append(_NO_HEADERS)
    body = b"".join(parts)
    return encode_varint(len(body)) + body


def _assemble(header: BatchHeader, payload: Buffer) -> bytearray:
    size_bytes = HEADER_BYTES + len(payload)
    out = bytearray(size_bytes)
    HEADER.pack_into(out, 0, header.base_offset, size_bytes - LOG_OVERHEAD_BYTES, *header[2:])
    out[HEADER_BYTES:] = payload
    with memoryview(out) as view:
        stamp_crc(view, 0, size_bytes)
    return out
