"""`penstock broker --workers 2`: two brokers as one service, beside a third on what counts as another machine."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.commands import COMMAND, environment, penstock
from tests.integration.raw import HANG_SECONDS, wait_until

from penstock.coordination.zookeeper.server_process import ZooKeeperProcess
from penstock.testing import BrokerProcess

# No more replicas are wished for: a stop while some are being added is not a clean one.
MACHINES = 2
PARTITIONS = 6


class Service:
    """The supervisor and its two workers."""

    def __init__(self, data_dir: Path, zookeeper: str) -> None:
        self._log = data_dir.with_name("workers.log").open("w")
        self.process = subprocess.Popen(
            [
                *(*COMMAND, "broker", "--json", "--id", "10", "--workers", "2"),
                *("--listener", "127.0.0.1:0", "--data-dir", str(data_dir), "--zookeeper", zookeeper),
                *("--console-port", "0", "--set", "zookeeper.session.timeout.ms=30000"),
                *("--set", f"offsets.topic.replication.factor={MACHINES}"),
            ],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment(),
        )
        assert self.process.stdout is not None
        self.facts: dict[str, Any] = json.loads(self.process.stdout.readline())

    @property
    def bootstrap(self) -> str:
        return ",".join(self.facts["listens"])

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urlopen(
                f"http://127.0.0.1:{self.facts['console_port']}{path}", timeout=HANG_SECONDS
            ) as page:
                return page.status, page.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._log.close()
        return code


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[str]:
    server = ZooKeeperProcess(tmp_path / "zookeeper", tick_ms=200, durable=False)
    server.start()
    try:
        yield f"{server.connect}/penstock"
    finally:
        server.kill()


@pytest.fixture
def other(tmp_path: Path, zookeeper: str) -> Iterator[BrokerProcess]:
    settings = {
        "zookeeper.session.timeout.ms": "30000",
        "penstock.host.label": "elsewhere",
        "offsets.topic.replication.factor": str(MACHINES),
    }
    process = BrokerProcess(tmp_path / "other", settings, zookeeper=zookeeper, node_id=1)
    process.start()
    try:
        yield process
    finally:
        process.kill()


def test_two_workers_are_one_service(tmp_path: Path, zookeeper: str, other: BrokerProcess) -> None:
    service = Service(tmp_path / "data", zookeeper)
    try:
        assert [fact["node_id"] for fact in service.facts["workers"]] == [10, 11]
        assert (tmp_path / "data" / "worker-0" / "topics").parent.is_dir()

        # No two replicas of a partition on one machine: with two machines, two is the most.
        admin = AdminClient({"bootstrap.servers": other.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("orders", PARTITIONS, 2)])["orders"].result()
        found = admin.list_topics("orders", timeout=60).topics["orders"].partitions
        assert all(min(metadata.replicas) == 1 for metadata in found.values())
        assert {max(metadata.replicas) for metadata in found.values()} == {10, 11}
        refused = penstock("topic", "create", "three", "--replicas", "3", bootstrap=other.bootstrap)
        assert "2 broker(s)" in refused.said()

        producer = Producer({"bootstrap.servers": service.bootstrap, "acks": "all", "log_level": 0})
        for number in range(60):
            producer.produce("orders", b"%d" % number, partition=number % PARTITIONS)
        assert producer.flush() == 0

        # One endpoint for both, each sample under its broker's number.
        status, page = service.get("/metrics")
        assert status == 200
        for broker in (10, 11):
            assert f'penstock_worker_up{{broker="{broker}"}} 1' in page
            assert re.search(
                rf'^penstock_log_end_offset{{broker="{broker}",.*topic="orders"}} 10$', page, re.MULTILINE
            )
        assert page.count("# TYPE penstock_log_end_offset ") == 1
        status, health = service.get("/healthz")
        assert (status, [load["node"] for load in json.loads(health)["workers"]]) == (200, [10, 11])

        # A worker that is killed is started again, on the same port and data.
        os.kill(service.facts["workers"][1]["pid"], signal.SIGKILL)
        wait_until(
            lambda: 'penstock_worker_restarts_total{broker="11"} 1' in service.get("/metrics")[1],
            "the death was noticed",
        )
        wait_until(lambda: 'worker_up{broker="11"} 1' in service.get("/metrics")[1], "it serves again")
        assert 'penstock_worker_restarts_total{broker="10"} 0' in service.get("/metrics")[1]
        assert _read(service.facts["listens"][1], 60) == {b"%d" % number for number in range(60)}
    finally:
        code = service.end()
    assert code == 0
    for number in range(2):
        assert (tmp_path / "data" / f"worker-{number}" / "clean-shutdown").exists(), "a clean stop"


def test_workers_end_with_a_supervisor_that_is_killed(tmp_path: Path, zookeeper: str) -> None:
    service = Service(tmp_path / "data", zookeeper)
    pids = [fact["pid"] for fact in service.facts["workers"]]
    service.process.kill()
    service.end()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the workers are gone")
    assert (tmp_path / "data" / "worker-0" / "clean-shutdown").exists()


def test_without_zookeeper_there_is_no_cluster_of_workers(tmp_path: Path) -> None:
    arguments = (
        "--id",
        "1",
        "--workers",
        "2",
        "--listener",
        "127.0.0.1:0",
        "--data-dir",
        str(tmp_path / "d"),
    )
    said = penstock("broker", *arguments).said()
    assert "--zookeeper" in said
    assert not (tmp_path / "d").exists()


def test_workers_that_wait_for_zookeeper_can_be_stopped(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [
            *(*COMMAND, "broker", "--id", "1", "--workers", "2", "--listener", "127.0.0.1:0"),
            *(
                "--data-dir",
                str(tmp_path / "d"),
                "--zookeeper",
                "127.0.0.1:1/penstock",
                "--console-port",
                "0",
            ),
        ],
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert process.stderr is not None
    while "waiting for ZooKeeper" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 0


def test_settings_that_are_wrong_end_all_at_once(tmp_path: Path) -> None:
    nobody = "127.0.0.1:1/penstock"
    arguments = (
        "--id",
        "1",
        "--workers",
        "2",
        "--listener",
        "127.0.0.1:0",
        "--data-dir",
        str(tmp_path / "d"),
    )
    done = penstock(
        *("broker", *arguments, "--zookeeper", nobody, "--console-port", "0"),
        *("--set", "zookeeper.connection.timeout.ms=500"),
    )
    assert done.code == 1
    assert "a worker did not start" in done.err


def _read(bootstrap: str, count: int) -> set[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe(["orders"])
    found: set[bytes] = set()
    while len(found) < count:
        for message in consumer.consume(100, timeout=1.0):
            assert message.error() is None, message.error()
            found.add(message.value())
    consumer.close()
    return found
