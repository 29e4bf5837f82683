"""What admin clients ask a broker about itself: its settings, its directory, who keeps the metadata."""

import json
import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.integration.commands import COMMAND, environment

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its own files the old way
    from kafka import KafkaAdminClient, TopicPartitionReplica
    from kafka.admin import ConfigResource, ConfigResourceType
    from kafka.errors import LogDirNotFoundError, NoError, UnknownTopicOrPartitionError

FILE = """
node.id = 4
num.partitions = 3
"max.connections.per.ip" = 77
[log]
retention.hours = 24
segment.bytes = 2000000
"""


class Started(NamedTuple):
    admin: KafkaAdminClient
    facts: dict[str, Any]
    data_dir: Path


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    """A broker that has its settings from everywhere settings may come from."""
    work = tmp_path_factory.mktemp("described")
    (work / "penstock.toml").write_text(FILE)
    options = [
        "--config",
        str(work / "penstock.toml"),
        "--listener",
        "127.0.0.1:0",
        "--data-dir",
        str(work / "data"),
    ]
    options += ["--console-port", "-1", "--rack", "r1", "--set", "log.segment.bytes=3000000", "--json"]
    from_environment = {"PENSTOCK_MESSAGE_MAX_BYTES": "123456", "PENSTOCK_NUM_PARTITIONS": "5"}
    process = subprocess.Popen(
        [*COMMAND, "broker", *options],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(extra=from_environment),
    )
    assert process.stdout is not None
    try:
        facts = json.loads(process.stdout.readline())
        admin = KafkaAdminClient(bootstrap_servers=facts["listens"])
        yield Started(admin, facts, work / "data")
        admin.close()
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def test_what_was_given_at_the_start_is_static(started: Started) -> None:
    asked = ConfigResource(ConfigResourceType.BROKER, "4")
    described = started.admin.describe_configs([asked], config_filter="all")["broker"]["4"]
    given = {
        "node.id": "4",
        "broker.id": "4",
        "broker.rack": "r1",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(started.data_dir),
        "log.retention.hours": "24",
        "log.segment.bytes": "3000000",
        "max.connections.per.ip": "77",
        "message.max.bytes": "123456",
        "num.partitions": "5",
        "penstock.console.port": "-1",
        "process.roles": "broker,controller",
    }
    static = {
        name: entry["value"]
        for name, entry in described.items()
        if entry["config_source"] == "STATIC_BROKER_CONFIG"
    }
    assert static == given
    others = {entry["config_source"] for name, entry in described.items() if name not in given}
    assert others == {"DEFAULT_CONFIG"}


def test_a_replica_is_asked_to_stay_where_it_is(started: Started) -> None:
    started.admin.create_topics({"moved": {"num_partitions": 1, "replication_factor": 1}})
    [[here]] = [broker["log_dirs"] for broker in started.admin.describe_log_dirs()]
    kept, unknown = TopicPartitionReplica("moved", 0, 4), TopicPartitionReplica("moved", 7, 4)
    answer = started.admin.alter_replica_log_dirs({kept: here["log_dir"], unknown: here["log_dir"]})
    assert answer == {kept: NoError, unknown: UnknownTopicOrPartitionError}
    assert started.admin.alter_replica_log_dirs({kept: "/nowhere"}) == {kept: LogDirNotFoundError}


def test_the_controller_is_the_quorum(started: Started) -> None:
    described = started.admin.describe_metadata_quorum()
    [topic] = described["topics"]
    [partition] = topic["partitions"]
    assert (topic["topic_name"], partition["error"], partition["leader_id"]) == (
        "__cluster_metadata",
        None,
        4,
    )
    [voter] = partition["current_voters"]
    assert (voter["replica_id"], voter["log_end_offset"]) == (4, partition["high_watermark"])
    [node] = described["nodes"]
    assert started.facts["listens"] == f"{node['listeners'][0]['host']}:{node['listeners'][0]['port']}"


def test_what_has_settings_is_listed(started: Started) -> None:
    started.admin.create_topics({"listed": {"num_partitions": 1, "replication_factor": 1}})
    listed = started.admin.list_config_resources()
    assert "listed" in listed["topic"]
    assert (listed["broker"], listed["broker_logger"]) == (["4"], ["4"])
    assert set(started.admin.list_config_resources(["BROKER"])) == {"broker"}
