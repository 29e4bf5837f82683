"""A Metadata answer put together from parts is byte for byte the one encoded at once."""

import pytest

from penstock.wire.kafka.generated.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
    encode_response,
)
from penstock.wire.kafka.metadata import encode_topic, encode_with_topics


def topic(name: str, partitions: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=3,
        name=name,
        topic_id=b"\x05" * 16,
        is_internal=True,
        partitions=[
            MetadataResponsePartition(partition_index=index, leader_id=9, replica_nodes=[9, 8], isr_nodes=[9])
            for index in range(partitions)
        ],
        topic_authorized_operations=77,
    )


def answer(version: int, topics: list[MetadataResponseTopic]) -> MetadataResponse:
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=1, host="h", port=2, rack="r" if version else None)],
        cluster_id="c",
        controller_id=1,
        topics=topics,
        cluster_authorized_operations=5 if 8 <= version <= 10 else -(2**31),
        error_code=6 if version >= 13 else 0,
    )


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize("count", [0, 1, 3, 126, 127, 20_000])
def test_parts_give_the_same_bytes(version: int, count: int) -> None:
    kinds = [topic("a", 0), topic("bb", 1), topic("c" * 200, 130)]
    encoded = [encode_topic(kind, version) for kind in kinds]
    if count > 1000:
        kinds, encoded = kinds[:1], encoded[:1]
    topics = [kinds[index % len(kinds)] for index in range(count)]
    parts = [encoded[index % len(encoded)] for index in range(count)]
    together = b"".join(encode_with_topics(answer(version, []), parts, version))
    assert together == encode_response(answer(version, topics), version)
