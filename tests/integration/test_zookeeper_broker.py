"""`penstock broker --zookeeper`: a cluster of one on a real ZooKeeper, through restarts and lost sessions."""

import asyncio
import itertools
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.commands import COMMAND, environment, penstock
from tests.integration.raw import wait_until

from penstock.coordination.nodes import broker_path
from penstock.coordination.tree import Change
from penstock.coordination.zookeeper import Address, ZooKeeperStore
from penstock.coordination.zookeeper.server_process import ZooKeeperProcess
from penstock.coordination.zookeeper.server_process import zookeeper as running_zookeeper
from penstock.testing import BrokerProcess
from penstock.testing.process import BrokerStartError

# One that a test waits for, and one that must not end however busy the machine is.
SHORT_SESSION_MS = 2500
LONG_SESSION_MS = 30_000
ME = broker_path(1)

_numbers = itertools.count()


@pytest.fixture
def cluster(zookeeper: ZooKeeperProcess) -> str:
    return f"{zookeeper.connect}/brokers-{next(_numbers)}"


def _broker(directory: Path, cluster: str, session_ms: int = LONG_SESSION_MS) -> BrokerProcess:
    settings = {"zookeeper.session.timeout.ms": str(session_ms)}
    return BrokerProcess(directory / "data", settings, zookeeper=cluster)


@pytest.fixture
def broker(tmp_path: Path, cluster: str) -> Iterator[BrokerProcess]:
    process = _broker(tmp_path, cluster)
    process.start()
    yield process
    process.stop()


def _create(broker: BrokerProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=1)])[topic].result()


def _produce(broker: BrokerProcess, topic: str, values: list[bytes]) -> None:
    failed: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush() == 0
    assert failed == []


def _consume(broker: BrokerProcess, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    while len(found) < count:
        for message in consumer.consume(count - len(found), 1.0):
            assert message.error() is None, message.error()
            found.append(message.value())
    consumer.close()
    return found


def _sleep(broker: BrokerProcess, cluster: str) -> tuple[int, int]:
    """Stop a broker for longer than its session; the epochs it had before and has after."""

    async def run() -> tuple[int, int]:
        store = ZooKeeperStore(Address.parse(cluster), session_timeout_s=LONG_SESSION_MS / 1000)
        tree = await store.connect()
        snapshot = await tree.snapshot()
        feed = tree.changes(snapshot.number)
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            await _event(feed, there=False)
        finally:
            os.kill(broker.pid, signal.SIGCONT)
        after = await _event(feed, there=True)
        await store.close()
        return snapshot.nodes[ME].created, after

    return asyncio.run(run())


async def _event(feed: AsyncIterator[Change], *, there: bool) -> int:
    """The number of the change that registers the broker, or takes it away."""
    async for change in feed:
        for event in change.events:
            if event.path == ME and (event.node is not None) is there:
                return change.number
    raise AssertionError


def test_topics_and_messages_survive_restarts_and_kills(tmp_path: Path, cluster: str) -> None:
    broker = _broker(tmp_path, cluster)
    broker.start()
    created = penstock("topic", "create", "orders", "--partitions", "1", bootstrap=broker.bootstrap)
    assert created.code == 0, created.err
    first = [b"%d" % number for number in range(100)]
    _produce(broker, "orders", first)
    assert _consume(broker, "orders", 100) == first
    assert not (broker.data_dir / "metadata.db").exists()
    broker.stop()
    broker.start()
    assert _consume(broker, "orders", 100) == first
    # Its registration outlives it for a moment; the same data directory come back replaces it.
    broker.kill()
    broker.start()
    second = [b"%d" % number for number in range(100, 200)]
    _produce(broker, "orders", second)
    _create(broker, "more")
    assert _consume(broker, "orders", 200) == first + second
    broker.stop()


def test_a_broker_that_slept_through_its_session_registers_again(tmp_path: Path, cluster: str) -> None:
    broker = _broker(tmp_path, cluster, SHORT_SESSION_MS)
    broker.start()
    _create(broker, "orders")
    _produce(broker, "orders", [b"before"])
    before, after = _sleep(broker, cluster)
    assert after > before
    _produce(broker, "orders", [b"after"])
    _create(broker, "later")
    _produce(broker, "later", [b"new"])
    assert _consume(broker, "orders", 2) == [b"before", b"after"]
    assert _consume(broker, "later", 1) == [b"new"]
    assert "registered again" in broker.log_path.read_text()
    broker.stop()


def test_without_zookeeper_data_flows_and_metadata_writes_are_to_be_tried_again(tmp_path: Path) -> None:
    with running_zookeeper() as server:
        broker = _broker(tmp_path, f"{server.connect}/penstock")
        broker.start()
        _create(broker, "orders")
        _produce(broker, "orders", [b"with"])
        server.kill()
        _produce(broker, "orders", [b"without"])
        assert _consume(broker, "orders", 2) == [b"with", b"without"]
        with pytest.raises(KafkaException) as caught:
            _create(broker, "later")
        assert caught.value.args[0].code() == KafkaError.REQUEST_TIMED_OUT
        assert "ZooKeeper" in caught.value.args[0].str()
        assert _consume(broker, "orders", 2) == [b"with", b"without"]
        server.start()
        while True:
            try:
                _create(broker, "later")
                break
            except KafkaException as error:
                assert error.args[0].code() == KafkaError.REQUEST_TIMED_OUT  # noqa: PT017
        _produce(broker, "later", [b"again"])
        assert _consume(broker, "later", 1) == [b"again"]
        broker.stop()


def test_a_start_waits_for_a_zookeeper_that_is_silent(tmp_path: Path) -> None:
    with running_zookeeper() as server:
        server.kill()
        broker = _broker(tmp_path, f"{server.connect}/penstock")
        with ThreadPoolExecutor(1) as threads:
            started = threads.submit(broker.start)
            wait_until(
                lambda: broker.log_path.exists() and "waiting for ZooKeeper" in broker.log_path.read_text(),
                "it says what it waits for",
            )
            server.start()
            started.result()
        _create(broker, "orders")
        _produce(broker, "orders", [b"late"])
        broker.stop()


def test_a_start_that_waits_for_zookeeper_can_be_stopped(tmp_path: Path) -> None:
    command = [*COMMAND, "broker", "--id", "1", "--listener", "127.0.0.1:0", "--zookeeper", "127.0.0.1:1"]
    command += ["--data-dir", str(tmp_path / "data"), "--console-port", "-1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stderr is not None
        assert "waiting for ZooKeeper at 127.0.0.1:1" in process.stderr.readline()
        process.terminate()
        assert "Traceback" not in process.stderr.read()
    assert process.returncode == 0


def test_two_brokers_with_one_number_do_not_both_start(
    broker: BrokerProcess, tmp_path: Path, cluster: str
) -> None:
    _create(broker, "orders")
    with pytest.raises(BrokerStartError, match="broker 1 is registered with another data directory"):
        _broker(tmp_path / "other", cluster).start()
    _produce(broker, "orders", [b"still here"])
    assert _consume(broker, "orders", 1) == [b"still here"]


def _refused(tmp_path: Path, connect: str, *settings: str) -> str:
    done = penstock(
        *("broker", "--id", "1", "--listener", "127.0.0.1:0", "--data-dir", str(tmp_path / "data")),
        *("--console-port", "-1", "--zookeeper", connect),
        *(part for setting in settings for part in ("--set", setting)),
    )
    assert done.code == 1
    return done.said()


def test_a_zookeeper_that_does_not_answer_is_named(tmp_path: Path) -> None:
    said = _refused(tmp_path, "127.0.0.1:1", "zookeeper.connection.timeout.ms=200")
    assert said == "ZooKeeper at 127.0.0.1:1 does not answer: start it, or check zookeeper.connect"


def test_an_address_that_is_none_is_explained(tmp_path: Path) -> None:
    assert "write HOST:PORT" in _refused(tmp_path, "zk:many")


def test_a_wrong_password_is_said_so(tmp_path: Path, cluster: str) -> None:
    async def protect() -> None:
        store = ZooKeeperStore(
            Address.parse(cluster), session_timeout_s=LONG_SESSION_MS / 1000, credential="penstock:secret"
        )
        await store.connect()
        await store.close()

    asyncio.run(protect())
    said = _refused(tmp_path, cluster, "penstock.zookeeper.digest=penstock:guessed")
    assert "the password of 'penstock' (penstock.zookeeper.digest)" in said
    assert "give user:password" in _refused(tmp_path, cluster)
