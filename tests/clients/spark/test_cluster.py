"""A Spark standalone cluster: the archive by another master URL, and executors that die (`make clients`)."""

from __future__ import annotations

import json
import os
import signal
from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from tests.clients.spark.pipelines import content, pipeline, started
from tests.clients.spark.rows import of_frame
from tests.integration.spark.topics import Sent, Topics
from tools.peers.spark_cluster import SparkCluster

from penstock.spark.pipelines.archive.reader import archived

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.clients.spark.world import World

pytestmark = [pytest.mark.clients, pytest.mark.timeout(1800)]
PARTITIONS = 4
ROWS = 200_000
ATTEMPTS = 5
PADDING = os.urandom(400)  # so that a round is work for two tasks, and takes a while


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    with SparkCluster() as running:
        yield running


@pytest.fixture(scope="module")
def topic(world_of: Callable[[str], World]) -> str:
    topics = Topics(world_of("penstock").bootstrap, prefix="cluster")
    name = topics.create(partitions=PARTITIONS)
    sent = [
        Sent(b"%d " % number + PADDING, b"%d" % (number % 999), number % PARTITIONS) for number in range(ROWS)
    ]
    topics.produce(name, sent)
    return name


class Events:
    """What Spark noted about an application, task by task."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.conf = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": folder.as_uri(),
            "spark.eventLog.compress": "false",
        }
        self._folder = folder

    def of(self, kind: str) -> list[dict[str, object]]:
        files = [
            file
            for file in self._folder.rglob("*")
            if file.is_file() and not file.name.startswith((".", "app"))
        ]
        events = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        return [event for event in events if event["Event"] == f"SparkListener{kind}"]

    def tasks_by_worker(self) -> dict[str, int]:
        """How many each finished; workers by the address of their logs."""
        workers = {
            added["Executor ID"]: added["Executor Info"]["Log Urls"]["stdout"].split("/logPage")[0]  # type: ignore[index]
            for added in self.of("ExecutorAdded")
        }
        found: dict[str, int] = defaultdict(int)
        for ended in self.of("TaskEnd"):
            if ended["Task End Reason"] == {"Reason": "Success"}:
                found[workers[ended["Task Info"]["Executor ID"]]] += 1  # type: ignore[index]
        return found

    def reasons(self) -> set[str]:
        return {ended["Task End Reason"]["Reason"] for ended in self.of("TaskEnd")}  # type: ignore[index]


def check_lake(spark: SparkSession, world: World, lake: Path, topic: str) -> None:
    """Every record once: through the manifest, and for whoever only sees the Parquet files."""
    wanted = world.there(topic)
    assert len(wanted) == ROWS
    found = of_frame(archived(spark, str(lake), topic))
    assert found == wanted
    plain = spark.read.parquet(str(lake)).selectExpr("partition", "offset").distinct()
    assert (plain.count(), spark.read.parquet(str(lake)).count()) == (ROWS, ROWS)


def test_the_archive_runs_on_both_workers(
    spark: SparkSession, world_of: Callable[[str], World], cluster: SparkCluster, topic: str, tmp_path: Path
) -> None:
    world = world_of("penstock")
    lakes = {}
    events = Events(tmp_path / "events")
    for name, master in (("local", "local[2]"), ("cluster", cluster.url)):
        lakes[name] = tmp_path / name
        arguments = ("archive", "--topic", topic, "--to", str(lakes[name]), "--once", "--master", master)
        conf = events.conf if name == "cluster" else {}
        assert pipeline(world.bootstrap, *arguments, conf=conf)["rows"] == ROWS
    assert len(events.tasks_by_worker()) == len(cluster.workers)
    check_lake(spark, world, lakes["cluster"], topic)
    of_local = of_frame(archived(spark, str(lakes["local"]), topic))
    assert content(of_local) == content(world.there(topic))


def executor_that_writes(cluster: SparkCluster, lake: Path) -> int | None:
    """One that has a file of the lake open: its task is not done."""
    for pid in [pid for worker in cluster.workers for pid in worker.executors()]:
        with suppress(FileNotFoundError, ProcessLookupError):  # they come and go
            if any(os.readlink(file).startswith(str(lake)) for file in os.scandir(f"/proc/{pid}/fd")):
                return pid
    return None


def test_an_executor_killed_while_it_writes(
    spark: SparkSession, world_of: Callable[[str], World], cluster: SparkCluster, topic: str, tmp_path: Path
) -> None:
    world = world_of("penstock")
    for attempt in range(ATTEMPTS):
        lake, events = tmp_path / f"lake-{attempt}", Events(tmp_path / f"events-{attempt}")
        arguments = ("archive", "--topic", topic, "--to", str(lake), "--once", "--master", cluster.url)
        with started(world.bootstrap, *arguments, conf=events.conf) as process:
            while (writer := executor_that_writes(cluster, lake)) is None:
                assert process.poll() is None, process.communicate()
            os.kill(writer, signal.SIGKILL)
            out, err = process.communicate()
        assert process.returncode == 0, err
        assert json.loads(out)["rows"] == ROWS
        check_lake(spark, world, lake, topic)
        if "ExecutorLostFailure" in events.reasons():  # else its work was done by then
            return
    pytest.fail("it was never killed in the middle of its work")
