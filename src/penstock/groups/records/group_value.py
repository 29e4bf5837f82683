"""The value of a group record: a classic group after a rebalance, with the assignment of every member.

    version int16
    protocol type string | generation int32 | protocol string? | leader string?
    state timestamp int64               from version 2
    members array of
        member id string
        group instance id string?       from version 3
        client id string | client host string
        rebalance timeout int32         from version 1
        session timeout int32
        subscription bytes | assignment bytes

Version 4 has compact strings, bytes and arrays, and tagged fields. Written as Kafka writes it: version 3.
"""

from dataclasses import dataclass, field
from struct import Struct

from penstock.wire.kafka.primitives import (
    MALFORMED,
    DecodeError,
    read_bytes,
    read_compact_bytes,
    read_compact_count,
    read_compact_nullable_string,
    read_compact_string,
    read_count,
    read_nullable_string,
    read_string,
    skip_tags,
    write_bytes,
    write_count,
    write_nullable_string,
    write_string,
)

NO_TIMESTAMP = -1
NO_TIMEOUT = -1
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_WRITTEN_VERSION = 3
_FLEXIBLE_SINCE = 4
_VERSION_MAX = 4
# Three empty strings, two empty byte strings and a timeout: fewer bytes hold no member.
_MEMBER_BYTES_MIN, _MEMBER_BYTES_MIN_COMPACT = 18, 10


@dataclass(slots=True)
class StoredMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(slots=True)
class StoredGroup:
    protocol_type: str
    generation: int
    protocol: str | None = None
    leader: str | None = None
    state_since_ms: int = NO_TIMESTAMP
    members: list[StoredMember] = field(default_factory=list)


def encode_group_value(group: StoredGroup) -> bytes:
    out = bytearray(_INT16.pack(_WRITTEN_VERSION))
    write_string(out, group.protocol_type)
    out += _INT32.pack(group.generation)
    write_nullable_string(out, group.protocol)
    write_nullable_string(out, group.leader)
    out += _INT64.pack(group.state_since_ms)
    write_count(out, len(group.members))
    for member in group.members:
        write_string(out, member.member_id)
        write_nullable_string(out, member.instance_id)
        write_string(out, member.client_id)
        write_string(out, member.client_host)
        out += _INT32.pack(member.rebalance_timeout_ms)
        out += _INT32.pack(member.session_timeout_ms)
        write_bytes(out, member.subscription)
        write_bytes(out, member.assignment)
    return bytes(out)


def decode_group_value(data: bytes) -> StoredGroup:
    try:
        return _decode(data)
    except MALFORMED as error:
        raise DecodeError(f"a stored group: {error}") from error


def _decode(data: bytes) -> StoredGroup:
    (version,) = _INT16.unpack_from(data)
    if not 0 <= version <= _VERSION_MAX:
        raise DecodeError(f"a stored group of version {version}")
    flexible = version >= _FLEXIBLE_SINCE
    text = read_compact_string if flexible else read_string
    text_or_null = read_compact_nullable_string if flexible else read_nullable_string
    protocol_type, position = text(data, 2)
    (generation,) = _INT32.unpack_from(data, position)
    protocol, position = text_or_null(data, position + 4)
    leader, position = text_or_null(data, position)
    state_since_ms = NO_TIMESTAMP
    if version >= 2:
        (state_since_ms,) = _INT64.unpack_from(data, position)
        position += 8
    if flexible:
        count, position = read_compact_count(data, position, _MEMBER_BYTES_MIN_COMPACT)
    else:
        count, position = read_count(data, position, _MEMBER_BYTES_MIN)
    members = []
    for _ in range(count):
        member, position = _decode_member(data, position, version)
        members.append(member)
    if flexible:
        position = skip_tags(data, position)
    if position != len(data):
        raise DecodeError(f"{len(data) - position} bytes behind a stored group")
    return StoredGroup(protocol_type, generation, protocol, leader, state_since_ms, members)


def _decode_member(data: bytes, position: int, version: int) -> tuple[StoredMember, int]:
    flexible = version >= _FLEXIBLE_SINCE
    text = read_compact_string if flexible else read_string
    text_or_null = read_compact_nullable_string if flexible else read_nullable_string
    blob = read_compact_bytes if flexible else read_bytes
    member_id, position = text(data, position)
    instance_id = None
    if version >= 3:
        instance_id, position = text_or_null(data, position)
    client_id, position = text(data, position)
    client_host, position = text(data, position)
    rebalance_timeout_ms = NO_TIMEOUT
    if version >= 1:
        (rebalance_timeout_ms,) = _INT32.unpack_from(data, position)
        position += 4
    (session_timeout_ms,) = _INT32.unpack_from(data, position)
    subscription, position = blob(data, position + 4)
    assignment, position = blob(data, position)
    if flexible:
        position = skip_tags(data, position)
    if rebalance_timeout_ms == NO_TIMEOUT:
        rebalance_timeout_ms = session_timeout_ms  # the older protocol had one timeout for both
    member = StoredMember(
        member_id,
        instance_id,
        client_id,
        client_host,
        rebalance_timeout_ms,
        session_timeout_ms,
        subscription,
        assignment,
    )
    return member, position
