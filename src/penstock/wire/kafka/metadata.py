"""Metadata answers put together from topics that were encoded before.

Every client asks for Metadata again and again while topics hardly ever change, and encoding thousands of partitions
each time would hold up everybody else on the loop. In an answer the topics stand between a head (brokers, cluster,
controller) and a short tail:

    … brokers, cluster id, controller id | count, topic, topic, … | cluster operations (v8-10), error (v13), tags (v9+)
"""

from collections.abc import Sequence
from functools import cache
from struct import Struct

from penstock.wire.kafka.generated.metadata import (
    FLEXIBLE_SINCE,
    MetadataResponse,
    MetadataResponseTopic,
    encode_response,
)
from penstock.wire.kafka.primitives import write_compact_count

_COUNT = Struct(">i")


def encode_topic(topic: MetadataResponseTopic, version: int) -> bytes:
    """One topic as it stands in an answer of this version."""
    alone = encode_response(MetadataResponse(topics=[topic]), version)
    tail = _tail_bytes(version)
    return alone[_empty_bytes(version) - tail : len(alone) - tail]


def encode_with_topics(response: MetadataResponse, topics: Sequence[bytes], version: int) -> list[bytes]:
    """An answer in pieces: itself without topics, around topics from `encode_topic`."""
    body = encode_response(response, version)
    end = len(body) - _tail_bytes(version)
    if version < FLEXIBLE_SINCE:
        return [body[: end - _COUNT.size], _COUNT.pack(len(topics)), *topics, body[end:]]
    count = bytearray()
    write_compact_count(count, len(topics))
    return [body[: end - 1], bytes(count), *topics, body[end:]]


@cache
def _empty_bytes(version: int) -> int:
    return len(encode_response(MetadataResponse(), version))


def _tail_bytes(version: int) -> int:
    operations = 4 if 8 <= version <= 10 else 0
    error = 2 if version >= 13 else 0
    tags = 1 if version >= FLEXIBLE_SINCE else 0
    return operations + error + tags
