"""What the tests do to a broker, with librdkafka: an implementation that is not ours."""

import re
import uuid
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from pyspark.sql import DataFrameReader, SparkSession
from pyspark.sql.streaming import DataStreamReader

WAIT_S = 60
# A client that lives on behind its broker would write to the stderr that a later test looks at.
_SILENT = {"log_level": 0}


class Sent(NamedTuple):
    """One message as it was produced."""

    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    timestamp: int = 1_700_000_000_000
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Topics:
    def __init__(self, bootstrap: str, prefix: str = "") -> None:
        self.bootstrap = bootstrap
        self.prefix = re.sub(r"[^a-z0-9]+", "-", prefix.lower())[:60] + "-" + uuid.uuid4().hex[:8]
        self._admin = AdminClient({"bootstrap.servers": bootstrap} | _SILENT)

    def create(
        self,
        name: str = "t",
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
        *,
        exact: bool = False,
    ) -> str:
        topic = name if exact else f"{self.prefix}.{name}"
        self._admin.create_topics([NewTopic(topic, partitions, config=dict(config or {}))])[topic].result(
            WAIT_S
        )
        return topic

    def delete(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(WAIT_S)

    def grow(self, topic: str, partitions: int) -> None:
        self._admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(WAIT_S)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        at = TopicPartition(topic, partition, before)
        for future in self._admin.delete_records([at]).values():
            future.result(WAIT_S)

    def produce(self, topic: str, messages: Sequence[Sent], **settings: object) -> None:
        failed: list[object] = []
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5} | _SILENT | settings)
        for message in messages:
            producer.produce(
                topic,
                message.value,
                key=message.key,
                partition=message.partition,
                timestamp=message.timestamp,
                headers=list(message.headers),
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
            producer.poll(0)
        assert producer.flush(WAIT_S) == 0
        assert not failed, failed[0]

    def count_up(self, topic: str, first: int, count: int, partitions: int = 1) -> None:
        """Messages with the values first, first + 1, …, in turn over the partitions."""
        self.produce(
            topic,
            [Sent(b"%d" % number, partition=number % partitions) for number in range(first, first + count)],
        )

    def produce_many(self, topic: str, count: int, value_bytes: int) -> None:
        """As `count_up` from 0, to one partition, with zeros in front and in small batches."""
        values = (b"%d" % number for number in range(count))
        sent = [Sent(value.rjust(value_bytes, b"0")) for value in values]
        self.produce(topic, sent, **{"batch.num.messages": 100})

    def consume(self, topic: str, count: int) -> list[Sent]:
        """`count` messages, by partition and offset, as an ordinary consumer sees them."""
        settings = {"bootstrap.servers": self.bootstrap, "group.id": "unused", "enable.auto.commit": False}
        consumer = Consumer(settings)
        try:
            known = consumer.list_topics(topic, timeout=WAIT_S).topics[topic].partitions
            consumer.assign([TopicPartition(topic, number, 0) for number in known])
            found = []
            while len(found) < count:
                message = consumer.poll(WAIT_S)
                assert message is not None, f"only {len(found)} of {count} messages"
                assert message.error() is None, message.error()
                found.append(message)
        finally:
            consumer.close()
        found.sort(key=lambda message: (message.partition(), message.offset()))
        return [
            Sent(m.value(), m.key(), m.partition(), m.timestamp()[1], tuple(m.headers() or ())) for m in found
        ]

    def read(self, spark: SparkSession, topic: str | None = None) -> DataFrameReader:
        reader = spark.read.format("penstock").option("kafka.bootstrap.servers", self.bootstrap)
        return reader if topic is None else reader.option("subscribe", topic)

    def stream(self, spark: SparkSession, topic: str | None = None) -> DataStreamReader:
        reader = spark.readStream.format("penstock").option("kafka.bootstrap.servers", self.bootstrap)
        return reader if topic is None else reader.option("subscribe", topic)
