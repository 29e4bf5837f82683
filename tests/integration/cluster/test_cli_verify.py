"""`penstock verify` against three real brokers: the same everywhere, or the very place where not."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.commands import penstock
from tests.integration.raw import wait_until

from penstock.testing import ClusterProcesses, cluster

BROKERS = 3
_numbers = itertools.count()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    # Nobody is killed here: no busy machine shall expire a session.
    settings = {"zookeeper.session.timeout.ms": "30000"}
    with cluster(BROKERS, settings, directory=tmp_path_factory.mktemp("cluster")) as processes:
        yield processes


@pytest.fixture
def topic(running: ClusterProcesses) -> str:
    running.start()
    return f"orders-{next(_numbers)}"


def write(processes: ClusterProcesses, topic: str, config: dict[str, str] | None = None) -> None:
    """A hundred messages in two partitions, each message a batch of its own."""
    admin = AdminClient({"bootstrap.servers": processes.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, 2, BROKERS, config=config or {})])[topic].result()
    producer = Producer(
        {"bootstrap.servers": processes.bootstrap, "acks": "all", "log_level": 0, "batch.num.messages": 1}
    )
    for number in range(100):
        producer.produce(topic, b"value-%d" % number, b"key-%d" % (number % 9), partition=number % 2)
    assert producer.flush() == 0


def segment(processes: ClusterProcesses, broker: int, topic: str, partition: int) -> Path:
    place = processes.broker(broker).data_dir / "topics" / topic / f"Partition-{partition}"
    return place / f"{0:020d}.log"


def wrong_in(data_dir: str, topic: str) -> list[str]:
    """What is wrong with each partition of a topic in a stopped broker's files; other tests damage other topics."""
    found = penstock("verify", "--data-dir", data_dir, "--json").json["partitions"]
    return [partition["wrong"] for partition in found if partition["topic"] == topic]


def flip(path: Path, text: bytes) -> None:
    """One bit of this text, in the file."""
    data = path.read_bytes()
    at = data.index(text)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes([data[at] ^ 1]))


def test_replicas_that_are_the_same(running: ClusterProcesses, topic: str) -> None:
    write(running, topic)
    found = penstock("verify", topic, "--json", bootstrap=running.bootstrap)
    assert found.code == 0, found.err
    assert found.json["identical"]
    assert [partition["brokers"] for partition in found.json["partitions"]] == [[1, 2, 3]] * 2
    assert [(partition["start"], partition["end"]) for partition in found.json["partitions"]] == [(0, 50)] * 2
    everything = penstock("verify", bootstrap=running.bootstrap)  # also what other tests have damaged
    (row,) = [line for line in everything.out.splitlines() if line.startswith(f"{topic} ")]
    assert "identical" in row


@pytest.mark.parametrize("whose", ["leader", "follower"])
@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_flipped_byte_is_found(running: ClusterProcesses, topic: str, whose: str, policy: str) -> None:
    write(running, topic, {"cleanup.policy": policy})
    admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
    leader = admin.list_topics(topic, timeout=60).topics[topic].partitions[1].leader
    damaged = leader if whose == "leader" else leader % BROKERS + 1
    flip(segment(running, damaged, topic, 1), b"value-41")  # the 21st of partition 1
    found = penstock("verify", topic, "--json", bootstrap=running.bootstrap)
    assert found.code == 1
    assert not found.json["identical"]
    good, bad = found.json["partitions"]
    assert good["differences"] == []
    assert [(difference["broker"], difference["offset"] <= 20) for difference in bad["differences"]] == [
        (damaged, True)
    ]
    said = penstock("verify", topic, bootstrap=running.bootstrap)
    assert f"{topic}-1 differs at offset" in said.out
    assert f"on broker {damaged}" in said.out
    # Each broker compacts for itself, so of those nothing proves that another copy has everything.
    advised = "1 partition with damaged copies" if policy == "delete" else "no other copy is proven whole"
    assert advised in said.err
    folder, others = f"topics/{topic}/Partition-1", [each for each in (1, 2, 3) if each != damaged]
    assert (f"  broker {damaged}: {folder} (whole on brokers " in said.err) == (policy == "delete")
    assert (f"  {topic}-1: keep it on brokers 1, 2, 3" in said.err) == (policy == "compact")
    assert good["advice"] is None
    assert bad["advice"]["move_away"] == ([damaged] if policy == "delete" else [])
    assert bad["whole"] == (others if policy == "delete" else [])


def test_a_replica_that_cannot_be_asked_is_no_proof(running: ClusterProcesses, topic: str) -> None:
    write(running, topic)
    running.broker(3).stop()
    wait_until(
        lambda: "it is dead" in penstock("verify", topic, bootstrap=running.broker(1).bootstrap).out,
        "broker 3 is missed",
    )
    found = penstock("verify", topic, bootstrap=running.bootstrap)
    assert found.code == 1
    assert "could not be compared" in found.said()

    place = str(running.broker(3).data_dir)
    assert wrong_in(place, topic) == ["", ""]
    flip(segment(running, 3, topic, 0), b"value-40")
    first, second = wrong_in(place, topic)
    assert "CRC" in first
    assert second == ""
    found = penstock("verify", "--data-dir", place)
    assert found.code == 1
    assert f"{topic}-0: " in found.out
    assert "damaged partition" in found.said()
    assert "a broker runs on" in penstock("verify", "--data-dir", str(running.broker(1).data_dir)).said()
    assert (
        "there is no topic" in penstock("verify", "nothing-of-the-kind", bootstrap=running.bootstrap).said()
    )
