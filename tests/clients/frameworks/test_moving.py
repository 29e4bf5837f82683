"""Kafka Connect moves lines between files and a topic, MirrorMaker 2 a topic between clusters (`make clients`)."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.clients.frameworks.programs import Reader, java, produce, running
from tests.integration.raw import wait_until
from tools.peers.process import free_ports

from penstock.testing import broker

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

pytestmark = pytest.mark.clients
LINES = 20


def written(path: Path, settings: Mapping[str, object]) -> str:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)


def worker(bootstrap: str, port: int) -> dict[str, object]:
    text = "org.apache.kafka.connect.storage.StringConverter"
    topics = {f"{kind}.storage.topic": f"connect-{kind}" for kind in ("config", "offset", "status")}
    replicas = {f"{kind}.storage.replication.factor": 1 for kind in ("config", "offset", "status")}
    return {
        "bootstrap.servers": bootstrap,
        "group.id": "connect",
        "listeners": f"http://127.0.0.1:{port}",
        "key.converter": text,
        "value.converter": text,
        "offset.flush.interval.ms": 200,
        **topics,
        **replicas,
    }


def configure(port: int, name: str, settings: Mapping[str, str]) -> None:
    """Over REST, as soon as the worker listens and is a member of its group."""
    url = f"http://127.0.0.1:{port}/connectors/{name}/config"
    headers = {"Content-Type": "application/json"}

    def accepted() -> bool:
        request = Request(url, json.dumps(settings).encode(), headers, method="PUT")
        with suppress(URLError, ConnectionError), urlopen(request) as answer:
            return answer.status in (200, 201)
        return False

    wait_until(accepted, f"the connector {name} is taken")


def holds(file: Path, lines: int) -> bool:
    return file.exists() and len(file.read_text().splitlines()) >= lines


@pytest.mark.ecosystem("kafka-connect")
def test_connect_moves_lines_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    source, sink, kind = (
        tmp_path / "source.txt",
        tmp_path / "sink.txt",
        "org.apache.kafka.connect.file.FileStream",
    )
    (port,) = free_ports(1)
    expected: list[str] = []
    with broker() as queue:
        settings = written(tmp_path / "worker.properties", worker(queue.bootstrap, port))
        for word in ("line", "more"):
            expected += [f"{word} {number}" for number in range(LINES)]
            source.write_text("".join(f"{line}\n" for line in expected))
            command = java("org.apache.kafka.connect.cli.ConnectDistributed", settings)
            with running(command, tmp_path / "log"):
                if word == "line":  # the second time it knows them
                    into = {
                        "connector.class": f"{kind}SourceConnector",
                        "file": str(source),
                        "topic": "lines",
                    }
                    configure(port, "into", into)
                    out = {"connector.class": f"{kind}SinkConnector", "file": str(sink), "topics": "lines"}
                    configure(port, "out", out)

                wait_until(partial(holds, sink, len(expected)), f"{len(expected)} lines are in the file")
        reader = Reader(queue.bootstrap, "lines")
        wait_until(lambda: len(reader.look()) >= len(expected), "the lines are in the topic")
        reader.close()
    # Offsets are kept: no line is read from the file twice.
    assert [line for _, line in reader.seen] == expected
    assert sorted(set(sink.read_text().splitlines())) == sorted(expected)


@pytest.mark.ecosystem("mirror-maker")
def test_mirror_maker_copies_a_topic_and_what_a_group_has_read(tmp_path: Path) -> None:
    with broker() as here, broker() as there:
        produce(here.bootstrap, "orders", [("key", f"order {number}") for number in range(LINES)])
        consumer = Consumer({"bootstrap.servers": here.bootstrap, "group.id": "shop", "log_level": 0})
        consumer.commit(offsets=[TopicPartition("orders", 0, LINES)], asynchronous=False)
        consumer.close()
        settings = {
            "clusters": "here, there",
            "here.bootstrap.servers": here.bootstrap,
            "there.bootstrap.servers": there.bootstrap,
            "here->there.enabled": "true",
            "there->here.enabled": "false",
            "replication.factor": 1,
            "checkpoints.topic.replication.factor": 1,
            "heartbeats.topic.replication.factor": 1,
            "offset-syncs.topic.replication.factor": 1,
            "offset.storage.replication.factor": 1,
            "status.storage.replication.factor": 1,
            "config.storage.replication.factor": 1,
            "here->there.sync.group.offsets.enabled": "true",
            "here->there.sync.group.offsets.interval.seconds": 1,
            "here->there.emit.checkpoints.interval.seconds": 1,
            "here->there.refresh.groups.interval.seconds": 1,
            "here->there.offset.lag.max": 0,
        }
        command = java(
            "org.apache.kafka.connect.mirror.MirrorMaker", written(tmp_path / "mirror.properties", settings)
        )
        reader = Reader(there.bootstrap, "here.orders")
        admin = AdminClient({"bootstrap.servers": there.bootstrap, "log_level": 0})

        def read_there() -> bool:
            asked = [ConsumerGroupTopicPartitions("shop")]
            found = admin.list_consumer_group_offsets(asked)["shop"].result(60).topic_partitions
            return [(partition.topic, partition.offset) for partition in found] == [("here.orders", LINES)]

        with running(command, tmp_path / "log"):
            wait_until(lambda: len(reader.look()) >= LINES, "the records are there")
            wait_until(read_there, "the group's offset is there")
        reader.close()
    assert reader.seen == [("key", f"order {number}") for number in range(LINES)]
