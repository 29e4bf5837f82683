"""Rows that can be compared: from a DataFrame of either source, and from librdkafka, which is neither."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame

WAIT_S = 60
# Every column of the source; the time as a number, since `datetime` would hide a wrong zone.
COLUMNS = ("topic", "partition", "offset", "unix_millis(timestamp)", "timestampType", "key", "value")


class Seen(NamedTuple):
    """One record with all that a reader can know of it; sorts by where it is."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] | None


def of_frame(frame: DataFrame) -> list[Seen]:
    """By topic, partition and offset; Spark promises no order between its tasks."""
    headed = "headers" in frame.columns
    found = [
        Seen(
            *row[:5],
            _bytes(row[5]),
            _bytes(row[6]),
            None
            if not headed or row.headers is None
            else tuple((header.key, _bytes(header.value)) for header in row.headers),
        )
        for row in frame.selectExpr(*COLUMNS, *(["headers"] if headed else [])).collect()
    ]
    return sorted(found, key=lambda seen: seen[:3])


def of_consumer(bootstrap: str, topics: Iterable[str], *, committed: bool = False) -> list[Seen]:
    """All there is, until the end of every partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    try:
        found: list[Seen] = []
        for topic in topics:
            partitions = consumer.list_topics(topic, timeout=WAIT_S).topics[topic].partitions
            begins = {
                number: consumer.get_watermark_offsets(TopicPartition(topic, number), WAIT_S)[0]
                for number in partitions
            }
            consumer.assign([TopicPartition(topic, number, begin) for number, begin in begins.items()])
            found += _until_the_end(consumer, len(partitions))
    finally:
        consumer.close()
    return sorted(found, key=lambda seen: seen[:3])


def _until_the_end(consumer: Consumer, partitions: int) -> list[Seen]:
    found, ended = [], 0
    while ended < partitions:
        message = consumer.poll(WAIT_S)
        assert message is not None, "the broker does not answer"
        error = message.error()
        if error is None:
            kind, timestamp = message.timestamp()
            headers = message.headers()
            at = (message.topic(), message.partition(), message.offset(), timestamp, kind - 1)
            found.append(Seen(*at, message.key(), message.value(), tuple(headers) if headers else None))
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended += 1
    return found


def _bytes(value: bytearray | bytes | None) -> bytes | None:
    return None if value is None else bytes(value)
