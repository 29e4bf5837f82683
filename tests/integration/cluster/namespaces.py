"""Brokers in network namespaces of their own, joined by a bridge, so that the way between any two can be cut.

    bridge      10.83.N.254 clients, 10.83.N.253 ZooKeeper: this namespace
      |- broker 1   10.83.N.1
      |- broker 2   10.83.N.2
      ...

A blackhole route drops what is sent to an address, silently and at once, and what is sent from there still arrives: one
way. Two of them cut both ways. Needs root and `ip`.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.integration.cluster.harness import SETTINGS

from penstock.coordination.zookeeper.server_process import ZooKeeperProcess
from penstock.testing import BrokerProcess, ClusterProcesses

# Addresses of this run: others may run on the same machine.
_NET = f"10.83.{os.getpid() % 250}"
_NAME = f"ps{os.getpid() % 100_000}"
CLIENTS = f"{_NET}.254"
ZOOKEEPER = f"{_NET}.253"
# A leader that cannot reach its followers finds out sooner.
_SETTINGS = {**SETTINGS, "replica.lag.time.max.ms": "3000"}


def possible() -> str:
    """Why not; empty where it is."""
    if shutil.which("ip") is None:
        return "`ip` is missing (Debian: iproute2)"
    return "" if os.geteuid() == 0 else "network namespaces need root"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def _name(broker: int) -> str:
    return f"{_NAME}b{broker}"


def address(broker: int) -> str:
    return f"{_NET}.{broker}"


@contextmanager
def _bridge() -> Iterator[None]:
    _ip("link", "add", _NAME, "type", "bridge")
    try:
        for gateway in (CLIENTS, ZOOKEEPER):
            _ip("address", "add", f"{gateway}/24", "dev", _NAME)
        _ip("link", "set", _NAME, "up")
        yield
    finally:
        _ip("link", "del", _NAME)


@contextmanager
def _namespace(broker: int) -> Iterator[None]:
    name = _name(broker)
    _ip("netns", "add", name)
    try:
        _ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("link", "set", name, "master", _NAME, "up")
        _ip("-n", name, "address", "add", f"{address(broker)}/24", "dev", "eth0")
        _ip("-n", name, "link", "set", "eth0", "up")
        _ip("-n", name, "link", "set", "lo", "up")
        yield
    finally:
        _ip("netns", "del", name)


class ApartCluster(ClusterProcesses):
    """Its brokers are in namespaces of their own."""

    def make(self, number: int, settings: object = None, *, folder: str = "") -> BrokerProcess:
        return BrokerProcess(
            self._directory / f"broker-{number}",
            self._settings,
            zookeeper=self._connect,
            node_id=number,
            host=address(number),
            prefix=("ip", "netns", "exec", _name(number)),
        )


@contextmanager
def apart(brokers: int, directory: Path) -> Iterator[ApartCluster]:
    """A running cluster, each broker in its namespace, ZooKeeper in ours."""
    with ExitStack() as stack:
        stack.enter_context(_bridge())
        for number in range(1, brokers + 1):
            stack.enter_context(_namespace(number))
        zookeeper = ZooKeeperProcess(directory / "zookeeper", tick_ms=200, durable=False, host=ZOOKEEPER)
        zookeeper.start()
        stack.callback(zookeeper.kill)
        processes = ApartCluster(directory, zookeeper, brokers, _SETTINGS)
        stack.callback(processes.kill)
        processes.start()
        yield processes


@contextmanager
def silenced(broker: int, *targets: str) -> Iterator[None]:
    """What the broker sends to these addresses is lost."""
    with ExitStack() as stack:
        for target in targets:
            _ip("-n", _name(broker), "route", "add", "blackhole", f"{target}/32")
            stack.callback(_ip, "-n", _name(broker), "route", "del", "blackhole", f"{target}/32")
        yield
