"""The value of an offset record: what a group has committed for one partition.

    version int16
    offset int64
    leader epoch int32                  from version 3
    metadata string                     compact from version 4
    commit timestamp int64
    expire timestamp int64              version 1 only
    tagged fields                       from version 4 (0: topic id; 1000, ours: expire timestamp)

Written with the id of the topic it is of, so in version 4: a name alone would do for the next topic of that name, too.
What older brokers wrote (version 3, or 1 where the client set a retention of its own) does not say.
"""

from dataclasses import dataclass
from struct import Struct

from penstock.wire.kafka.primitives import (
    MALFORMED,
    DecodeError,
    read_compact_string,
    read_string,
    read_tag,
    read_uvarint,
    write_uvarint,
)

NO_EPOCH = -1
NO_EXPIRY = -1
NO_TOPIC_ID = bytes(16)
_VERSION = Struct(">h")
_WRITTEN_HEAD = Struct(">hqi")
_EXPIRING_HEAD = Struct(">hq")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_LENGTH = Struct(">h")
_VERSION_MAX = 4
_TOPIC_ID_TAG = 0
# Kafka numbers its tags from 0 on, and steps over those it does not know.
_EXPIRY_TAG = 1000
_TAIL = Struct(">q3s16s")  # commit timestamp, then the tagged fields
_TOPIC_ID = b"\x01\x00\x10"  # one of them: the topic id, of 16 bytes
_PLAIN = Struct(">hqiBq3s16s")  # all of it, without metadata
_EXPIRING_TAIL = Struct(">q3s16s3sq")
_TWO_TAGS, _EXPIRY = b"\x02\x00\x10", b"\xe8\x07\x08"
_LONG = 0x80  # lengths from here on take more than a byte


@dataclass(slots=True)
class CommittedOffset:
    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    committed_ms: int = 0
    expires_ms: int = NO_EXPIRY
    topic_id: bytes = NO_TOPIC_ID  # none: stored by a broker that did not write it down


def encode_offset_value(value: CommittedOffset) -> bytes:
    if not value.metadata and value.expires_ms == NO_EXPIRY and value.topic_id != NO_TOPIC_ID:
        # Nearly all that is ever committed.
        return _PLAIN.pack(
            4, value.offset, value.leader_epoch, 1, value.committed_ms, _TOPIC_ID, value.topic_id
        )
    metadata = value.metadata.encode()
    if value.topic_id != NO_TOPIC_ID:
        return _encode_with_topic(value, metadata)
    if value.expires_ms != NO_EXPIRY:
        head = _EXPIRING_HEAD.pack(1, value.offset)
        tail = _INT64.pack(value.committed_ms) + _INT64.pack(value.expires_ms)
    else:
        head = _WRITTEN_HEAD.pack(3, value.offset, value.leader_epoch)
        tail = _INT64.pack(value.committed_ms)
    return head + _LENGTH.pack(len(metadata)) + metadata + tail


def _encode_with_topic(value: CommittedOffset, metadata: bytes) -> bytes:
    out = bytearray(_WRITTEN_HEAD.pack(4, value.offset, value.leader_epoch))
    length = len(metadata) + 1
    if length < _LONG:
        out.append(length)
    else:
        write_uvarint(out, length)
    out += metadata
    if value.expires_ms == NO_EXPIRY:
        out += _TAIL.pack(value.committed_ms, _TOPIC_ID, value.topic_id)
    else:
        out += _EXPIRING_TAIL.pack(value.committed_ms, _TWO_TAGS, value.topic_id, _EXPIRY, value.expires_ms)
    return bytes(out)


def decode_offset_value(data: bytes) -> CommittedOffset:
    try:
        return _decode(data)
    except MALFORMED as error:
        raise DecodeError(f"a committed offset: {error}") from error


def _decode(data: bytes) -> CommittedOffset:
    (version,) = _VERSION.unpack_from(data)
    if not 0 <= version <= _VERSION_MAX:
        raise DecodeError(f"a committed offset of version {version}")
    (offset,) = _INT64.unpack_from(data, 2)
    position, leader_epoch, expires_ms = 10, NO_EPOCH, NO_EXPIRY
    if version >= 3:
        (leader_epoch,) = _INT32.unpack_from(data, position)
        position += 4
    read = read_compact_string if version >= 4 else read_string
    metadata, position = read(data, position)
    (committed_ms,) = _INT64.unpack_from(data, position)
    position += 8
    if version == 1:
        (expires_ms,) = _INT64.unpack_from(data, position)
        position += 8
    topic_id = NO_TOPIC_ID
    if version >= 4:
        count, position = read_uvarint(data, position)
        for _ in range(count):
            tag, start, position = read_tag(data, position)
            if tag == _TOPIC_ID_TAG:
                topic_id = data[start:position]
            elif tag == _EXPIRY_TAG:
                (expires_ms,) = _INT64.unpack_from(data, start)
        if len(topic_id) != len(NO_TOPIC_ID):
            raise DecodeError(f"a topic id of {len(topic_id)} bytes")
    if position != len(data):
        raise DecodeError(f"{len(data) - position} bytes behind a committed offset")
    return CommittedOffset(offset, leader_epoch, metadata, committed_ms, expires_ms, topic_id)
