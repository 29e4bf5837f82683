"""A release opens what earlier ones wrote: data directories, ZooKeeper and lakes as they left them (O4)."""

import base64
import json
import re
import tarfile
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from tests.fixtures.story import (
    BATCHES,
    PARTITIONS,
    RECORDS_PER_BATCH,
    SETTINGS,
    Facts,
    Story,
)

from penstock.coordination.zookeeper.server_process import ZooKeeperProcess
from penstock.spark.pipelines.archive.lake import FolderLake
from penstock.spark.pipelines.archive.manifest import Manifest
from penstock.testing import BrokerProcess, ClusterProcesses

FIXTURES = Path(__file__).parents[1] / "fixtures"
RELEASES = sorted(path.name for path in FIXTURES.iterdir() if (path / "one-node.tar.xz").exists())
releases = pytest.mark.parametrize("release", RELEASES)


def unpacked(release: str, name: str, target: Path) -> Facts:
    with tarfile.open(FIXTURES / release / f"{name}.tar.xz") as archive:
        archive.extractall(target, filter="data")
    facts = target / "facts.json"
    return Facts(**json.loads(facts.read_text())) if facts.exists() else Facts(-1, -1)


def restore(connect: str, nodes: list[tuple[str, int, str]]) -> None:
    """Every node, under the version it had: the version of a partition's is its epoch."""
    client = KazooClient(connect)
    client.start()
    try:
        for path, version, data in nodes:
            client.create(path, base64.b64decode(data))
            for _ in range(version):
                client.set(path, base64.b64decode(data))
    finally:
        client.stop()
        client.close()


def test_there_is_a_fixture_of_every_release() -> None:
    page = (FIXTURES.parents[1] / "docs" / "upgrade.md").read_text()
    assert re.findall(r"^\| \d+ \| (\d\S+)", page, re.MULTILINE) == RELEASES
    for release in RELEASES:
        assert {path.name for path in (FIXTURES / release).iterdir()} == {
            "one-node.tar.xz",
            "cluster.tar.xz",
            "lake.tar.xz",
        }


@releases
def test_a_node_opens_what_a_release_left(release: str, tmp_path: Path) -> None:
    facts = unpacked(release, "one-node", tmp_path)
    broker = BrokerProcess(tmp_path / "data", SETTINGS)
    try:
        broker.start()
        Story([broker.port]).check(facts)
    finally:
        broker.kill()
    said = broker.log_path.read_text()
    assert "ERROR" not in said, said


@releases
def test_a_cluster_opens_what_a_release_left(release: str, tmp_path: Path) -> None:
    facts = unpacked(release, "cluster", tmp_path)
    zookeeper = ZooKeeperProcess(tmp_path / "zookeeper", tick_ms=200, durable=False)
    zookeeper.start()
    try:
        restore(zookeeper.connect, json.loads((tmp_path / "zookeeper.json").read_text()))
        processes = ClusterProcesses(tmp_path, zookeeper, settings=SETTINGS)
        try:
            processes.start()
            Story([broker.port for broker in processes.brokers]).check(facts)
        finally:
            processes.kill()
    finally:
        zookeeper.kill()
    for broker in processes.brokers:
        said = broker.log_path.read_text()
        assert "ERROR" not in said, said


@releases
def test_an_archiver_goes_on_where_a_release_stopped(release: str, tmp_path: Path) -> None:
    unpacked(release, "lake", tmp_path)
    lake = FolderLake(tmp_path)
    archive = Manifest.load(lake).topic("orders")
    assert archive is not None
    assert archive.next_offsets == dict.fromkeys(range(PARTITIONS), BATCHES * RECORDS_PER_BATCH)
    assert archive.rows == PARTITIONS * BATCHES * RECORDS_PER_BATCH
    assert {entry.path for entry in lake.list("topic=orders")} == set(archive.files)
