"""The broker users get for their own tests: `penstock.testing.broker()` and the fixture `penstock_broker`."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.testing import BrokerProcess, broker
from penstock.testing.process import BrokerStartError


def send(bootstrap: str, topic: str, value: bytes) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error))
    producer.flush()
    assert failures == [None]


def read(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [message.value() for message in consumer.consume(count, timeout=60)]
    finally:
        consumer.close()


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_real_clients_work_and_nothing_is_left_behind() -> None:
    with broker({"num.partitions": "1"}) as running:
        pid, directory = running.pid, running.data_dir.parent
        send(running.bootstrap, "greetings", b"hello")
        assert read(running.bootstrap, "greetings", 1) == [b"hello"]
        with urlopen(f"{running.console_url}/healthz") as answer:
            assert json.load(answer)["status"] == "ok"
    assert not alive(pid)
    assert not directory.exists()


def test_two_brokers_do_not_meet() -> None:
    with broker() as process, broker() as other:
        assert process.port != other.port
        send(process.bootstrap, "t", b"one")
        send(other.bootstrap, "t", b"other")
        assert read(process.bootstrap, "t", 1) == [b"one"]
        assert read(other.bootstrap, "t", 1) == [b"other"]


@pytest.mark.parametrize("end", [BrokerProcess.stop, BrokerProcess.kill])
def test_same_data_on_the_same_port_after_a_restart(tmp_path: Path, end: object) -> None:
    running = BrokerProcess(tmp_path / "data")
    running.start()
    try:
        before = running.bootstrap
        send(running.bootstrap, "kept", b"still here")
        end(running)  # type: ignore[operator]
        running.start()
        assert running.bootstrap == before
        assert read(running.bootstrap, "kept", 1) == [b"still here"]
    finally:
        running.stop()


def test_settings_in_the_environment_do_not_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_LISTENERS", "PLAINTEXT://127.0.0.1:1")
    monkeypatch.setenv("PENSTOCK_NUM_PARTITIONS", "nonsense")
    with broker() as running, socket.create_connection(("127.0.0.1", running.port)):
        assert running.port > 1


def test_start_that_fails_says_what_the_broker_said(tmp_path: Path) -> None:
    failing = BrokerProcess(tmp_path / "data", {"num.partition": "3"})
    with pytest.raises(BrokerStartError, match=r"did you mean num\.partitions\?"):
        failing.start()
    failing.stop()  # nothing runs, nothing to do
    with pytest.raises(BrokerStartError, match="exit code 1"), broker({"num.partitions": "0"}):
        pytest.fail("it must not start")


USER_TESTS = """
import pytest
from confluent_kafka import Producer

@pytest.mark.parametrize("number", range(4))
def test_sends(penstock_broker, number):
    failures = []
    producer = Producer({"bootstrap.servers": penstock_broker.bootstrap})
    producer.produce("mine", str(number), on_delivery=lambda error, _: failures.append(error))
    producer.flush()
    assert failures == [None]
    with open(f"{number}.pid", "w") as file:
        file.write(str(penstock_broker.pid))
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_pytest_fixture_is_one_broker_per_session_or_worker(tmp_path: Path, workers: int) -> None:
    (tmp_path / "test_mine.py").write_text(USER_TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(workers), "-p", "no:randomly", "test_mine.py"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "4 passed" in done.stdout, done.stdout + done.stderr
    pids = {int(path.read_text()) for path in tmp_path.glob("*.pid")}
    assert len(pids) == max(1, workers)
    assert not any(map(alive, pids))
