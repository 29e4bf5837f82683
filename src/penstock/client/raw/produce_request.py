"""Produce requests in pieces, so that the records are sent from where they lie.

transactional_id (null), acks, timeout_ms, [topic, [partition, records]]        versions 3 to 13

v9  flexible: compact lengths, tagged fields        v13 topics by id instead of by name
"""

import uuid
from collections.abc import Mapping, Sequence
from struct import Struct

from penstock.client.raw.stamping import Batch
from penstock.wire.kafka.primitives import Buffer, write_uvarint
from penstock.wire.kafka.produce import FLEXIBLE_SINCE, TOPIC_IDS_SINCE

# The first with record batches.
VERSION_MIN = 3
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_HEAD = Struct(">hi")  # acks, timeout
_NO_TAGS = 0

# A topic as it is named on the wire: by its name, or its id.
TopicKey = str | bytes


def topic_key(name: str, topic_id: uuid.UUID | None, version: int) -> TopicKey:
    if version < TOPIC_IDS_SINCE:
        return name
    assert topic_id is not None
    return topic_id.bytes


def request_parts(
    version: int, acks: int, timeout_ms: int, topics: Mapping[TopicKey, Sequence[Batch]]
) -> list[Buffer]:
    flexible = version >= FLEXIBLE_SINCE
    parts: list[Buffer] = []
    out = bytearray(b"\x00" if flexible else b"\xff\xff")
    out += _HEAD.pack(acks, timeout_ms)
    _count(out, len(topics), flexible=flexible)
    for topic, batches in topics.items():
        _name(out, topic, flexible=flexible)
        _count(out, len(batches), flexible=flexible)
        for batch in batches:
            out += _INT32.pack(batch.at.partition)
            _count(out, batch.size_bytes, flexible=flexible)
            parts += (out, batch.head, batch.rest)
            out = bytearray()
            if flexible:
                out.append(_NO_TAGS)
        if flexible:
            out.append(_NO_TAGS)
    if flexible:
        out.append(_NO_TAGS)
    if out:
        parts.append(out)
    return parts


def _count(out: bytearray, count: int, *, flexible: bool) -> None:
    if flexible:
        write_uvarint(out, count + 1)
    else:
        out += _INT32.pack(count)


def _name(out: bytearray, topic: TopicKey, *, flexible: bool) -> None:
    if isinstance(topic, bytes):
        out += topic
        return
    encoded = topic.encode()
    if flexible:
        write_uvarint(out, len(encoded) + 1)
    else:
        out += _INT16.pack(len(encoded))
    out += encoded
