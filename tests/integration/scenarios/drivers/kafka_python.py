"""kafka-python, which is pure Python."""

from __future__ import annotations

import re
import time
import warnings
from typing import TYPE_CHECKING, Any, ClassVar

from tests.integration.scenarios.drivers.base import CONSUME_DEADLINE_S, PythonDriver, error
from tests.integration.scenarios.records import Consumed, Record

with warnings.catch_warnings():
    # The library reads its schemas through a deprecated function while it is imported.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import AlterConfigOp, ConfigResource, OffsetSpec
    from kafka.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_SPECS = {
    "earliest": OffsetSpec.EARLIEST,
    "latest": OffsetSpec.LATEST,
    "max_timestamp": OffsetSpec.MAX_TIMESTAMP,
}


def _answer(call: Callable[[], Any]) -> Any:
    """What the call gives, or the broker's error code."""
    try:
        return call()
    except KafkaError as failure:
        return error(failure.errno)


def _done(call: Callable[[], Any]) -> Any:
    result = _answer(call)
    return result if isinstance(result, dict) and "error" in result else "ok"


class KafkaPythonDriver(PythonDriver):
    name = "kafka-python"
    gaps: ClassVar[Mapping[str, str]] = {
        "null_header_value": "kafka-python refuses null header values",
        "admin_configs_replaced": "kafka-python adds the settings that a call leaves out",
    }

    def __init__(self) -> None:
        self._admins: dict[str, KafkaAdminClient] = {}

    def _admin(self, bootstrap: str) -> KafkaAdminClient:
        if bootstrap not in self._admins:
            self._admins[bootstrap] = KafkaAdminClient(bootstrap_servers=bootstrap)
        return self._admins[bootstrap]

    def close(self) -> None:
        for admin in self._admins.values():
            admin.close()

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
        batch_records: int = 0,
        max_request_bytes: int = 1 << 20,
    ) -> Any:
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if compression == "none" else compression,
            acks=acks,
            enable_idempotence=idempotent,
            # The library counts a batch in bytes: room for about as many of the catalog's records.
            batch_size=batch_records * 220 if batch_records else 16_384,
            max_request_size=max_request_bytes,
            linger_ms=5,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            producer.flush()
            for future in futures:
                future.get(timeout=60)
        except KafkaError as failure:
            return error(failure.errno)
        finally:
            producer.close()
        return {"acknowledged": len(futures)}

    def _consumer(self, bootstrap: str) -> KafkaConsumer:
        return KafkaConsumer(
            bootstrap_servers=bootstrap, enable_auto_commit=False, max_partition_fetch_bytes=4 << 20
        )

    def consume(self, bootstrap: str, *, topic: str, partition: int, offset: int, count: int) -> Any:
        consumer = self._consumer(bootstrap)
        where = TopicPartition(topic, partition)
        found: list[Consumed] = []
        try:
            consumer.assign([where])
            consumer.seek(where, offset)
            deadline = time.monotonic() + CONSUME_DEADLINE_S
            while len(found) < count and time.monotonic() < deadline:
                for record in consumer.poll(timeout_ms=1000, max_records=count - len(found)).get(where, ()):
                    headers = tuple((name, value) for name, value in record.headers)
                    found.append(Consumed(record.offset, record.value, record.key, headers, record.timestamp))
        finally:
            consumer.close()
        return found

    def offset_for_time(self, bootstrap: str, *, topic: str, partition: int, timestamp: int) -> int | None:
        consumer = self._consumer(bootstrap)
        where = TopicPartition(topic, partition)
        try:
            found = consumer.offsets_for_times({where: timestamp})[where]
        finally:
            consumer.close()
        return None if found is None else int(found.offset)

    def create_topic(
        self,
        bootstrap: str,
        *,
        topic: str,
        partitions: int,
        replicas: int = 1,
        configs: dict[str, str] | None = None,
    ) -> Any:
        wanted = {"num_partitions": partitions, "replication_factor": replicas, "configs": configs or {}}
        return _done(lambda: self._admin(bootstrap).create_topics({topic: wanted}))

    def delete_topic(self, bootstrap: str, *, topic: str) -> Any:
        return _done(lambda: self._admin(bootstrap).delete_topics([topic]))

    def list_topics(self, bootstrap: str) -> list[str]:
        return list(self._admin(bootstrap).list_topics())

    def describe_topic(self, bootstrap: str, *, topic: str) -> Any:
        (found,) = self._admin(bootstrap).describe_topics([topic])
        if found["error_code"]:
            return error(found["error_code"])
        partitions = sorted(found["partitions"], key=lambda partition: partition["partition_index"])
        return {
            "partitions": [
                {
                    "id": partition["partition_index"],
                    "leader": partition["leader_id"],
                    "replicas": partition["replica_nodes"],
                    "isr": partition["isr_nodes"],
                }
                for partition in partitions
            ]
        }

    def create_partitions(self, bootstrap: str, *, topic: str, count: int) -> Any:
        return _done(lambda: self._admin(bootstrap).create_partitions({topic: count}))

    def _entries(self, bootstrap: str, topic: str) -> Any:
        resource = ConfigResource("TOPIC", topic)
        return self._admin(bootstrap).describe_configs([resource], config_filter="all")["topic"][topic]

    def describe_config(self, bootstrap: str, *, topic: str, names: list[str]) -> Any:
        entries = self._entries(bootstrap, topic)
        return {name: entries[name]["value"] for name in names}

    def describe_default(self, bootstrap: str, *, topic: str, names: list[str]) -> Any:
        entries = self._entries(bootstrap, topic)
        return {name: "TOPIC" not in entries[name]["config_source"] for name in names}

    def alter_config(self, bootstrap: str, *, topic: str, configs: dict[str, str]) -> Any:
        resource = ConfigResource("TOPIC", topic, configs)
        return self._alter(bootstrap, topic, resource, incremental=False)

    def _alter(self, bootstrap: str, topic: str, resource: ConfigResource, *, incremental: bool) -> Any:
        """The library answers with a text per resource, "OK" or "[Error <code>] …"."""
        answer = self._admin(bootstrap).alter_configs([resource], incremental=incremental)["topic"][topic]
        failure = re.match(r"\[Error (-?\d+)\]", answer)
        return error(int(failure.group(1))) if failure else "ok"

    def incremental_alter_config(
        self, bootstrap: str, *, topic: str, assign: dict[str, str] | None = None, delete: Sequence[str] = ()
    ) -> Any:
        changes: dict[str, Any] = {name: (AlterConfigOp.SET, value) for name, value in (assign or {}).items()}
        changes.update(dict.fromkeys(delete, (AlterConfigOp.DELETE, None)))
        resource = ConfigResource("TOPIC", topic, changes)
        return self._alter(bootstrap, topic, resource, incremental=True)

    def delete_records(self, bootstrap: str, *, topic: str, partition: int, before: int) -> Any:
        where = TopicPartition(topic, partition)
        result = _answer(lambda: self._admin(bootstrap).delete_records({where: before}))
        return result if "error" in result else {"low_watermark": result[where]["low_watermark"]}

    def list_offsets(self, bootstrap: str, *, topic: str, partition: int, at: str | int) -> Any:
        where = TopicPartition(topic, partition)
        spec = _SPECS[at] if isinstance(at, str) else at
        result = _answer(lambda: self._admin(bootstrap).list_partition_offsets({where: spec}))
        return result if "error" in result else {"offset": result[where].offset}

    def describe_cluster(self, bootstrap: str) -> Any:
        found = self._admin(bootstrap).describe_cluster()
        nodes = [{"id": broker["broker_id"], "host": broker["host"]} for broker in found["brokers"]]
        return {"cluster_id": found["cluster_id"], "controller": found["controller_id"], "nodes": nodes}

    def describe_log_dirs(self, bootstrap: str, *, topic: str) -> Any:
        dirs = [
            entry
            for broker in self._admin(bootstrap).describe_log_dirs([topic])
            for entry in broker["log_dirs"]
        ]
        sizes = [
            partition["partition_size"]
            for entry in dirs
            for found in entry["topics"]
            if found["name"] == topic
            for partition in found["partitions"]
        ]
        return {"bytes": sum(sizes)}

    def describe_producers(self, bootstrap: str, *, topic: str, partition: int) -> Any:
        where = TopicPartition(topic, partition)
        state = self._admin(bootstrap).describe_producers([where])[where]
        return [
            {"last_sequence": active_producer.last_sequence} for active_producer in state.active_producers
        ]
