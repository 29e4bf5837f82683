"""OffsetCommit, flattened by hand for the kind that consumers send over and over: one topic, short names.

    request   group, generation, member, instance, [topic, [partition, offset, leader epoch, metadata]]
    response  throttle_time_ms, [topic, [partition, error]]

Flexible versions only (8 to 10; v10 has topic ids in place of names). Every other kind, and everything that is damaged,
is left to the generated codec, which takes all versions apart and says what is wrong.

A consumer that commits one partition without metadata sends the same bytes each time, but for the last of them:

    … group to partition | offset i64 | leader epoch i32 | metadata | no tags, three times

so whoever remembers what the first part means (`split_last`) need not take it apart again.
"""

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from penstock.wire.kafka.primitives import MALFORMED

FLEXIBLE_SINCE = 8
TOPIC_IDS_SINCE = 10

_INT32 = Struct(">i")
_OFFSET = Struct(">iqi")  # partition, offset, leader epoch
_NO_TAGS_TWICE = bytes(2)
# Offset, leader epoch, length of the metadata, tagged fields of partition, topic and request.
_LAST = Struct(">qibbh")
_LAST_BYTES = _LAST.size
_NO_METADATA = {0: None, 1: ""}  # by the length that stands for it
_RESPONSE = Struct(">ii")  # size, correlation id
_ANSWER = Struct(">ihb")  # partition, error, no tagged fields
_LONG = 0x80  # lengths from here on take more than a byte
_HEADS_REMEMBERED = 1024

# (partition, offset, leader epoch, metadata)
Offset = tuple[int, int, int, str | None]


class OneTopic(NamedTuple):
    group: str
    generation: int
    member: str
    instance: str | None
    topic: bytes  # name or id, as it stands on the wire
    offsets: list[Offset]


def decode_single(buffer: bytes, position: int, version: int) -> OneTopic | None:
    """None: not of this kind, or not whole."""
    try:
        length = buffer[position]
        end = position + length
        if not 0 < length < _LONG:
            return None
        group = str(buffer[position + 1 : end], "utf-8", "replace")
        (generation,) = _INT32.unpack_from(buffer, end)
        position = end + 4
        length = buffer[position]
        end = position + length
        if not 0 < length < _LONG:
            return None
        member = str(buffer[position + 1 : end], "utf-8", "replace")
        position, instance = end, None
        length = buffer[position]
        if length >= _LONG:
            return None
        if length:
            end = position + length
            instance = str(buffer[position + 1 : end], "utf-8", "replace")
            position = end
        else:
            position += 1
        if buffer[position] != 2:  # a count is stored plus one
            return None
        position += 1
        if version >= TOPIC_IDS_SINCE:
            end = position + 16
            topic = buffer[position:end]
        else:
            length = buffer[position]
            end = position + length
            if not 0 < length < _LONG:
                return None
            topic = buffer[position + 1 : end]
        return _with_offsets(buffer, end, (group, generation, member, instance, topic))
    except MALFORMED:
        return None


def _with_offsets(
    buffer: bytes, position: int, head: tuple[str, int, str, str | None, bytes]
) -> OneTopic | None:
    count = buffer[position] - 1
    if not 0 < count < _LONG - 1:
        return None
    position += 1
    offsets: list[Offset] = []
    for _ in range(count):
        partition, offset, leader_epoch = _OFFSET.unpack_from(buffer, position)
        position += 16
        length = buffer[position]
        if length >= _LONG:
            return None
        end = position + (length or 1)
        metadata = str(buffer[position + 1 : end], "utf-8", "replace") if length else None
        if buffer[end]:
            return None
        position = end + 1
        offsets.append((partition, offset, leader_epoch, metadata))
    # Nothing but empty tagged fields may follow: of the topic and of the request.
    return OneTopic(*head, offsets) if buffer[position:] == _NO_TAGS_TWICE else None


def split_last(buffer: bytes, position: int) -> tuple[bytes, int, int, str | None] | None:
    """(the first part, offset, leader epoch, metadata) of a request that ends without metadata and tagged fields.

    Only what looks like one: the first part means something where `decode_single` found it in a request with a single
    partition and no metadata. Then whatever has the same first part is such a request, too.
    """
    end = len(buffer) - _LAST_BYTES
    if end <= position:
        return None
    offset, leader_epoch, length, partition_tags, other_tags = _LAST.unpack_from(buffer, end)
    if not 0 <= length <= 1 or partition_tags or other_tags:
        return None
    return buffer[position:end], offset, leader_epoch, _NO_METADATA[length]


def encode_single(
    correlation_id: int, version: int, topic: bytes, partitions: Sequence[int], codes: Sequence[int]
) -> bytes:
    """The whole response, with its header."""
    head = _head(topic, version, len(partitions))
    if len(partitions) == 1:
        answers = _ANSWER.pack(partitions[0], codes[0], 0)
    else:
        answers = b"".join(
            [_ANSWER.pack(partition, code, 0) for partition, code in zip(partitions, codes, strict=True)]
        )
    size = len(head) + len(answers) + 6
    return _RESPONSE.pack(size, correlation_id) + head + answers + _NO_TAGS_TWICE


@lru_cache(_HEADS_REMEMBERED)
def _head(topic: bytes, version: int, count: int) -> bytes:
    """What stands between the correlation id and the answers: no tagged fields, no throttling, one topic."""
    name = topic if version >= TOPIC_IDS_SINCE else bytes([len(topic) + 1]) + topic
    return bytes(5) + b"\x02" + name + bytes([count + 1])
