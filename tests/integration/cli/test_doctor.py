"""`penstock doctor` beside a real broker: running, stopped, killed."""

import socket
from pathlib import Path
from typing import Any

from tests.integration.commands import Done, penstock

from penstock.testing import BrokerProcess


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def doctor(data_dir: Path, port: int, *options: str) -> Done:
    ports = ("--port", str(port), "--console-port", str(free_port()))
    return penstock("doctor", "--data-dir", str(data_dir), *ports, *options)


def found(done: Done, check: str) -> dict[str, Any]:
    return next(finding for finding in done.json["findings"] if finding["check"] == check)


def test_tells_running_from_stopped_from_killed(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data")
    broker.start()
    try:
        running = doctor(broker.data_dir, broker.port, "--json")
        assert running.code == 0, running.out
        assert "Kafka-compatible broker answers" in found(running, f"port {broker.port}")["found"]
        assert "in use by a running broker" in found(running, "data dir")["found"]
        broker.stop()
        stopped = doctor(broker.data_dir, broker.port, "--json")
        assert "free" in found(stopped, f"port {broker.port}")["found"]
        assert "closed cleanly" in found(stopped, "data dir")["found"]
        broker.start()
        broker.kill()
        killed = found(doctor(broker.data_dir, broker.port, "--json"), "data dir")
        assert (killed["level"], "not closed cleanly" in killed["found"]) == ("warn", True)
        broker.start()  # and looking did not break it
    finally:
        broker.stop()


def test_says_what_would_not_work_and_exits_with_1(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    done = doctor(file, free_port())
    assert done.code == 1
    assert any(line.startswith("fail  data dir") for line in done.out.splitlines())
    assert "-> name a directory with --data-dir" in done.out
    assert done.err == ""


def test_finds_versions_limits_and_disk(tmp_path: Path) -> None:
    done = doctor(tmp_path, free_port(), "--json")
    checks = [finding["check"] for finding in done.json["findings"]]
    assert {"disk space", "disk speed", "file system", "open files", "clock", "python", "librdkafka"} <= set(
        checks
    )
    assert not list(tmp_path.iterdir())


def test_looks_where_the_bootstrap_address_points(tmp_path: Path) -> None:
    port = free_port()
    console = ("--console-port", str(free_port()))
    done = penstock(
        "doctor", "--data-dir", str(tmp_path / "data"), *console, "--json", bootstrap=f"localhost:{port}"
    )
    assert found(done, f"port {port}")["found"] == "free on localhost"
