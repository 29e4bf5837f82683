"""A stream over a partition that is retired, leaves its topic, is removed and grown again (R7, A3), with a real broker.

The stream's reader is driven as Spark drives it; no session is needed for that.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.integration.raw import wait_until

from penstock import Admin, Producer
from penstock.client.errors import ClientError
from penstock.spark.errors import DataLossError
from penstock.spark.options import read_options
from penstock.spark.schema import source_schema
from penstock.spark.streaming import StreamReader
from penstock.testing import BrokerProcess, broker

SETTINGS = {
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "0",
    "penstock.retire.check.interval.ms": "200",
}
SHORT = {
    "segment.ms": "500",
    "file.delete.delay.ms": "0",
    "penstock.retire.grace.ms": "1000",
}


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker(SETTINGS) as process:
        yield process


def reader(bootstrap: str, topic: str) -> StreamReader:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    return StreamReader(read_options(options, streaming=True), source_schema(headers=False))


def values(stream: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
    parts = stream.partitions(start, end)
    return [
        value for part in parts for batch in stream.read(part) for value in batch.column("value").to_pylist()
    ]


def read_and_retired(admin: Admin, stream: StreamReader, topic: str, bootstrap: str) -> dict[str, Any]:
    """Where the stream stands after it has read everything and partition 2 has left the metadata."""
    admin.create(topic, partitions=3, configs=SHORT)
    with Producer(bootstrap) as producer:
        for number in range(30):
            producer.send(topic, b"old", partition=number % 3)
    start = stream.initialOffset()
    at = stream.latestOffset(start, ReadAllAvailable())
    assert values(stream, start, at) == [b"old"] * 30
    admin.retire_partitions(topic, 2)
    admin.alter_configs(topic, {"retention.ms": "500"})
    wait_until(lambda: len(admin.partition_indexes(topic)) == 2, "the partition to leave the metadata")
    admin.alter_configs(topic, {"retention.ms": "86400000"})
    following = stream.latestOffset(at, ReadAllAvailable())
    assert values(stream, at, following) == []
    return following


def test_a_stream_goes_on_when_a_partition_has_left(running: BrokerProcess) -> None:
    topic = "retired"
    stream = reader(running.bootstrap, topic)
    at = read_and_retired(Admin(running.bootstrap), stream, topic, running.bootstrap)
    with Producer(running.bootstrap) as producer:
        producer.send(topic, b"new", partition=1)
    for going_on in (stream, reader(running.bootstrap, topic)):
        following = going_on.latestOffset(at, ReadAllAvailable())
        assert values(going_on, at, following) == [b"new"]
        going_on.stop()


def test_nothing_is_skipped_of_a_partition_grown_again(running: BrokerProcess) -> None:
    admin, topic = Admin(running.bootstrap), "retired-and-grown"
    stream = reader(running.bootstrap, topic)
    at = read_and_retired(admin, stream, topic, running.bootstrap)
    stream.stop()
    wait_until(lambda: grown(admin, topic), "the retired partition to be removed")
    with Producer(running.bootstrap) as producer:
        for _ in range(25):
            producer.send(topic, b"new", partition=2)
    again = reader(running.bootstrap, topic)
    newest = again.latestOffset(at, ReadAllAvailable())
    assert values(again, at, newest) == [b"new"] * 25
    again.stop()


def grown(admin: Admin, topic: str) -> bool:
    """Its number is in use until the retired one is removed."""
    try:
        admin.add_partitions(topic, 3)
    except ClientError:
        return False
    return True


def test_the_end_of_a_retired_partition_that_nobody_read_is_a_loss(running: BrokerProcess) -> None:
    admin, topic = Admin(running.bootstrap), "retired-unread"
    stream = reader(running.bootstrap, topic)
    admin.create(topic, partitions=3, configs=SHORT)
    with Producer(running.bootstrap) as producer:
        producer.send(topic, b"old", partition=2)
        producer.flush()
        at = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
        for _ in range(7):
            producer.send(topic, b"after the last look", partition=2)
    admin.retire_partitions(topic, 2)
    admin.alter_configs(topic, {"retention.ms": "500"})
    wait_until(lambda: len(admin.partition_indexes(topic)) == 2, "the partition to leave the metadata")
    with pytest.raises(DataLossError, match="its records from offset 1 to 8 are gone unread"):
        stream.latestOffset(at, ReadAllAvailable())
    wait_until(lambda: grown(admin, topic), "the retired partition to be removed")
    admin.retire_partitions(topic, 2)
    wait_until(lambda: len(admin.partition_indexes(topic)) == 2, "the second one to leave the metadata")
    with pytest.raises(DataLossError, match="its records from offset 1 to 8 are gone unread"):
        stream.latestOffset(at, ReadAllAvailable())
    stream.stop()


def test_a_stream_that_came_while_it_was_gone_reads_it_from_where_it_begins(running: BrokerProcess) -> None:
    admin, topic = Admin(running.bootstrap), "retired-before"
    first = reader(running.bootstrap, topic)
    read_and_retired(admin, first, topic, running.bootstrap)
    first.stop()
    late = reader(running.bootstrap, topic)
    at = late.latestOffset(late.initialOffset(), ReadAllAvailable())
    wait_until(lambda: grown(admin, topic), "the retired partition to be removed")
    with Producer(running.bootstrap) as producer:
        for _ in range(5):
            producer.send(topic, b"new", partition=2)
    following = late.latestOffset(at, ReadAllAvailable())
    assert values(late, at, following) == [b"new"] * 5
    late.stop()
