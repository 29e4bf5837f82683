"""What three real brokers promise real clients: acks=k means k replicas, and groups outlive their coordinators."""

import itertools
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.raw import wait_until

from penstock.testing import ClusterProcesses, cluster

BROKERS = 3
# Ends soon after a kill; one that ends because the machine is busy makes a test slower, not wrong.
SETTINGS = {"zookeeper.session.timeout.ms": "3000", "offsets.topic.num.partitions": "3"}
EAGER: dict[str, str | int] = {"reconnect.backoff.max.ms": 200, "retry.backoff.max.ms": 100, "log_level": 0}
_numbers = itertools.count()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    with cluster(BROKERS, SETTINGS, directory=tmp_path_factory.mktemp("cluster")) as processes:
        yield processes


@pytest.fixture
def three(running: ClusterProcesses) -> ClusterProcesses:
    running.start()
    return running


@pytest.fixture
def admin(three: ClusterProcesses) -> AdminClient:
    return AdminClient({"bootstrap.servers": three.bootstrap, **EAGER})


def create(admin: AdminClient) -> str:
    """A topic of one partition, when all three replicas are in sync."""
    topic = f"orders-{next(_numbers)}"
    admin.create_topics([NewTopic(topic, 1, BROKERS)])[topic].result()

    def is_whole() -> bool:
        partitions = admin.list_topics(topic, timeout=60).topics[topic].partitions
        return bool(partitions) and len(partitions[0].isrs) == BROKERS

    wait_until(is_whole, "all replicas are in sync")
    return topic


class Sender:
    """A librdkafka producer with these acks, and what it was told."""

    def __init__(self, cluster: ClusterProcesses, topic: str, acks: int) -> None:
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "acks": acks, "linger.ms": 0, **EAGER}
        )
        self.sent = 0
        self.offsets: list[int] = []

    def send(self) -> None:
        self.sent += 1
        self._producer.produce(self._topic, b"%d" % self.sent, partition=0, on_delivery=self._told)
        self._producer.poll(0)

    def _told(self, error: object, message: Message) -> None:
        assert error is None, error
        self.offsets.append(message.offset())

    @property
    def is_answered(self) -> bool:
        self._producer.poll(0)
        return len(self.offsets) == self.sent

    def until_answered(self) -> None:
        wait_until(lambda: self.is_answered, "everything is acknowledged")


@contextmanager
def paused(cluster: ClusterProcesses, broker: int) -> Iterator[None]:
    pid = cluster.broker(broker).pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_acks_2_waits_for_exactly_two_replicas(three: ClusterProcesses, admin: AdminClient) -> None:
    topic = create(admin)
    partition = admin.list_topics(topic, timeout=60).topics[topic].partitions[0]
    first, second = [replica for replica in partition.replicas if replica != partition.leader]
    one_of_three, two_of_three, three_of_three = (Sender(three, topic, acks) for acks in (1, 2, 3))
    for sender in (one_of_three, two_of_three, three_of_three):
        sender.send()
        sender.until_answered()

    def until_in_log(count: int) -> None:
        """Asked with acks=1, which waits for nobody: the offset tells what lies before it."""

        def is_there() -> bool:
            one_of_three.send()
            one_of_three.until_answered()
            return one_of_three.offsets[-1] + 1 - one_of_three.sent >= count

        wait_until(is_there, f"{count} messages of the others have reached the leader")

    with paused(three, first):
        three_of_three.send()
        until_in_log(3)
        two_of_three.send()
        two_of_three.until_answered()  # the leader and the second have it
        assert not three_of_three.is_answered, "acks=3 with two replicas"
        with paused(three, second):
            two_of_three.send()
            until_in_log(5)
            assert not two_of_three.is_answered, "acks=2 with the leader alone"
            assert not three_of_three.is_answered
        two_of_three.until_answered()  # the second is back
        assert not three_of_three.is_answered, "acks=3 with two replicas"
    three_of_three.until_answered()


def test_the_offsets_of_a_group_survive_its_coordinator(three: ClusterProcesses, admin: AdminClient) -> None:
    topic = create(admin)
    sender = Sender(three, topic, -1)
    for _ in range(10):
        sender.send()
    sender.until_answered()
    consumer = Consumer(
        {
            "bootstrap.servers": three.bootstrap,
            "group.id": "shop",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 45_000,
            **EAGER,
        }
    )
    consumer.subscribe([topic])
    try:
        assert read(consumer, 5) == [b"1", b"2", b"3", b"4", b"5"]
        consumer.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
        coordinator = coordinator_of(admin, "shop")
        three.broker(coordinator).kill()
        # The same consumer goes on, and so does the group in the memory of another broker.
        assert committed(consumer, topic) == 5
        assert read(consumer, 5) == [b"6", b"7", b"8", b"9", b"10"]
        consumer.commit(offsets=[TopicPartition(topic, 0, 10)], asynchronous=False)
        assert coordinator_of(admin, "shop") != coordinator
        three.broker(coordinator).start()
        assert committed(consumer, topic) == 10
    finally:
        consumer.close()


def read(consumer: Consumer, count: int) -> list[bytes]:
    values: list[bytes] = []
    while len(values) < count:
        message = consumer.poll(1.0)
        if message is not None:
            assert message.error() is None, message.error()
            values.append(message.value())
    return values


def committed(consumer: Consumer, topic: str) -> int:
    (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=60)
    assert found.error is None, found.error
    return int(found.offset)


def coordinator_of(admin: AdminClient, group: str) -> int:
    found = admin.describe_consumer_groups([group])[group].result()
    return int(found.coordinator.id)
