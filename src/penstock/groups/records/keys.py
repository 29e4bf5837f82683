"""Keys: an int16 that says what kind of record it is (and the key's version), then the key's fields.

    0, 1   an offset    group string | topic string | partition int32
    2      a group      group string

Kafka has more kinds (next-generation and share groups, from 3 on). What is not known here is skipped, not refused:
a directory that another broker wrote must stay readable.
"""

from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from penstock.wire.kafka.primitives import MALFORMED, DecodeError, read_string, write_string

_KIND = Struct(">h")
_INT32 = Struct(">i")
_OFFSET_HEAD = Struct(">hh")  # the kind, and the length of the group's name
_LENGTH = Struct(">h")
_OFFSET_KINDS = (0, 1)
_OFFSET_WRITTEN = 1
_GROUP_KIND = 2
_GROUP_WRITTEN = _KIND.pack(2)
# Keys that are committed over and over need not be made each time.
_REMEMBERED_MAX = 10_000
_CHARS_MAX = 300


class OffsetKey(NamedTuple):
    group: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    group: str


def encode_offset_key(group: str, topic: str, partition: int) -> bytes:
    # Those of very long names are not remembered, whoever sends many of them.
    if len(group) > _CHARS_MAX:
        return _encode_offset_key(group, topic, partition)
    return _remembered(group, topic, partition)


def _encode_offset_key(group: str, topic: str, partition: int) -> bytes:
    group_name, topic_name = group.encode(), topic.encode()
    head = _OFFSET_HEAD.pack(_OFFSET_WRITTEN, len(group_name))
    return head + group_name + _LENGTH.pack(len(topic_name)) + topic_name + _INT32.pack(partition)


_remembered = lru_cache(_REMEMBERED_MAX)(_encode_offset_key)


def encode_group_key(group: str) -> bytes:
    out = bytearray(_GROUP_WRITTEN)
    write_string(out, group)
    return bytes(out)


def decode_key(data: bytes) -> OffsetKey | GroupKey | None:
    """None: a kind of record that is not known here. DecodeError: not a key at all."""
    try:
        (kind,) = _KIND.unpack_from(data)
        if kind in _OFFSET_KINDS:
            group, position = read_string(data, 2)
            topic, position = read_string(data, position)
            (partition,) = _INT32.unpack_from(data, position)
            _check_end(data, position + 4)
            return OffsetKey(group, topic, partition)
        if kind == _GROUP_KIND:
            group, position = read_string(data, 2)
            _check_end(data, position)
            return GroupKey(group)
    except MALFORMED as error:
        raise DecodeError(f"the key of a coordinator record: {error}") from error
    return None


def _check_end(data: bytes, position: int) -> None:
    if position != len(data):
        raise DecodeError(f"{len(data) - position} bytes behind the key of a coordinator record")
