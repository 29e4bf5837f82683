"""Retiring a partition under load on one node (R7): no client notices, and every message arrives once."""

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.commands import penstock
from tests.integration.raw import wait_until
from tests.integration.retiring.keyed import GroupReader, KeyedLoad, ends

from penstock.testing import BrokerProcess, broker

_numbers = itertools.count()
SETTINGS = {
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "0",
    "penstock.retire.check.interval.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
}


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker(SETTINGS) as process:
        yield process


@pytest.fixture
def topic(running: BrokerProcess) -> str:
    name = f"orders-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, 3, 1)])[name].result()
    return name


def partitions(running: BrokerProcess, topic: str) -> list[int]:
    admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
    return sorted(admin.list_topics(topic, timeout=60).topics[topic].partitions)


def alter(running: BrokerProcess, topic: str, *options: str) -> None:
    done = penstock("topic", "alter", topic, "--retire", *options, bootstrap=running.bootstrap)
    assert done.code == 0, done.err


def test_every_message_arrives_once_while_a_partition_is_retired(running: BrokerProcess, topic: str) -> None:
    bootstrap = running.bootstrap
    with ExitStack() as stack:
        reader = stack.enter_context(GroupReader(bootstrap, topic, f"readers-of-{topic}"))
        loads = [
            stack.enter_context(KeyedLoad(bootstrap, topic, idempotent=True, name="i")),
            stack.enter_context(KeyedLoad(bootstrap, topic, idempotent=False, name="p", queued_max=50_000)),
        ]
        for load in loads:
            load.until_more(500, partition=2)
        alter(running, topic, "--partitions", "2")
        frozen = ends(bootstrap, topic, 2)
        for load in loads:
            load.until_more(3000, partition=2)
        assert ends(bootstrap, topic, 2) == frozen
        for load in loads:
            load.__exit__()
        reader.check(*loads, retired={2: 0})
        assert len(reader.values[2]) == frozen[1] > 0


def test_a_partition_of_three_is_retired_stays_readable_and_is_gone(
    running: BrokerProcess, topic: str
) -> None:
    """The story: its retention passes, clients forget it, and when nobody has written to it for long, it is no more."""
    bootstrap, hour_ms = running.bootstrap, 3_600_000
    alter(running, topic, "--config", "penstock.retire.grace.ms=1000", "--config", "file.delete.delay.ms=0")
    with GroupReader(bootstrap, topic, f"readers-of-{topic}") as reader:
        with KeyedLoad(bootstrap, topic, idempotent=True, name="old", age_ms=hour_ms) as old:
            old.until_more(500, partition=2)
        alter(running, topic, "--partitions", "2")
        assert describe(running, topic)["configs"]["penstock.retire.to"] == "2"
        assert [partition["retired"] for partition in describe(running, topic)["partitions"]] == [
            False,
            False,
            True,
        ]
        with KeyedLoad(bootstrap, topic, idempotent=True, name="new") as new:
            new.until_more(500, partition=2)
            assert partitions(running, topic) == [0, 1, 2]
            assert ends(bootstrap, topic, 2) == (0, old.by_partition[2])
            reader.check(old, retired={2: 0})
            assert retired(running, topic) == (2, old.by_partition[2], 0, False)
            alter(running, topic, "--config", "retention.ms=60000")
            wait_until(lambda: partitions(running, topic) == [0, 1], "two partitions for everybody")
            new.until_more(500, partition=2)
            assert retired(running, topic) == (2, old.by_partition[2], 0, True)
            wait_until(lambda: reader.assigned == [0, 1], "the group to share out what is left")
        reader.check(old, new, retired={2: 0})
    retirement = running.data_dir / "topics" / topic / "Partition-2"
    wait_until(lambda: not retirement.exists(), "the retirement gone with its files")
    wait_until(
        lambda: "penstock.retire.to" not in describe(running, topic)["configs"], "nothing left to retire"
    )
    alter(running, topic, "--partitions", "3")
    with (
        GroupReader(bootstrap, topic, f"later-readers-of-{topic}") as later,
        KeyedLoad(bootstrap, topic, idempotent=True, name="later") as load,
    ):
        load.until_more(500, partition=2)
        load.__exit__()
        wait_until(lambda: len(later.values[2]) == load.by_partition[2], "a partition like any other")
        # Offsets never go back: readers, archives and checkpoints of the one before it stay right.
        assert later.values[2][0][0] == old.by_partition[2] + new.by_partition[2]


def test_a_killed_broker_moves_the_rest_when_it_is_back(running: BrokerProcess, topic: str) -> None:
    with (
        GroupReader(running.bootstrap, topic, f"readers-of-{topic}") as reader,
        KeyedLoad(running.bootstrap, topic, idempotent=True, queued_max=20_000) as load,
    ):
        load.until_more(500, partition=2)
        alter(running, topic, "--partitions", "2")
        for _ in range(3):
            load.until_more(1000, partition=2)
            running.kill()
            running.start()
        load.until_more(1000, partition=2)
        load.__exit__()
        reader.check(load, retired={2: 0})


def test_partitions_are_retired_from_retired_ones_on(running: BrokerProcess, topic: str) -> None:
    """Three become two, then one: what is written to the last goes to the first, or by way of the second."""
    with (
        GroupReader(running.bootstrap, topic, f"readers-of-{topic}") as reader,
        KeyedLoad(running.bootstrap, topic, idempotent=True) as load,
    ):
        load.until_more(500, partition=2)
        alter(running, topic, "--partitions", "2")
        load.until_more(500, partition=2)
        alter(running, topic, "--partitions", "1")
        frozen = ends(running.bootstrap, topic, 1)
        for partition in (1, 2):
            load.until_more(500, partition=partition)
        load.__exit__()
        assert ends(running.bootstrap, topic, 1) == frozen
        reader.check(load, retired={2: 0, 1: 0})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--partitions", "0"), "not in the range x>=1"),
        (("--partitions", "-1"), "not in the range x>=1"),
        (("--config", "penstock.retire.to=0"), "at least 1"),
        (("--config", "penstock.retire.to=3"), "name fewer"),
        (("--config", "penstock.retire.to=two"), "penstock.retire.to"),
    ],
)
def test_what_cannot_be_retired_is_refused(
    running: BrokerProcess, topic: str, options: tuple[str, ...], says: str
) -> None:
    done = penstock("topic", "alter", topic, "--retire", *options, bootstrap=running.bootstrap)
    assert done.code in (1, 2)
    assert says in done.err
    assert partitions(running, topic) == [0, 1, 2]


def test_topics_that_cannot_retire_partitions_say_so(running: BrokerProcess, topic: str) -> None:
    bootstrap = running.bootstrap
    made = penstock(
        "topic",
        "create",
        f"{topic}-c",
        "--partitions",
        "3",
        "--config",
        "cleanup.policy=compact",
        bootstrap=bootstrap,
    )
    assert made.code == 0
    assert (
        "copy it"
        in penstock(
            "topic", "alter", f"{topic}-c", "--retire", "--partitions", "2", bootstrap=bootstrap
        ).said()
    )
    early = penstock("topic", "create", f"{topic}-n", "--config", "penstock.retire.to=1", bootstrap=bootstrap)
    assert "leave it out" in early.said()
    with KeyedLoad(bootstrap, topic, idempotent=True) as load:
        load.until_more(1, partition=2)
    with GroupReader(bootstrap, topic, "makes-the-internal-topic") as reader:
        wait_until(lambda: reader.count > 0, "a group")
    internal = penstock(
        "topic",
        "alter",
        "__consumer_offsets",
        "--retire",
        "--config",
        "penstock.retire.to=1",
        bootstrap=bootstrap,
    )
    assert internal.code == 1


def test_while_partitions_are_retired_none_are_added_or_brought_back(
    running: BrokerProcess, topic: str
) -> None:
    bootstrap = running.bootstrap
    alter(running, topic, "--partitions", "2")
    for options, says in [
        (("--partitions", "4"), "are being retired"),
        (("--partitions", "2"), "are being retired"),
        (("--config", "penstock.retire.to=3"), "name fewer"),
        (("--delete-config", "penstock.retire.to"), "cannot be taken back"),
        (("--config", "cleanup.policy=compact"), "copy it"),
    ]:
        assert says in penstock("topic", "alter", topic, "--retire", *options, bootstrap=bootstrap).said()


def retired(running: BrokerProcess, topic: str) -> tuple[int, int, int, bool]:
    """What `penstock why` tells of the one that is: its number, where readers stop, its target, and whether hidden."""
    told = penstock("why", topic, "--json", bootstrap=running.bootstrap).json
    (partition,) = told["retired"]
    assert partition["left"] >= 0
    return partition["partition"], partition["limit"], partition["into"], partition["hidden"]


def describe(running: BrokerProcess, topic: str) -> dict[str, Any]:
    described: dict[str, Any] = penstock(
        "--json", "topic", "describe", topic, bootstrap=running.bootstrap
    ).json
    return described
