"""docs/cluster.md does what it says: from one broker to three, each command as it is written there."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.commands import environment

from penstock.cli.running.cluster_file import LocalCluster
from penstock.coordination.zookeeper.server_process import free_port

PAGE = (Path(__file__).parents[3] / "docs" / "cluster.md").read_text()
SESSION = ("--set", "zookeeper.session.timeout.ms=30000")
# Ports as they stand on the page; a test takes free ones.
PORTS = ("2181", "9092", "9093", "9094", "9082", "9083")


class Page:
    """Its blocks, run one after the other in one directory."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._ports = {port: str(free_port()) for port in PORTS}
        self.bootstrap = f"127.0.0.1:{self._ports['9092']}"
        self._brokers: list[subprocess.Popen[str]] = []

    def blocks(self) -> Iterator[tuple[str, list[str]]]:
        for kind, text in re.findall(r"^```(sh[a-z ]*)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
            yield kind, text.strip().splitlines()

    def _here(self, command: str) -> str:
        for written, taken in self._ports.items():
            command = re.sub(rf"\b{written}\b", taken, command)
        if command.startswith("penstock cluster up"):
            command += f" --base-port {self._ports['9092']}"
        if command.startswith(("penstock cluster up", "penstock broker ")):
            command += " " + " ".join(SESSION)
        return re.sub(
            r"\bpenstock (?=[a-z])", f"{shlex.quote(sys.executable)} -m penstock.cli.main ", command
        )

    def run(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", self._here(command)],
            env=environment(self.bootstrap),
            cwd=self._place,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def start(self, command: str) -> None:
        log = (self._place / f"{len(self._brokers)}.log").open("w")
        with log:
            process = subprocess.Popen(
                shlex.split(self._here(command)),
                cwd=self._place,
                env=environment(),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._brokers.append(process)
        assert process.stdout is not None
        assert any("; ready after " in line for line in process.stdout), command

    def check_all_ended(self) -> None:
        assert [broker.wait(30) for broker in self._brokers] == [0] * len(self._brokers)

    def stop_brokers(self) -> None:
        for broker in self._brokers:
            broker.terminate()
            broker.communicate()
        self._brokers.clear()


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    new_page = Page(tmp_path)
    try:
        yield new_page
    finally:
        new_page.stop_brokers()
        found = LocalCluster.find(tmp_path / "demo")
        if found is not None and found.is_running:
            new_page.run("penstock cluster down --data-dir demo")


@pytest.mark.soak
def test_the_page_is_true(page: Page) -> None:
    said: dict[str, str] = {}
    for kind, commands in page.blocks():
        for command in commands:
            if kind == "sh brokers":
                page.start(command)
                continue
            said[command] = page.run(command)
            if command.startswith("penstock cluster down"):
                page.check_all_ended()
    assert said["penstock broker-admin list"].count("in service") == 2
    assert "drained" in said["penstock broker-admin list"]
    assert "0 under-replicated, 0 offline" in said["penstock status"]
    described = said["penstock topic describe orders"]
    assert len(re.findall(r"\b[123],[123],[123] +[123],[123],[123]\b", described)) == 6, described
    assert "identical" in said["penstock verify"]
