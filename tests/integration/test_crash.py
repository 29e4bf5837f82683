"""`kill -9` under load (invariant 1): what was acknowledged is there afterwards, in order, once.

`PENSTOCK_CRASH_ROUNDS` makes it longer; `make soak PART=crash` runs 50.
"""

import os
import random
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.raw import wait_until

from penstock.testing import BrokerProcess

ROUNDS = int(os.environ.get("PENSTOCK_CRASH_ROUNDS", "5"))
TOPIC = "crash"
PARTITIONS = 3
ACKS_BEFORE_KILL = 3000
PLANTED = Path(__file__).parent / "planted" / "late_append.py"


@dataclass
class Load:
    """Producers that send numbered values as fast as they can, and what they were told."""

    bootstrap: str
    acknowledged: list[tuple[int, int, bytes]] = field(default_factory=list)  # partition, offset, value
    sent: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    given_up: KafkaException | None = None
    stopped: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        try:
            self._produce()
        except KafkaException as error:
            self.given_up = error

    def _produce(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "reconnect.backoff.max.ms": 200,
                "message.timeout.ms": 60_000,
                "queue.buffering.max.messages": 5000,
                "log_level": 0,
            }
        )

        # No lock in here: behind a fatal error (a planted bug makes one) the binding calls with that error set, and
        # whatever is acquired then is never released.
        def told(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self.acknowledged.append((message.partition(), message.offset(), message.value()))

        while not self.stopped.is_set():
            for partition in range(PARTITIONS):
                value = b"%d:%d" % (partition, self.sent[partition])
                try:
                    producer.produce(TOPIC, value, partition=partition, on_delivery=told)
                except BufferError:
                    producer.poll(0.01)
                    continue
                self.sent[partition] += 1
            producer.poll(0)
        producer.flush(60)


def read_all(bootstrap: str) -> dict[int, list[bytes]]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, "log_level": 0}
    )
    stored: dict[int, list[bytes]] = {}
    for partition in range(PARTITIONS):
        low, high = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=30)
        assert low == 0
        consumer.assign([TopicPartition(TOPIC, partition, 0)])
        values: list[bytes] = []
        while len(values) < high:
            for message in consumer.consume(1000, timeout=1.0):
                assert message.error() is None, message.error()
                assert message.offset() == len(values), "offsets have a gap"
                values.append(message.value())
        stored[partition] = values
    consumer.close()
    return stored


def start(process: BrokerProcess) -> Load:
    process.start()
    admin = AdminClient({"bootstrap.servers": process.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result()
    return Load(process.bootstrap)


def run_round(process: BrokerProcess, load: Load, rng: random.Random) -> None:
    """Produce, kill in the middle of it, start again, and let the producer finish what it had begun."""
    load.stopped.clear()
    goal = len(load.acknowledged) + rng.randint(1, ACKS_BEFORE_KILL)
    thread = threading.Thread(target=load.run)
    thread.start()
    wait_until(lambda: len(load.acknowledged) >= goal, "messages are acknowledged")
    process.kill()
    process.start()
    load.stopped.set()
    thread.join()


def check(load: Load) -> None:
    assert load.given_up is None, f"an idempotent producer gave up: {load.given_up}"
    stored = read_all(load.bootstrap)
    lost = [
        message
        for message in load.acknowledged
        if stored[message[0]][message[1] : message[1] + 1] != [message[2]]
    ]
    assert not lost, f"{len(lost)} of {len(load.acknowledged)} acknowledged messages are lost or moved"
    for partition, values in stored.items():
        numbers = [int(value.split(b":")[1]) for value in values]
        assert numbers == sorted(set(numbers)), f"partition {partition} has repeats or is out of order"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "data"


def test_kill_under_load_loses_and_doubles_nothing(directory: Path) -> None:
    process = BrokerProcess(directory)
    rng = random.Random(1)
    try:
        load = start(process)
        for _ in range(ROUNDS):
            run_round(process, load, rng)
        check(load)
    finally:
        process.kill()


def test_an_append_after_its_acknowledgement_is_found(directory: Path) -> None:
    """The planted bug must turn the check red, or the check is worth nothing."""
    # Acknowledged as soon as it is written, so that the planted delay is one behind the acknowledgement.
    process = BrokerProcess(directory, {"penstock.ack.after": "written"}, entry=[str(PLANTED)])
    rng = random.Random(1)

    def is_found() -> bool:
        run_round(process, load, rng)
        try:
            check(load)
        except AssertionError:
            return True
        return False

    try:
        load = start(process)
        # A kill only shows it when an acknowledgement is less than 10 ms old: one of a few does.
        assert any(is_found() for _ in range(20))
    finally:
        process.kill()
