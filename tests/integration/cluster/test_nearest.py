"""librdkafka with `client.rack`: it reads from the replica in its rack, and goes on elsewhere when that dies."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.raw import wait_until
from tests.integration.test_observability import get, value

from penstock.config.replication_settings import RACK_AWARE
from penstock.testing import ClusterProcesses, cluster

RACKS = ("north", "south", "west")
TOPIC = "orders"
VALUE_BYTES = 1000
ROUND = 200


class World:
    def __init__(self, processes: ClusterProcesses) -> None:
        self.processes = processes
        self.admin = AdminClient({"bootstrap.servers": processes.bootstrap, "log_level": 0})
        topic = NewTopic(TOPIC, 1, 3, config={"min.insync.replicas": "2"})
        self.admin.create_topics([topic])[TOPIC].result()
        wait_until(lambda: self.in_sync() == [1, 2, 3], "all replicas in sync")
        self.producer = Producer({"bootstrap.servers": processes.bootstrap, "acks": "all", "log_level": 0})

    def in_sync(self) -> list[int]:
        partitions = self.admin.list_topics(TOPIC, timeout=60).topics[TOPIC].partitions
        return sorted(partitions[0].isrs) if 0 in partitions else []

    def leader(self) -> int:
        return int(self.admin.list_topics(TOPIC, timeout=60).topics[TOPIC].partitions[0].leader)

    def produce(self) -> None:
        for _ in range(ROUND):
            self.producer.produce(TOPIC, b"x" * VALUE_BYTES, partition=0)
        assert self.producer.flush() == 0

    def sent_bytes(self, broker: int) -> float:
        """To whoever connected to it; a follower's own fetches are received by its leader."""
        return value(get(self.processes.broker(broker), "/metrics")[1], "penstock_sent_bytes_total")


class Reader:
    """Keeps its place: an offset that is skipped or comes twice is an error."""

    def __init__(self, bootstrap: str, rack: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "client.rack": rack,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(TOPIC, 0, 0)])
        self.offset = 0

    def read(self, count: int) -> None:
        goal = self.offset + count
        while self.offset < goal:
            for message in self._consumer.consume(goal - self.offset, timeout=1.0):
                assert message.error() is None, message.error()
                assert message.offset() == self.offset
                self.offset += 1

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with cluster(3, {"replica.selector.class": RACK_AWARE}, directory=tmp_path, racks=RACKS) as processes:
        yield World(processes)


def test_a_consumer_reads_in_its_rack_and_goes_on_when_that_replica_dies(world: World) -> None:
    leader = world.leader()
    near = next(broker for broker in (1, 2, 3) if broker != leader)
    world.produce()
    before = world.sent_bytes(near)
    reader = Reader(world.processes.bootstrap, RACKS[near - 1])
    try:
        reader.read(ROUND)
        assert world.sent_bytes(near) - before >= ROUND * VALUE_BYTES

        world.processes.broker(near).kill()
        world.produce()
        reader.read(ROUND)

        world.processes.broker(near).start()
        wait_until(lambda: world.in_sync() == [1, 2, 3], "it is in sync again")

        def is_back() -> bool:
            begun = world.sent_bytes(near)
            world.produce()
            reader.read(ROUND)
            return world.sent_bytes(near) - begun >= ROUND * VALUE_BYTES

        wait_until(is_back, "the consumer reads in its rack again")
    finally:
        reader.close()
