"""`penstock broker-admin list|drain|add` against three real brokers."""

import functools
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from tests.integration.commands import COMMAND, Done, environment, penstock
from tests.integration.raw import wait_until

from penstock.testing import ClusterProcesses, cluster

BROKERS = 3
PARTITIONS = 6
SLOW, FAST = "1000", str(10**9)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    settings = {
        "leader.imbalance.check.interval.seconds": "3600",
        "offsets.topic.num.partitions": "3",
        "zookeeper.session.timeout.ms": "30000",  # nobody is killed here
    }
    with cluster(BROKERS, settings, directory=tmp_path_factory.mktemp("cluster")) as processes:
        yield processes


@pytest.fixture
def three(running: ClusterProcesses) -> ClusterProcesses:
    running.start()
    return running


@functools.cache
def admin_of(processes: ClusterProcesses) -> AdminClient:
    """Kept: what it was asked dies with it."""
    return AdminClient({"bootstrap.servers": processes.bootstrap, "log_level": 0})


def fill(processes: ClusterProcesses, topic: str, replicas: int = 2, count: int = 300) -> None:
    """A topic with a kilobyte per message, in every partition."""
    admin_of(processes).create_topics([NewTopic(topic, PARTITIONS, replicas)])[topic].result()
    producer = Producer({"bootstrap.servers": processes.bootstrap, "acks": "all", "log_level": 0})
    for number in range(count):
        producer.produce(topic, b"%01000d" % number, partition=number % PARTITIONS)
    assert producer.flush() == 0


def throttle(processes: ClusterProcesses, rate: str) -> None:
    # Brokers that were away, and back, are known again.
    admin_of(processes).list_topics(timeout=60)
    for number in range(1, BROKERS + 1):
        entry = ConfigEntry(
            "follower.replication.throttled.rate", rate, incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(ResourceType.BROKER, str(number), incremental_configs=[entry])
        for done in admin_of(processes).incremental_alter_configs([resource]).values():
            done.result()


def run(processes: ClusterProcesses, *arguments: str) -> Done:
    return penstock("broker-admin", *arguments, bootstrap=processes.bootstrap)


def brokers(processes: ClusterProcesses) -> dict[int, dict[str, Any]]:
    return {broker["id"]: broker for broker in run(processes, "list", "--json").json}


def status(processes: ClusterProcesses) -> dict[str, Any]:
    found: dict[str, Any] = penstock("status", "--json", bootstrap=processes.bootstrap).json
    return found


def replicas_of(processes: ClusterProcesses, topic: str) -> list[list[int]]:
    found = admin_of(processes).list_topics(topic, timeout=60).topics[topic]
    return [sorted(partition.replicas) for partition in found.partitions.values()]


def test_a_broker_is_drained_and_gets_its_share_again(three: ClusterProcesses) -> None:
    fill(three, "orders")
    before = brokers(three)
    assert [broker["state"] for broker in before.values()] == ["in service"] * BROKERS
    assert before[3]["replicas"] > 0
    assert before[3]["size_bytes"] > 50_000
    assert sum(broker["controller"] for broker in before.values()) == 1
    table = run(three, "list").out.splitlines()
    assert table[0].split() == ["id", "host", "rack", "state", "replicas", "leaders", "size"]
    assert len(table) == BROKERS + 1

    done = run(three, "drain", "3")
    assert done.code == 0, done.err
    assert "broker 3 is drained" in done.out
    drained = brokers(three)
    assert (drained[3]["state"], drained[3]["replicas"], drained[3]["leaders"]) == ("drained", 0, 0)
    assert replicas_of(three, "orders") == [[1, 2]] * PARTITIONS

    done = run(three, "add", "3")
    assert done.code == 0, done.err
    added = brokers(three)[3]
    assert added["state"] == "in service"
    assert added["replicas"] >= 4
    assert added["leaders"] >= 1, "preferred leaders are elected at once"


def test_a_drain_goes_on_after_ctrl_c_and_is_taken_back(three: ClusterProcesses) -> None:
    fill(three, "parcels")
    throttle(three, SLOW)
    process = subprocess.Popen(
        [*COMMAND, "broker-admin", "drain", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(three.bootstrap),
    )
    assert process.stderr is not None
    first = process.stderr.readline()
    assert first.startswith("draining broker 2: "), first
    assert "to go" in first
    assert "left" in first
    wait_until(
        lambda: any(len(replicas) == 3 for replicas in replicas_of(three, "parcels")), "replicas on the way"
    )
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130
    assert "the moves go on" in said

    shown = status(three)
    assert shown["moves"]
    assert all(move["removing"] == [2] and move["adding"] for move in shown["moves"])
    assert all(0 <= move["done_bytes"] <= move["total_bytes"] > 0 for move in shown["moves"])
    assert (shown["under_replicated"], shown["offline"]) == (0, 0), "those on their way do not count"
    told = penstock("why", "parcels", "--json", bootstrap=three.bootstrap).json
    assert told["moving"]
    assert all(move["removing"] == [2] and move["total_bytes"] > 0 for move in told["moving"])
    assert told["under_replicated"] == []
    page = penstock("status", bootstrap=three.bootstrap).out
    assert " on the move: " in page
    assert "left" in page
    found = brokers(three)
    assert found[2]["state"] == "draining"
    assert found[2]["replicas"] > 0
    assert run(three, "add", "2", "--no-wait").code == 0
    throttle(three, FAST)
    wait_until(
        lambda: all(len(replicas) == 2 for replicas in replicas_of(three, "parcels")),
        "nothing moves any more",
    )
    after = brokers(three)[2]
    assert after["state"] == "in service"
    assert after["replicas"] > 0


def test_what_nobody_else_can_take_stays_and_is_said(three: ClusterProcesses) -> None:
    fill(three, "everywhere", replicas=BROKERS)
    done = run(three, "drain", "1")
    assert done.code == 1
    assert "every other broker or machine has one already" in done.err
    assert "every other broker or machine has one already" in status(three)["trouble"]
    assert penstock("broker-admin", "add", "1", bootstrap=three.bootstrap).code == 0
    for done in admin_of(three).delete_topics(["everywhere"]).values():
        done.result()


def test_replicas_of_a_dead_broker_are_rebuilt_at_once(three: ClusterProcesses) -> None:
    fill(three, "letters")
    three.broker(3).stop()
    wait_until(lambda: brokers(three)[3]["state"] == "dead", "the dead broker is missed")
    shown = status(three)
    assert shown["under_replicated"] > 0
    assert any(partition.startswith("letters-") for partition in shown["under_replicated_partitions"])
    assert "under-replicated: " in penstock("status", bootstrap=three.bootstrap).out
    assert "start it first" in run(three, "add", "3").said()
    done = run(three, "drain", "3")
    assert done.code == 0, done.err
    assert "forgotten" in done.out
    assert replicas_of(three, "letters") == [[1, 2]] * PARTITIONS
    assert 3 not in brokers(three)


def test_wrong_use_is_one_line(three: ClusterProcesses) -> None:
    assert "there is no broker 9" in run(three, "drain", "9").said()
    assert "nothing answers" in penstock("broker-admin", "list", bootstrap="127.0.0.1:1").said()
