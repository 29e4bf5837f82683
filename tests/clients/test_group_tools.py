"""Kafka's own kafka-consumer-groups and kafka-dump-log read our groups and their log (`make clients`)."""

from __future__ import annotations

import json
import re
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.raw import wait_until
from tests.integration.scenarios.peer import running_peer
from tools.peers import apache_kafka

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.peers import BrokerProcess

pytestmark = pytest.mark.clients
GROUPS_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
DUMP_TOOL = "org.apache.kafka.tools.DumpLogSegments"
PARTITIONS, MESSAGES = 3, 10
RECORD = re.compile(r"key: (?P<key>\{.*?\}) payload: (?P<payload>\{.*\}|<DELETE>|.*)$")
_names = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with running_peer() as peer:
        yield peer


class Topic:
    """A topic with ten messages in each of three partitions, and a group's name that goes with it."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.bootstrap = broker.bootstrap
        self.name = f"orders-{next(_names)}"
        self.group = f"readers-of-{self.name}"
        self._consumer: Consumer | None = None
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(self.name, PARTITIONS, 1)])[self.name].result(30)
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0})
        for number in range(PARTITIONS * MESSAGES):
            producer.produce(
                self.name, b"%d" % number, partition=number % PARTITIONS, timestamp=1000 + number
            )
        assert producer.flush(60) == 0

    def consumer(self, **more: Any) -> Consumer:
        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
        return Consumer(settings | more)

    def join(self, **more: Any) -> None:
        self._consumer = consumer = self.consumer(**more)
        consumer.subscribe([self.name])

        def assigned() -> bool:
            consumer.poll(0)
            return len(consumer.assignment()) == PARTITIONS

        wait_until(assigned, "the member has its partitions")

    def commit(self, *offsets: int) -> None:
        places = [TopicPartition(self.name, number, offset) for number, offset in enumerate(offsets)]
        if self._consumer is not None:
            self._consumer.commit(offsets=places, asynchronous=False)
            return
        consumer = self.consumer()
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()

    def leave(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def committed(self) -> list[int]:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        places = [TopicPartition(self.name, number) for number in range(PARTITIONS)]
        asked = [ConsumerGroupTopicPartitions(self.group, places)]
        found = admin.list_consumer_group_offsets(asked)[self.group].result(30)
        return [
            topic_partition.offset
            for topic_partition in sorted(
                found.topic_partitions, key=lambda topic_partition: int(topic_partition.partition)
            )
        ]

    # What Kafka's tool says

    def tool(self, *arguments: str) -> str:
        done = apache_kafka.run_tool(GROUPS_TOOL, "--bootstrap-server", self.bootstrap, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def refused(self, *arguments: str) -> str:
        done = apache_kafka.run_tool(GROUPS_TOOL, "--bootstrap-server", self.bootstrap, *arguments)
        return done.stdout + done.stderr

    def rows(self, *arguments: str) -> list[list[str]]:
        """The lines of its table about this group, cut into columns."""
        lines = [line.split() for line in self.tool(*arguments).splitlines()]
        return sorted(line for line in lines if line and line[0] == self.group)

    def reset(self, *how: str) -> list[int]:
        self.tool("--reset-offsets", "--group", self.group, "--topic", self.name, *how, "--execute")
        return self.committed()


@pytest.fixture
def topic(broker: BrokerProcess) -> Iterator[Topic]:
    new_topic = Topic(broker)
    yield new_topic
    new_topic.leave()


def test_groups_are_listed_with_state_and_type(topic: Topic) -> None:
    topic.join()
    assert topic.group in topic.tool("--list").split()
    assert topic.rows("--list", "--state") == [[topic.group, "Stable"]]
    assert topic.rows("--list", "--state", "Empty") == []
    assert topic.rows("--list", "--type", "classic") == [[topic.group, "Classic"]]
    topic.commit(1, 2, 3)
    topic.leave()
    assert topic.rows("--list", "--state", "Empty") == [[topic.group, "Empty"]]


def test_a_group_is_described_with_its_lag_and_members(topic: Topic) -> None:
    topic.join(**{"group.instance.id": "one"})
    topic.commit(1, 2, 10)
    rows = topic.rows("--describe", "--group", topic.group)
    assert [row[1:6] for row in rows] == [
        [topic.name, "0", "1", "10", "9"],
        [topic.name, "1", "2", "10", "8"],
        [topic.name, "2", "10", "10", "0"],
    ]
    assert {row[8] for row in rows} == {"reader"}
    assert {row[7] for row in rows} == {"/127.0.0.1"}
    (member,) = topic.rows("--describe", "--group", topic.group, "--members", "--verbose")
    assert member[2:6] == ["one", "/127.0.0.1", "reader", "3"]
    assert f"{topic.name}:0,1,2" in member
    (state,) = topic.rows("--describe", "--group", topic.group, "--state")
    assert state[-3:] == ["range", "Stable", "1"]
    assert state[1] == topic.bootstrap


def test_offsets_are_reset_in_every_way_the_tool_knows(topic: Topic) -> None:
    topic.commit(1, 2, 3)
    assert topic.reset("--to-earliest") == [0, 0, 0]
    assert topic.reset("--to-latest") == [10, 10, 10]
    assert topic.reset("--shift-by", "-4") == [6, 6, 6]
    assert topic.reset("--to-offset", "5") == [5, 5, 5]
    assert topic.reset("--to-datetime", "1970-01-01T00:00:01.015") == [5, 5, 5]
    assert topic.reset("--by-duration", "PT1H") == [10, 10, 10]
    assert topic.reset("--to-current") == [10, 10, 10]


def test_a_group_with_members_is_not_reset_nor_deleted(topic: Topic) -> None:
    topic.join()
    topic.commit(1, 2, 3)
    said = topic.refused(
        "--reset-offsets", "--group", topic.group, "--topic", topic.name, "--to-earliest", "--execute"
    )
    assert "Assignments can only be reset if the group" in said
    assert topic.committed() == [1, 2, 3]
    assert "is not empty" in topic.refused("--delete", "--group", topic.group)
    said = topic.refused("--delete-offsets", "--group", topic.group, "--topic", topic.name)
    assert "is actively subscribed" in said
    assert topic.committed() == [1, 2, 3]


def test_offsets_and_groups_are_deleted(topic: Topic) -> None:
    topic.commit(1, 2, 3)
    said = topic.tool("--delete-offsets", "--group", topic.group, "--topic", f"{topic.name}:1")
    assert "Request succeeded for deleting offsets" in said
    assert topic.committed()[1] < 0
    assert topic.committed()[::2] == [1, 3]
    assert "Deletion of requested consumer groups" in topic.tool("--delete", "--group", topic.group)
    assert topic.group not in topic.tool("--list").split()


# The log


def dumped(broker: BrokerProcess) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Key and value of every record of __consumer_offsets, as kafka-dump-log tells them."""
    files = [
        str(path)
        for path in sorted(broker.data_dir.glob("**/*.log"))
        if "__consumer_offsets" in str(path) and path.stat().st_size
    ]
    done = apache_kafka.run_tool(DUMP_TOOL, "--offsets-decoder", "--files", ",".join(files))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "isvalid: false" not in done.stdout
    found = []
    for line in done.stdout.splitlines():
        match = RECORD.search(line)
        if match:
            payload = match["payload"]
            found.append((json.loads(match["key"]), json.loads(payload) if payload.startswith("{") else None))
    return found


def test_the_log_of_the_groups_reads_as_kafkas_own(topic: Topic, broker: BrokerProcess) -> None:
    topic.join(**{"group.instance.id": "one"})
    topic.commit(4, 5, 6)
    records = dumped(broker)
    offsets = {
        key["data"]["partition"]: value["data"]["offset"]
        for key, value in records
        if value is not None and key["data"].get("topic") == topic.name
    }
    assert offsets == {0: 4, 1: 5, 2: 6}
    metadata = [
        value for key, value in records if key["data"] == {"group": topic.group} and value is not None
    ]
    (member,) = metadata[-1]["data"]["members"]
    assert member["clientId"] == "reader"
    assert member["groupInstanceId"] == "one"
    assert metadata[-1]["data"]["generation"] >= 1
    assert metadata[-1]["data"]["protocol"] == "range"


def test_what_was_deleted_is_a_tombstone_in_the_log(topic: Topic, broker: BrokerProcess) -> None:
    topic.join()
    topic.commit(1, 2, 3)
    topic.leave()
    admin = AdminClient({"bootstrap.servers": topic.bootstrap, "log_level": 0})

    def deleted() -> bool:
        try:
            admin.delete_consumer_groups([topic.group])[topic.group].result(30)
        except KafkaException:
            return False
        return True

    wait_until(deleted, "the group is deleted")
    last = {json.dumps(key): value for key, value in dumped(broker) if key["data"]["group"] == topic.group}
    assert len(last) == PARTITIONS + 1
    assert set(last.values()) == {None}
