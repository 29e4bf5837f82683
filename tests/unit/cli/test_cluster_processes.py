"""The processes of a local cluster: none stays behind, and none that went by itself is in the way."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli import cluster, cluster_processes
from penstock.cli.cluster_processes import HOST, LocalCluster, Member
from penstock.cli.command import Session
from penstock.cli.errors import CommandError
from penstock.testing.zookeeper import ZooKeeperProcess

SESSION = Session("127.0.0.1:1", json=False, debug=False)


def listening(port: int) -> list[str]:
    """A process that has its port open and does nothing."""
    program = f"import socket, time; s = socket.create_server(('{HOST}', {port})); time.sleep(60)"
    return [sys.executable, "-S", "-c", program]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The processes that were begun, in place of ZooKeeper and brokers."""
    begun: list[subprocess.Popen[bytes]] = []
    pids: list[int] = []
    honest = subprocess.Popen

    def popen(command: list[str], **options: object) -> "subprocess.Popen[bytes]":
        begun.append(honest(command, **options))  # type: ignore[call-overload]
        pids.append(begun[-1].pid)
        return begun[-1]

    monkeypatch.setattr(subprocess, "Popen", popen)
    monkeypatch.setattr(cluster_processes, "require_all", lambda: None)
    monkeypatch.setattr(ZooKeeperProcess, "command", lambda server: listening(server.port))
    monkeypatch.setattr(
        cluster_processes, "broker_command", lambda _id, _dir, _store, ports, _set: listening(ports[0])
    )
    before = signal.getsignal(signal.SIGTERM)
    yield pids
    signal.signal(signal.SIGTERM, before)
    for process in begun:
        process.kill()
        process.wait()


class Closed:
    """An output that cannot be written to."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def write(self, _: str) -> int:
        raise self._error

    def flush(self) -> None:
        pass


def up(place: Path, *, count: int | None = 2, detach: bool = False) -> None:
    cluster.up(SESSION, count=count, data_dir=place, base_port=0, zookeeper_port=0, detach=detach, set_=None)


@pytest.mark.parametrize("error", [BrokenPipeError(), KeyboardInterrupt()])
def test_what_was_started_is_ended_when_it_cannot_be_told(
    started: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    monkeypatch.setattr(sys, "stdout", Closed(error))
    with pytest.raises(type(error)):
        up(tmp_path)
    assert len(started) == 3
    assert [cluster_processes.began(pid) for pid in started] == ["", "", ""]
    assert LocalCluster.find(tmp_path) is None


@pytest.mark.parametrize("number", [1, 2, 3])
def test_ctrl_c_while_a_process_is_begun_leaves_none(
    started: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    began = cluster_processes.began

    def interrupted(pid: int) -> str:
        """The first thing that is asked of a new process."""
        if len(started) == number and pid == started[-1] and not told:
            told.append(pid)
            signal.raise_signal(signal.SIGINT)
        return began(pid)

    told: list[int] = []
    monkeypatch.setattr(cluster_processes, "began", interrupted)
    with pytest.raises(KeyboardInterrupt):
        up(tmp_path)
    assert len(started) == number
    assert [began(pid) for pid in started] == [""] * number


def test_a_process_that_ends_between_look_and_signal_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    process.wait()
    gone = Member(1, 1, process.pid, "then")
    looks = iter(["then", "then", ""])
    monkeypatch.setattr(cluster_processes, "began", lambda _: next(looks, ""))
    monkeypatch.setattr(cluster_processes, "_STOP_SECONDS", -1.0)
    LocalCluster(gone, [gone]).end(tmp_path)


def running(place: Path) -> LocalCluster:
    found = LocalCluster.find(place)
    assert found is not None
    return found


def test_what_is_missing_of_a_cluster_that_runs_is_started_where_it_was(
    started: list[int], tmp_path: Path
) -> None:
    up(tmp_path, detach=True)
    before = running(tmp_path)
    with pytest.raises(CommandError, match="runs already"):
        up(tmp_path)
    for gone in (before.zookeeper, before.brokers[0]):
        os.kill(gone.pid, signal.SIGKILL)
        os.waitpid(gone.pid, 0)
    up(tmp_path)  # returns: it is not ours to end
    after = running(tmp_path)
    assert after.brokers[1] == before.brokers[1], "what ran goes on"
    assert (after.bootstrap, after.zookeeper.port) == (before.bootstrap, before.zookeeper.port)
    assert (after.settings, len(started)) == (before.settings, 5)
    assert all(one.is_running for one in (after.zookeeper, *after.brokers))
    up(tmp_path, count=3)
    assert [one.id for one in running(tmp_path).brokers] == [1, 2, 3]


def test_a_broker_that_was_started_by_hand_is_ended_with_its_cluster(
    started: list[int], tmp_path: Path
) -> None:
    up(tmp_path, detach=True)
    lock = tmp_path / "broker-9" / ".lock"
    lock.parent.mkdir()
    program = (
        f"import fcntl, time; f = open({str(lock)!r}, 'w'); fcntl.flock(f, fcntl.LOCK_EX); "
        "print(flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-S", "-c", program], stdout=subprocess.PIPE) as by_hand:
        assert by_hand.stdout is not None
        by_hand.stdout.readline()
        cluster.down(SESSION, data_dir=tmp_path)
        assert by_hand.wait() == -signal.SIGTERM
    assert [cluster_processes.began(pid) for pid in started] == [""] * len(started)


def test_all_that_is_missing_is_named_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cluster_processes, "find_spec", lambda _: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(CommandError) as raised:
        cluster_processes.require_all()
    said = str(raised.value)
    assert "kazoo and pyspark, pip install " in said
    assert "[cluster,spark]" in said
    assert "Java" in said
