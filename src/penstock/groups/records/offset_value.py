"""The value of an offset record: what a group has committed for one partition.

    version int16
    offset int64
    leader epoch int32                  from version 3
    metadata string                     compact from version 4
    commit timestamp int64
    expire timestamp int64              version 1 only
    tagged fields                       from version 4 (0: topic id)

Written as Kafka writes it: version 3, or 1 where the client set a retention of its own.
"""

from dataclasses import dataclass
from struct import Struct

from penstock.wire.kafka.primitives import (
    MALFORMED,
    DecodeError,
    read_compact_string,
    read_string,
    skip_tags,
)

NO_EPOCH = -1
NO_EXPIRY = -1
_VERSION = Struct(">h")
_WRITTEN_HEAD = Struct(">hqi")
_EXPIRING_HEAD = Struct(">hq")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_LENGTH = Struct(">h")
_VERSION_MAX = 4


@dataclass(slots=True)
class CommittedOffset:
    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    committed_ms: int = 0
    expires_ms: int = NO_EXPIRY


def encode_offset_value(value: CommittedOffset) -> bytes:
    metadata = value.metadata.encode()
    if value.expires_ms != NO_EXPIRY:
        head = _EXPIRING_HEAD.pack(1, value.offset)
        tail = _INT64.pack(value.committed_ms) + _INT64.pack(value.expires_ms)
    else:
        head = _WRITTEN_HEAD.pack(3, value.offset, value.leader_epoch)
        tail = _INT64.pack(value.committed_ms)
    return head + _LENGTH.pack(len(metadata)) + metadata + tail


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
    if version >= 4:
        position = skip_tags(data, position)
    if position != len(data):
        raise DecodeError(f"{len(data) - position} bytes behind a committed offset")
    return CommittedOffset(offset, leader_epoch, metadata, committed_ms, expires_ms)
