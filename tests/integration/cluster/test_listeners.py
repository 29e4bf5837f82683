"""A cluster whose brokers have a listener of their own: replicas and questions go there, clients stay on theirs."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.raw import wait_until

from penstock.testing import ClusterProcesses, cluster

SETTINGS = {
    "listeners": "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
}
TOPIC = "orders"
COUNT = 200
_ESTABLISHED = "01"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    with cluster(3, SETTINGS, directory=tmp_path_factory.mktemp("listeners")) as processes:
        yield processes


def addresses(processes: ClusterProcesses, name: str) -> list[str]:
    return [broker.listeners[name] for broker in processes.brokers]


def connected_ports(pid: int) -> set[int]:
    """The ports of this machine that a process is connected to, as a client."""
    sockets = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            sockets.add(os.readlink(entry))
        except FileNotFoundError:
            continue  # closed meanwhile
    listening, found = set(), set()
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, state, *_rest = line.split()
        inode = line.split()[9]
        if state == "0A":
            listening.add(int(local.rpartition(":")[2], 16))
        elif state == _ESTABLISHED and f"socket:[{inode}]" in sockets:
            found.add((int(local.rpartition(":")[2], 16), int(remote.rpartition(":")[2], 16)))
    return {remote for local, remote in found if local not in listening}


def in_sync(admin: AdminClient) -> list[int]:
    partitions = admin.list_topics(TOPIC, timeout=60).topics[TOPIC].partitions
    return sorted(partitions[0].isrs) if 0 in partitions else []


def test_brokers_use_their_own_listener_and_clients_theirs(running: ClusterProcesses) -> None:
    for name in ("CLIENTS", "BROKERS"):
        first = AdminClient({"bootstrap.servers": addresses(running, name)[0], "log_level": 0})
        wait_until(lambda first=first: len(first.list_topics(timeout=60).brokers) == 3, "all brokers")
        told = first.list_topics(timeout=60).brokers.values()
        assert sorted(f"{metadata.host}:{metadata.port}" for metadata in told) == sorted(
            addresses(running, name)
        )

    bootstrap = {"bootstrap.servers": ",".join(addresses(running, "CLIENTS")), "log_level": 0}
    admin = AdminClient(bootstrap)
    admin.create_topics([NewTopic(TOPIC, 1, 3, config={"min.insync.replicas": "2"})])[TOPIC].result()
    wait_until(lambda: in_sync(admin) == [1, 2, 3], "all replicas in sync")
    producer = Producer({**bootstrap, "acks": "all"})
    for number in range(COUNT):
        producer.produce(TOPIC, str(number).encode(), partition=0)
    assert producer.flush() == 0

    ports = {
        name: {int(address.rpartition(":")[2]) for address in addresses(running, name)}
        for name in ("CLIENTS", "BROKERS")
    }
    used = set().union(*(connected_ports(broker.pid) for broker in running.brokers))
    assert used & ports["BROKERS"]
    assert not used & ports["CLIENTS"]

    # A leader that dies is missed, and found again, over the same two.
    leader = admin.list_topics(TOPIC, timeout=60).topics[TOPIC].partitions[0].leader
    running.broker(leader).kill()
    consumer = Consumer({**bootstrap, "group.id": "unused", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        values: list[bytes] = []
        while len(values) < COUNT:
            values += [
                message.value() for message in consumer.consume(COUNT, timeout=1) if message.error() is None
            ]
        assert values == [str(number).encode() for number in range(COUNT)]
    finally:
        consumer.close()
