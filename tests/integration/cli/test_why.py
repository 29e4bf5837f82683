"""`penstock why GROUP`: what it says about groups that were brought into each kind of trouble."""

import re
import shlex
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Consumer as PlainConsumer
from confluent_kafka import TopicPartition
from tests.integration.commands import penstock
from tests.integration.groups.raw_member import RawMember, find
from tests.integration.raw import RawClient

from penstock import Admin, Consumer, Producer
from penstock.testing import BrokerProcess, broker

_names = count(1)


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker({"group.initial.rebalance.delay.ms": "0"}) as process:
        yield process


@pytest.fixture
def topic(running: BrokerProcess) -> str:
    name = f"topic-{next(_names)}"
    Admin(running.bootstrap).create(name)
    send(running, name, 100)
    return name


def send(running: BrokerProcess, topic: str, count: int) -> None:
    with Producer(running.bootstrap) as producer:
        producer.send_many(topic, [str(number) for number in range(count)], partition=0).result()


def read(running: BrokerProcess, topic: str, most: int) -> None:
    with Consumer(running.bootstrap, topic, group=topic) as consumer:
        for _ in range(most):
            assert consumer.receive() is not None


def why(running: BrokerProcess, group: str) -> dict[str, Any]:
    done = penstock("why", group, "--over", "300ms", "--json", bootstrap=running.bootstrap)
    assert done.code == 0, done.err
    found: dict[str, Any] = done.json
    return found


def finding(found: dict[str, Any], check: str) -> tuple[str, str, str | None]:
    (entry,) = (entry for entry in found["findings"] if entry["check"] == check)
    return entry["level"], entry["found"], entry["advice"]


def test_nobody_reads(running: BrokerProcess, topic: str) -> None:
    read(running, topic, 40)
    found = why(running, topic)
    assert (found["state"], found["lag"], found["lag_before"]) == ("empty", 60, 60)
    level, said, advice = finding(found, "members")
    assert (level, said) == ("fail", "nobody is in the group: 60 offsets wait for a reader")
    assert advice is not None
    assert f"penstock group delete {topic}" in advice


def test_who_does_what_is_advised_passes_over_nothing(running: BrokerProcess) -> None:
    """The group of any Kafka client, which was killed when it had committed in one partition only."""
    topic = group = f"topic-{next(_names)}"
    Admin(running.bootstrap).create(topic, partitions=2)
    with Producer(running.bootstrap) as producer:
        for number in range(6):
            producer.send(topic, str(number), partition=number % 2).result()
    client = PlainConsumer({"bootstrap.servers": running.bootstrap, "group.id": group})
    client.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    client.close()
    _, _, advice = finding(why(running, group), "members")
    (advised,) = re.findall(r"`penstock (consume [^`]*)`", advice or "")
    words = shlex.split(advised.replace("TOPIC", topic))
    done = penstock(*words, "--no-follow", bootstrap=running.bootstrap)
    assert sorted(done.out.split()) == ["1", "2", "3", "4", "5"]


def test_a_member_that_does_not_get_on_is_named(running: BrokerProcess, topic: str) -> None:
    with Consumer(
        running.bootstrap, topic, group=topic, commit_every=0, config={"client.id": "dreamer"}
    ) as consumer:
        assert [consumer.receive() is not None for _ in range(11)] == [True] * 11
        found = why(running, topic)
        text = penstock("why", topic, "--over", "300ms", bootstrap=running.bootstrap).out
    level, said, _ = finding(found, "progress")
    assert (level, "dreamer at " in said, f"90 to read in {topic}[0]" in said) == ("fail", True, True)
    assert finding(found, "owners")[0] == "ok"
    assert found["partitions"][0]["lag"] == 90
    assert "does not get on" in text
    assert [topic, "0", "90", "90", "0.0", "0.0", "dreamer"] in [
        line.split()[:7] for line in text.splitlines()
    ]


def test_retention_that_was_faster(running: BrokerProcess, topic: str) -> None:
    read(running, topic, 10)
    Admin(running.bootstrap).delete_records(topic, {0: 70})
    level, said, advice = finding(why(running, topic), "commits")
    assert (level, said) == (
        "fail",
        f"{topic}[0]: committed 10, but it begins at 70: 60 offsets were deleted unread",
    )
    assert f"penstock group reset {topic} --topic {topic} --partition 0 --to-earliest" in str(advice)
    # The advice works.
    reset = ["group", "reset", topic, "--topic", topic, "--partition", "0", "--to-earliest"]
    assert penstock(*reset, bootstrap=running.bootstrap).code == 0
    assert all(entry["check"] != "commits" for entry in why(running, topic)["findings"])


def test_a_partition_that_nobody_has_noticed(running: BrokerProcess, topic: str) -> None:
    with Consumer(running.bootstrap, topic, group=topic, commit_every=0) as consumer:
        assert [consumer.receive() is not None for _ in range(3)] == [True] * 3
        Admin(running.bootstrap).add_partitions(topic, 2)
        level, said, _ = finding(why(running, topic), "owners")
    assert (level, f"nobody reads {topic}[1]" in said) == ("fail", True)


def test_a_rebalance_that_waits_for_a_member(running: BrokerProcess, topic: str) -> None:
    """It has joined and never asks for its plan."""
    with RawClient(running.port) as client:
        find(client, topic)
        RawMember(client, topic, session_timeout_ms=60_000, rebalance_timeout_ms=60_000)
        found = why(running, topic)
    assert found["state"] == "completing_rebalancing"
    level, said, _ = finding(found, "rebalance")
    assert (level, "rebalancing at every look" in said) == ("fail", True)


def test_all_is_well(running: BrokerProcess, topic: str) -> None:
    with Consumer(running.bootstrap, topic, group=topic, commit_every=0) as consumer:
        assert [consumer.receive() is not None for _ in range(100)] == [True] * 100
        assert consumer.receive(0.1) is None
        found = why(running, topic)
    assert {entry["level"] for entry in found["findings"]} == {"ok"}
    assert finding(found, "lag")[1].startswith("none")


def test_a_topic_that_is_whole_names_its_groups(running: BrokerProcess, topic: str) -> None:
    def said(name: str) -> str:
        done = penstock("why", name, bootstrap=running.bootstrap)
        assert done.code == 0, done.err
        return done.out

    assert "all are in sync" in said(topic)
    assert "no group reads it" in said(topic)
    with Consumer(running.bootstrap, topic, group=f"{topic}-readers") as consumer:
        assert consumer.receive() is not None
    assert f"`penstock why {topic}-readers`" in said(topic)


def test_names_that_are_neither_group_nor_topic(running: BrokerProcess) -> None:
    done = penstock("why", "nothing", bootstrap=running.bootstrap)
    assert done.code == 1
    assert "there is no group nothing" in done.said()
    assert penstock("why", "x", "--over", "soon", bootstrap=running.bootstrap).code == 2
