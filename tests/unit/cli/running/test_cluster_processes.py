"""The processes of a local cluster: none stays behind, and none that went by itself is in the way."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from penstock.cli.command import Session
from penstock.cli.errors import CommandError
from penstock.cli.running import cluster, cluster_processes, cluster_start
from penstock.cli.running.cluster_file import LocalCluster
from penstock.cli.running.cluster_processes import HOST, Member
from penstock.coordination.zookeeper.server_process import ZooKeeperProcess

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
    monkeypatch.setattr(cluster_processes, "broker_command", lambda broker, *_: listening(broker.port))
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


def up(
    place: Path,
    *settings: str,
    count: int | None = 2,
    detach: bool = False,
    base_port: int | None = 0,
) -> None:
    cluster.up(SESSION, count, place, base_port, None, detach, list(settings))


@pytest.mark.parametrize("error", [BrokenPipeError(), KeyboardInterrupt()])
def test_what_was_started_is_ended_when_it_cannot_be_told(
    started: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    monkeypatch.setattr(sys, "stdout", Closed(error))
    with pytest.raises(type(error)):
        up(tmp_path)
    assert len(started) == 3
    assert [cluster_processes.began(pid) for pid in started] == ["", "", ""]
    assert running(tmp_path).was_stopped


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
    kill(before.zookeeper, before.brokers[0])
    up(tmp_path)  # returns: it is not ours to end
    after = running(tmp_path)
    assert after.brokers[1] == before.brokers[1], "what ran goes on"
    assert (after.bootstrap, after.zookeeper.port) == (before.bootstrap, before.zookeeper.port)
    assert (after.settings, len(started)) == (before.settings, 5)
    assert all(member.is_running for member in (after.zookeeper, *after.brokers))
    up(tmp_path, count=3)
    assert [broker.id for broker in running(tmp_path).brokers] == [1, 2, 3]


def kill(*members: Member) -> None:
    for member in members:
        os.kill(member.pid, signal.SIGKILL)
        os.waitpid(member.pid, 0)


@pytest.mark.parametrize("how", ["down", "reboot"])
def test_a_cluster_that_was_stopped_starts_as_it_was(started: list[int], tmp_path: Path, how: str) -> None:
    up(tmp_path, "log.retention.hours=-1", count=4, detach=True)
    before = running(tmp_path)
    if how == "down":
        cluster.down(SESSION, data_dir=tmp_path)
        with pytest.raises(CommandError, match="is stopped"):
            cluster.down(SESSION, data_dir=tmp_path)
    else:
        kill(*before.members)
    up(tmp_path, "log.retention.hours=24", count=None, detach=True, base_port=None)
    after = running(tmp_path)
    assert all(member.is_running for member in after.members)
    assert (after.bootstrap, after.zookeeper.port) == (before.bootstrap, before.zookeeper.port)
    assert after.settings == before.settings | {"log.retention.hours": "24"}


def test_defaults_go_with_the_number_of_brokers(started: list[int], tmp_path: Path) -> None:
    up(tmp_path, "min.insync.replicas=2", count=1, detach=True)
    cluster.down(SESSION, data_dir=tmp_path)
    up(tmp_path, count=3, detach=True)
    wanted = {"default.replication.factor": "3", "min.insync.replicas": "2"}
    assert running(tmp_path).settings.items() >= wanted.items()


def holding(data_dir: Path, cluster_id: str) -> "subprocess.Popen[bytes]":
    """In place of a broker that was started by hand."""
    data_dir.mkdir()
    identity = {"cluster_id": cluster_id, "node_id": 9, "directory_id": "d"}
    (data_dir / "identity.json").write_text(json.dumps(identity))
    lock = str(data_dir / ".lock")
    program = (
        f"import fcntl, time; f = open({lock!r}, 'w'); fcntl.flock(f, fcntl.LOCK_EX); "
        "print(flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-S", "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as said:
        said.readline()
    return process


def test_brokers_of_a_cluster_that_were_started_by_hand_are_ended_with_it(
    started: list[int], tmp_path: Path
) -> None:
    up(tmp_path, detach=True)
    (tmp_path / "broker-1").mkdir()
    identity = {"cluster_id": "ours", "node_id": 1, "directory_id": "d"}
    (tmp_path / "broker-1" / "identity.json").write_text(json.dumps(identity))
    ours, foreign = holding(tmp_path / "broker-9", "ours"), holding(tmp_path / "data", "another")
    cluster.down(SESSION, data_dir=tmp_path)
    assert ours.wait() == -signal.SIGTERM
    assert foreign.poll() is None
    assert not running(tmp_path).is_running


def test_where_no_broker_of_a_cluster_has_begun_none_is_taken_for_its_own(
    started: list[int], tmp_path: Path
) -> None:
    up(tmp_path, detach=True)
    foreign = holding(tmp_path / "data", "another")
    (tmp_path / "data" / "identity.json").unlink()
    cluster.down(SESSION, data_dir=tmp_path)
    assert foreign.poll() is None


@pytest.mark.parametrize("interrupted", [False, True])
def test_an_up_in_the_foreground_does_not_end_the_cluster_that_took_its_place(
    started: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupted: bool
) -> None:
    tell = cluster._tell

    def meanwhile(*_: object) -> None:
        """In another terminal, while the first waits."""
        monkeypatch.setattr(cluster, "_tell", tell)
        cluster.down(SESSION, data_dir=tmp_path)
        up(tmp_path, detach=True)
        if interrupted:
            raise KeyboardInterrupt

    monkeypatch.setattr(cluster, "_tell", meanwhile)
    with pytest.raises(KeyboardInterrupt) if interrupted else nullcontext():
        up(tmp_path)
    assert len(started) == 6
    assert [member.pid for member in running(tmp_path).members] == started[3:]
    assert all(member.is_running for member in running(tmp_path).members)


def test_an_up_in_the_foreground_ends_what_others_have_added_to_its_cluster(
    started: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell = cluster._tell

    def meanwhile(*_: object) -> None:
        monkeypatch.setattr(cluster, "_tell", tell)
        kill(running(tmp_path).zookeeper)
        up(tmp_path, count=3)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(cluster, "_tell", meanwhile)
    with pytest.raises(KeyboardInterrupt):
        up(tmp_path)
    assert len(started) == 5
    assert [cluster_processes.began(pid) for pid in started] == [""] * 5
    assert running(tmp_path).was_stopped


def test_what_a_killed_up_has_started_is_known(
    started: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen from within: each process is written down before the next begins."""
    seen = []

    def command(broker: Member, *_: object) -> list[str]:
        seen.append([member.is_running for member in running(tmp_path).members])
        return listening(broker.port)

    monkeypatch.setattr(cluster_processes, "broker_command", command)
    up(tmp_path, detach=True)
    assert seen == [[True, False, False], [True, True, False]]


def second_up(place: str) -> None:
    """In another process, which must not come to start anything."""

    def spawn(*_: object) -> None:
        raise AssertionError("it starts processes, too")

    setattr(cluster_processes, "require_all", lambda: None)  # noqa: B010 - mypy would refuse it
    setattr(cluster_start, "spawn", spawn)  # noqa: B010
    up(Path(place), count=None, detach=True)


def test_of_two_starters_in_one_directory_one_starts(
    started: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = f"from {__name__} import second_up; second_up({str(tmp_path)!r})"
    others: list[subprocess.Popen[str]] = []

    def command(broker: Member, *_: object) -> list[str]:
        if not others:
            monkeypatch.setattr(
                cluster_processes, "broker_command", lambda member, *_: listening(member.port)
            )
            others.append(
                subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)
            )
            assert others[0].stderr is not None
            assert "waiting" in others[0].stderr.readline()
        return listening(broker.port)

    monkeypatch.setattr(cluster_processes, "broker_command", command)
    up(tmp_path, detach=True)
    _, said = others[0].communicate()
    assert "runs already" in said
    assert others[0].returncode == 1
    assert all(member.is_running for member in running(tmp_path).members)


def test_a_process_that_ended_before_it_was_noted_does_not_run() -> None:
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    process.wait()
    gone = Member(1, 1, process.pid, cluster_processes.began(process.pid))
    assert not gone.is_running
    cluster_processes.end_one(gone)


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
