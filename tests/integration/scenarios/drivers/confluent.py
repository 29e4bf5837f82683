"""confluent-kafka, which is librdkafka."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Any, ClassVar

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)
from tests.integration.scenarios.drivers.base import CONSUME_DEADLINE_S, PythonDriver, error
from tests.integration.scenarios.records import Consumed, Record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SPECS = {
    "earliest": OffsetSpec.earliest,
    "latest": OffsetSpec.latest,
    "max_timestamp": OffsetSpec.max_timestamp,
}


def _outcome(future: Any) -> Any:
    """A future's result, or the broker's error code."""
    try:
        return future.result()
    except KafkaException as failure:
        return error(failure.args[0].code())


def _done(future: Any) -> Any:
    result = _outcome(future)
    return result if isinstance(result, dict) else "ok"


class ConfluentDriver(PythonDriver):
    name = "confluent-kafka"
    gaps: ClassVar[Mapping[str, str]] = {
        "describe_log_dirs": "librdkafka has no DescribeLogDirs",
        "describe_producers": "librdkafka has no DescribeProducers",
        "admin_log_dirs": "librdkafka has no DescribeLogDirs",
        "admin_producers": "librdkafka has no DescribeProducers",
    }

    def __init__(self) -> None:
        self._admins: dict[str, AdminClient] = {}

    def _admin(self, bootstrap: str) -> AdminClient:
        return self._admins.setdefault(bootstrap, AdminClient({"bootstrap.servers": bootstrap}))

    def close(self) -> None:
        self._admins.clear()

    def produce(
        self,
        bootstrap: str,
        *,
        topic: str,
        partition: int,
        records: Sequence[Record],
        compression: str = "none",
        acks: int = -1,
        idempotent: bool = False,
        batch_records: int = 10_000,
        max_request_bytes: int = 1_000_000,
    ) -> Any:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": compression,
                "acks": acks,
                "enable.idempotence": idempotent,
                "batch.num.messages": batch_records,
                "message.max.bytes": max_request_bytes,
                "linger.ms": 5,
                "message.timeout.ms": 60_000,
            }
        )
        outcomes: list[Any] = []
        for record in records:
            options: dict[str, Any] = (
                {} if record.timestamp_ms is None else {"timestamp": record.timestamp_ms}
            )
            producer.produce(
                topic,
                partition=partition,
                key=record.key,
                value=record.value,
                headers=list(record.headers),
                on_delivery=lambda failure, _: outcomes.append(failure),
                **options,
            )
        producer.flush()
        failures = [failure for failure in outcomes if failure is not None]
        return error(failures[0].code()) if failures else {"acknowledged": len(outcomes)}

    def _consumer(self, bootstrap: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "none",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.message.max.bytes": 4 << 20,
            }
        )

    def consume(self, bootstrap: str, *, topic: str, partition: int, offset: int, count: int) -> Any:
        consumer = self._consumer(bootstrap)
        found: list[Consumed] = []
        try:
            consumer.assign([TopicPartition(topic, partition, offset)])
            deadline = time.monotonic() + CONSUME_DEADLINE_S
            while len(found) < count and time.monotonic() < deadline:
                message: Any
                for message in consumer.consume(count - len(found), timeout=1.0):
                    if message.error():
                        return error(message.error().code())
                    found.append(
                        Consumed(
                            message.offset(),
                            message.value(),
                            message.key(),
                            tuple(message.headers() or ()),
                            message.timestamp()[1],
                        )
                    )
        finally:
            consumer.close()
        return found

    def offset_for_time(self, bootstrap: str, *, topic: str, partition: int, timestamp: int) -> int | None:
        consumer = self._consumer(bootstrap)
        try:
            found = consumer.offsets_for_times([TopicPartition(topic, partition, timestamp)], timeout=30)
        finally:
            consumer.close()
        return None if found[0].offset < 0 else int(found[0].offset)

    def create_topic(
        self,
        bootstrap: str,
        *,
        topic: str,
        partitions: int,
        replicas: int = 1,
        configs: dict[str, str] | None = None,
    ) -> Any:
        wanted = NewTopic(topic, num_partitions=partitions, replication_factor=replicas, config=configs or {})
        return _done(self._admin(bootstrap).create_topics([wanted])[topic])

    def delete_topic(self, bootstrap: str, *, topic: str) -> Any:
        return _done(self._admin(bootstrap).delete_topics([topic])[topic])

    def list_topics(self, bootstrap: str) -> list[str]:
        return list(self._admin(bootstrap).list_topics(timeout=30).topics)

    def describe_topic(self, bootstrap: str, *, topic: str) -> Any:
        found = self._admin(bootstrap).list_topics(topic, timeout=30).topics[topic]
        if found.error is not None:
            return error(found.error.code())
        return {
            "partitions": [
                {
                    "id": metadata.id,
                    "leader": metadata.leader,
                    "replicas": metadata.replicas,
                    "isr": metadata.isrs,
                }
                for _, metadata in sorted(found.partitions.items())
            ]
        }

    def create_partitions(self, bootstrap: str, *, topic: str, count: int) -> Any:
        return _done(self._admin(bootstrap).create_partitions([NewPartitions(topic, count)])[topic])

    def _entries(self, bootstrap: str, topic: str) -> Any:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        return _outcome(self._admin(bootstrap).describe_configs([resource])[resource])

    def describe_config(self, bootstrap: str, *, topic: str, names: list[str]) -> Any:
        entries = self._entries(bootstrap, topic)
        return {name: entries[name].value for name in names}

    def describe_default(self, bootstrap: str, *, topic: str, names: list[str]) -> Any:
        entries = self._entries(bootstrap, topic)
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return {name: entries[name].source != own for name in names}

    def alter_config(self, bootstrap: str, *, topic: str, configs: dict[str, str]) -> Any:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, set_config=configs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # deprecated is not gone: users still call it
            return _done(self._admin(bootstrap).alter_configs([resource])[resource])

    def incremental_alter_config(
        self, bootstrap: str, *, topic: str, assign: dict[str, str] | None = None, delete: Sequence[str] = ()
    ) -> Any:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in (assign or {}).items()
        ] + [ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE) for name in delete]
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
        return _done(self._admin(bootstrap).incremental_alter_configs([resource])[resource])

    def delete_records(self, bootstrap: str, *, topic: str, partition: int, before: int) -> Any:
        where = TopicPartition(topic, partition, before)
        result = _outcome(next(iter(self._admin(bootstrap).delete_records([where]).values())))
        return result if isinstance(result, dict) else {"low_watermark": result.low_watermark}

    def list_offsets(self, bootstrap: str, *, topic: str, partition: int, at: str | int) -> Any:
        spec = _SPECS[at]() if isinstance(at, str) else OffsetSpec.for_timestamp(at)
        where = TopicPartition(topic, partition)
        result = _outcome(self._admin(bootstrap).list_offsets({where: spec})[where])
        return result if isinstance(result, dict) else {"offset": result.offset}

    def describe_cluster(self, bootstrap: str) -> Any:
        found = self._admin(bootstrap).describe_cluster().result()
        return {
            "cluster_id": found.cluster_id,
            "controller": found.controller.id,
            "nodes": [{"id": node.id, "host": node.host, "port": node.port} for node in found.nodes],
        }
