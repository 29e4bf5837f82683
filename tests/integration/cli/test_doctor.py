"""`penstock doctor` beside a real broker: running, stopped, killed."""

import socket
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from tests.integration.commands import Done, penstock

from penstock.storage.layout import PARTITION_FILE, RECOVERY_POINT_FILE
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


def test_a_log_that_was_set_aside_comes_back_as_advised(tmp_path: Path) -> None:
    """Its partition file is damaged: the broker cannot tell whose it is, and begins anew."""
    broker = BrokerProcess(tmp_path / "data")
    broker.start()
    place = broker.data_dir / "topics/orders/Partition-0"
    try:
        assert penstock("topic", "create", "orders", bootstrap=broker.bootstrap).code == 0
        producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
        for number in range(6):
            producer.produce("orders", b"%d" % number, partition=0)
        assert producer.flush(60) == 0
        broker.stop()
        (place / PARTITION_FILE).write_bytes(b"")
        (place / RECOVERY_POINT_FILE).unlink()  # else that says whose it is
        broker.start()
        finding = found(doctor(broker.data_dir, broker.port, "--json"), "quarantine")
        assert finding["level"] == "fail"
        assert "keep them" in finding["advice"]
        assert f"{place.parent.name}-0-unknown.0: if it is of this topic" in finding["advice"]
        broker.stop()
        (aside,) = (broker.data_dir / "quarantine").iterdir()
        assert aside.name in finding["found"]
        (aside / PARTITION_FILE).write_bytes((place / PARTITION_FILE).read_bytes())
        place.rename(tmp_path / "made-in-its-place")
        aside.rename(place)
        broker.start()
        read = penstock(
            "consume", "orders", "--from-beginning", "--no-follow", bootstrap=broker.bootstrap
        ).out.split()
        assert read == [str(number) for number in range(6)]
        assert found(doctor(broker.data_dir, broker.port, "--json"), "quarantine")["level"] == "ok"
    finally:
        broker.stop()
