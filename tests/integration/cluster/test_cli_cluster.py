"""`penstock cluster up|status|down`: a cluster on this machine that outlives the command that started it."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.commands import COMMAND, environment, penstock
from tests.integration.raw import wait_until

BROKERS = 2


@pytest.fixture
def place(tmp_path: Path) -> Iterator[str]:
    yield str(tmp_path)
    penstock("cluster", "down", "--data-dir", str(tmp_path))


def test_a_detached_cluster_is_seen_used_and_stopped(place: str) -> None:
    up = ("cluster", "up", "-n", str(BROKERS), "--data-dir", place, "--base-port", "0", "--detach", "--json")
    up += ("--set", "zookeeper.session.timeout.ms=6000")
    started = penstock(*up)
    assert started.code == 0, started.err
    bootstrap = started.json["bootstrap"]
    assert "already" in penstock(*up).said()

    created = penstock("topic", "create", "orders", "--partitions", "2", bootstrap=bootstrap)
    assert created.code == 0, created.err
    assert penstock("produce", "orders", stdin="hello\n", bootstrap=bootstrap).code == 0
    read = penstock("consume", "orders", "--from-beginning", "--max", "1", bootstrap=bootstrap)
    assert "hello" in read.out

    found = penstock("cluster", "status", "--data-dir", place, "--json").json
    assert [broker["id"] for broker in found["brokers"]] == [1, 2]
    assert sum(broker["controller"] for broker in found["brokers"]) == 1
    assert found["partitions"] >= 2
    assert (found["offline"], found["moves"], found["trouble"]) == (0, [], None)
    assert [broker["state"] for broker in found["brokers"]] == ["in service"] * BROKERS
    for broker in found["brokers"]:
        os.kill(broker["pid"], 0)

    os.kill(found["brokers"][0]["pid"], signal.SIGKILL)
    wait_until(lambda: _pids(place)[0] is None, "the killed broker is seen as gone")
    assert "ZooKeeper on port" in penstock("cluster", "status", "--data-dir", place).out
    completed = penstock(*up)
    assert completed.json["bootstrap"] == bootstrap
    assert [_pids(place)[0] != found["brokers"][0]["pid"], _pids(place)[1]] == [
        True,
        found["brokers"][1]["pid"],
    ]

    assert penstock("cluster", "down", "--data-dir", place).code == 0
    for pid in (found["brokers"][1]["pid"], found["zookeeper"]["pid"]):
        wait_until(lambda pid=pid: not Path(f"/proc/{pid}").exists() or _is_zombie(pid), "it is gone")
    assert "is stopped" in penstock("cluster", "status", "--data-dir", place).said()

    again = penstock("cluster", "up", "--data-dir", place, "--detach", "--json")
    assert again.code == 0, again.err
    assert again.json["bootstrap"] == bootstrap
    read = penstock("consume", "orders", "--from-beginning", "--max", "1", bootstrap=again.json["bootstrap"])
    assert "hello" in read.out


def test_in_the_foreground_it_ends_with_the_command(place: str) -> None:
    process = subprocess.Popen(
        [*COMMAND, "cluster", "up", "-n", "1", "--data-dir", place, "--base-port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("penstock listens on 127.0.0.1:")
    (pid,) = _pids(place)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 0
    process.stdout.close()
    assert not Path(f"/proc/{pid}").exists() or _is_zombie(pid)


def _pids(place: str) -> list[int | None]:
    found = penstock("cluster", "status", "--data-dir", place, "--json").json
    return [broker["pid"] for broker in found["brokers"]]


def _is_zombie(pid: int) -> bool:
    """Nobody has taken notice of its end yet."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
