"""Kafka's own consumer reads in its rack, kafka-reassign-partitions moves replicas under its throttle, and
kafka-metadata-quorum finds the controller."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import ConfigResource, NewTopic, ResourceType
from tests.integration.cluster.test_nearest import RACKS, ROUND, TOPIC, VALUE_BYTES, World
from tests.integration.raw import wait_until
from tools.peers import apache_kafka

from penstock.config.replication_settings import RACK_AWARE
from penstock.testing import cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.clients
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
NAMED = "leader.replication.throttled.replicas"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    place = tmp_path_factory.mktemp("cluster")
    with cluster(3, {"replica.selector.class": RACK_AWARE}, directory=place, racks=RACKS) as processes:
        yield World(processes)


def test_the_java_consumer_reads_in_its_rack(world: World) -> None:
    leader = world.leader()
    near = next(broker for broker in (1, 2, 3) if broker != leader)
    world.produce()
    before = world.sent_bytes(near)
    done = apache_kafka.run_tool(
        CONSUMER,
        *("--bootstrap-server", world.processes.bootstrap, "--topic", TOPIC),
        *("--partition", "0", "--offset", "earliest", "--max-messages", str(ROUND)),
        *("--consumer-property", f"client.rack={RACKS[near - 1]}"),
    )
    assert done.stdout.count("x" * VALUE_BYTES) == ROUND, done.stdout[-500:] + done.stderr[-2000:]
    assert world.sent_bytes(near) - before >= ROUND * VALUE_BYTES


def test_kafkas_tool_moves_a_replica_under_its_throttle(world: World, tmp_path: Path) -> None:
    world.admin.create_topics([NewTopic("moved", 1, 2)])["moved"].result()

    def replicas() -> list[int]:
        partitions = world.admin.list_topics("moved", timeout=60).topics["moved"].partitions
        return sorted(partitions[0].replicas) if 0 in partitions else []

    def throttled() -> str:
        resource = ConfigResource(ResourceType.TOPIC, "moved")
        found = world.admin.describe_configs([resource])[resource].result()
        return str(found[NAMED].value)

    wait_until(lambda: len(replicas()) == 2, "the topic is known")
    stays, goes = replicas()
    comes = ({1, 2, 3} - {stays, goes}).pop()
    plan = tmp_path / "plan.json"
    wanted = {"topic": "moved", "partition": 0, "replicas": [stays, comes]}
    plan.write_text(json.dumps({"version": 1, "partitions": [wanted]}))

    def tool(*arguments: str) -> str:
        done = apache_kafka.run_tool(
            REASSIGN,
            *("--bootstrap-server", world.processes.bootstrap),
            *("--reassignment-json-file", str(plan), *arguments),
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    said = tool("--execute", "--throttle", "50000000")
    assert "Successfully started partition reassignment" in said
    assert f"0:{stays}" in throttled()
    wait_until(lambda: replicas() == sorted([stays, comes]), "the replica has moved")
    assert "is completed" in tool("--verify")
    assert throttled() == ""


def test_kafkas_tool_finds_the_controller_as_the_one_voter(world: World) -> None:
    controller = world.admin.list_topics(timeout=60).controller_id
    arguments = ("--bootstrap-server", world.processes.bootstrap, "describe")
    status = apache_kafka.run_tool(QUORUM, *arguments, "--status")
    told = dict(line.split(":", 1) for line in status.stdout.splitlines() if ":" in line)
    assert told["LeaderId"].strip() == str(controller), status.stdout + status.stderr
    assert [load["id"] for load in json.loads(told["CurrentVoters"])] == [controller]
    replication = apache_kafka.run_tool(QUORUM, *arguments, "--replication")
    rows = [line.split() for line in replication.stdout.splitlines()]
    assert [(row[0], row[-1]) for row in rows[1:] if row] == [(str(controller), "Leader")]
