"""The Java client works through a fail-over without restart: one producer, one consumer (`make clients`)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration.cluster.harness import SETTINGS, Cluster
from tests.integration.cluster.load import Load

from penstock.testing import ClusterProcesses, cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
PROGRAM = ("java", "-Xmx128M", "-XX:TieredStopAtLevel=1", "-cp", f"{HERE}/java/target/lib/*")
pytestmark = pytest.mark.clients


class JavaLoad(Load):
    """The same load, sent and read by the Java client."""

    def _run(self) -> None:
        self.read: list[dict[int, bytes]] = [{} for _ in range(self.partitions)]
        wanted = {"bootstrap": self.bootstrap, "topic": self.topic, "partitions": self.partitions}
        with subprocess.Popen(
            (*PROGRAM, "penstock.clients.Through", json.dumps(wanted)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            for line in process.stdout:
                self._heard(line.strip())
                if self._stopped.is_set() and not process.stdin.closed:
                    process.stdin.close()
                if process.stdin.closed and self._is_read:
                    break
            process.terminate()

    @property
    def _is_read(self) -> bool:
        """The consumer has seen whatever the producer was told of, and nobody waits for anything more."""
        return sum(self.sent) == sum(map(len, self.acknowledged)) + len(self.failed) and all(
            told.keys() <= seen.keys() for told, seen in zip(self.acknowledged, self.read, strict=True)
        )

    def _heard(self, line: str) -> None:
        what, _, rest = line.partition(" ")
        if what == "sent":
            self.sent[int(rest.partition(" ")[0])] += 1
        elif what == "failed":
            self.failed.append(rest)
        elif what in ("acknowledged", "read"):
            partition, offset, value = rest.split(" ")
            if what == "read":
                self.read[int(partition)][int(offset)] = value.encode()
            else:
                self.note(int(partition), int(offset), value.encode())


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(3, SETTINGS, directory=tmp_path) as processes:
        yield Cluster(processes)


@pytest.mark.parametrize("fault", ["killed", "asleep", "stopped"])
def test_the_java_client_goes_on_when_a_leader_is_gone(three: Cluster, fault: str) -> None:
    with JavaLoad(three.bootstrap, three.topic, three.partition_count) as load:
        leader = three.leader()
        if fault == "asleep":
            with three.paused(leader):
                load.until_more(200)
        else:
            _end(three.processes, leader, fault)
            load.until_more(200)
            three.broker(leader).start()
        three.until_whole()
        load.until_more(200)
    found = load.report()
    found.check()
    for seen, told in zip(load.read, load.acknowledged, strict=True):
        assert {offset: seen.get(offset) for offset in told} == told


def _end(processes: ClusterProcesses, broker: int, fault: str) -> None:
    process = processes.broker(broker)
    process.kill() if fault == "killed" else process.stop()
