"""What simulated clients send and how they read the answers: numbered values, and the requests that carry them."""

from collections.abc import Sequence
from typing import Any

from penstock.records.batch import HEADER_BYTES
from penstock.records.builder import BatchOptions, build_batch
from penstock.records.reader import Record, read_all
from penstock.wire.kafka.generated import create_topics, fetch, produce

TOPIC = "orders"
PARTITIONS = 2
PRODUCERS = 3
NETWORK_TROUBLE = (OSError, TimeoutError)


def numbered(producer: int, sequence: int, count: int) -> list[bytes]:
    return [b"%d-%d" % (producer, sequence + i) for i in range(count)]


def batch_of(values: Sequence[bytes], options: BatchOptions | None = None) -> bytes:
    records = [Record(offset=i, timestamp=1, key=None, value=value) for i, value in enumerate(values)]
    return bytes(build_batch(records, options))


def idempotent(producer: int, sequence: int) -> BatchOptions:
    return BatchOptions(producer_id=1000 + producer, producer_epoch=0, base_sequence=sequence)


def create_request(
    configs: dict[str, str], *, name: str = TOPIC, replicas: int = 1, timeout_ms: int = 1000
) -> create_topics.CreateTopicsRequest:
    wanted = create_topics.CreatableTopic(
        name=name,
        num_partitions=PARTITIONS,
        replication_factor=replicas,
        configs=[create_topics.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    return create_topics.CreateTopicsRequest(topics=[wanted], timeout_ms=timeout_ms)


def produce_request(
    partition: int,
    batch: bytes,
    *,
    acks: int = -1,
    timeout_ms: int = 1000,
    topic_id: bytes = bytes(16),
    transactional_id: str | None = None,
) -> produce.ProduceRequest:
    data = produce.PartitionProduceData(index=partition, records=batch)
    topic = produce.TopicProduceData(name=TOPIC, topic_id=topic_id, partition_data=[data])
    return produce.ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topic_data=[topic]
    )


def fetch_request(
    partition: int,
    offset: int,
    *,
    rack: str = "",
    epoch: int = -1,
    last_epoch: int = -1,
    max_wait_ms: int = 100,
    isolation: int = 0,
) -> fetch.FetchRequest:
    wanted = fetch.FetchPartition(
        partition=partition,
        fetch_offset=offset,
        current_leader_epoch=epoch,
        last_fetched_epoch=last_epoch,
        partition_max_bytes=2000,
    )
    return fetch.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=10_000,
        isolation_level=isolation,
        rack_id=rack,
        topics=[fetch.FetchTopic(topic=TOPIC, partitions=[wanted])],
    )


def records_of(answer: Any, offset: int) -> list[Record]:
    """What a partition's answer to a fetch holds, from `offset` on: a batch may begin before it."""
    data = bytes(answer.records or b"")
    if len(data) <= HEADER_BYTES:
        return []
    return [record for record in read_all(memoryview(data)) if record.offset >= offset]
