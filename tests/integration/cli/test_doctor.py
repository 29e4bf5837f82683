"""`penstock doctor` beside a real broker: running, stopped, killed."""

import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
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


def produce(broker: BrokerProcess, values: Iterable[bytes], partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
    for value in values:
        producer.produce("orders", value, partition=partition)
    assert producer.flush(60) == 0


def consumed(broker: BrokerProcess) -> list[str]:
    done = penstock("consume", "orders", "--from-beginning", "--no-follow", bootstrap=broker.bootstrap)
    return sorted(done.out.split())


def do_as_advised(broker: BrokerProcess, advice: str, kept: Path) -> list[str]:
    """To the letter, for those whose way back is told; returns their names."""
    told = advice.partition("Nothing was written since in the place of ")[2].partition(": if it is of")[0]
    names = told.split(", ") if told else []
    for name in names:
        aside = broker.data_dir / "quarantine" / name
        partition = name.removesuffix("-unknown.0").rpartition("-")[2]
        place = broker.data_dir / f"topics/orders/Partition-{partition}"
        (aside / PARTITION_FILE).write_bytes((place / PARTITION_FILE).read_bytes())
        place.rename(kept / name)
        aside.rename(place)
    return names


@pytest.mark.parametrize("written", [(), (2,), (0, 1, 2, 3)], ids=["nothing", "one partition", "all"])
def test_logs_that_were_set_aside_come_back_as_advised(tmp_path: Path, written: tuple[int, ...]) -> None:
    """Partition files are damaged: the broker cannot tell whose the logs are, and begins anew.

    Doctor looks while it serves; what is `written` until it is stopped must not go with what is replaced.
    """
    broker = BrokerProcess(tmp_path / "data")
    broker.start()
    places = [broker.data_dir / f"topics/orders/Partition-{number}" for number in range(4)]
    values = {number: [b"%d-%d" % (number, each) for each in range(3)] for number in range(4)}
    later = [b"later-%d" % number for number in written]
    try:
        assert (
            penstock("topic", "create", "orders", "--partitions", "4", bootstrap=broker.bootstrap).code == 0
        )
        for number in range(4):
            produce(broker, values[number], number)
        broker.stop()
        for place in places:
            (place / PARTITION_FILE).write_bytes(b"")
            (place / RECOVERY_POINT_FILE).unlink()  # else that says whose it is
        broker.start()
        asides = sorted(path.name for path in (broker.data_dir / "quarantine").iterdir())
        assert asides == [f"orders-{number}-unknown.0" for number in range(4)]
        finding = found(doctor(broker.data_dir, broker.port, "--json"), "quarantine")
        assert finding["level"] == "fail"
        assert "keep them" in finding["advice"]
        assert all(name in finding["found"] for name in asides)
        assert do_as_advised(broker, finding["advice"], tmp_path) == []
        for number in written:
            produce(broker, [b"later-%d" % number], number)
        broker.stop()
        advice = found(doctor(broker.data_dir, broker.port, "--json"), "quarantine")["advice"]
        back = [number for number in range(4) if number not in written]
        assert do_as_advised(broker, advice, tmp_path) == [f"orders-{number}-unknown.0" for number in back]
        broker.start()
        expected = [value for number in back for value in values[number]] + later
        assert consumed(broker) == sorted(value.decode() for value in expected)
        left = found(doctor(broker.data_dir, broker.port, "--json"), "quarantine")
        assert left["level"] == ("fail" if written else "ok")
        assert all(f"orders-{number}-unknown.0" in left["found"] for number in written)
    finally:
        broker.stop()
