"""Numbered values sent with acks=all through whatever happens to the brokers, and what became of them."""

import itertools
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from tests.integration.raw import wait_until

_QUEUED_MAX = 500
_POLL_S = 0.005


@dataclass(frozen=True, slots=True)
class Report:
    sent: int
    acknowledged: int
    read: int
    lost: list[str]
    duplicated: int
    reordered: int
    failed: list[str]
    unavailable_s_max: float

    def __str__(self) -> str:
        return (
            f"sent {self.sent}, acknowledged {self.acknowledged}, failed {len(self.failed)}, read {self.read}, "
            f"lost {len(self.lost)}, duplicated {self.duplicated}, reordered {self.reordered}, "
            f"longest unavailability {self.unavailable_s_max:.2f} s"
        )

    def check(self) -> None:
        """Nothing acknowledged is gone or elsewhere; the producer was idempotent, so nothing is there twice."""
        assert self.lost == []
        assert (self.duplicated, self.reordered) == (0, 0)


@dataclass
class Load:
    """One idempotent librdkafka producer, in a thread, for as long as the `with` block lasts."""

    bootstrap: str
    topic: str
    partitions: int
    settings: Mapping[str, str | int] = field(default_factory=dict)
    sent: list[int] = field(init=False)
    # Per partition: offset -> value.
    acknowledged: list[dict[int, bytes]] = field(init=False)
    failed: list[str] = field(default_factory=list)
    # Per partition: when the last acknowledgement came, and the longest time without one.
    _last: list[float] = field(init=False)
    _gap_max: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self.sent = [0] * self.partitions
        self.acknowledged = [{} for _ in range(self.partitions)]
        self._last = [time.monotonic()] * self.partitions
        self._gap_max = [0.0] * self.partitions
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        self.until_more(50)  # the load is on
        self._gap_max = [0.0] * self.partitions
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 1,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.max.ms": 100,
                "message.timeout.ms": 120_000,
                "queue.buffering.max.messages": _QUEUED_MAX,
                "log_level": 0,
                **self.settings,
            }
        )
        while not self._stopped.is_set():
            for partition in range(self.partitions):
                value = b"%d:%d" % (partition, self.sent[partition])
                try:
                    producer.produce(self.topic, value, partition=partition, on_delivery=self._told)
                except BufferError:
                    break
                self.sent[partition] += 1
            producer.poll(_POLL_S)
        assert producer.flush() == 0

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        partition, now = message.partition(), time.monotonic()
        self.acknowledged[partition][message.offset()] = message.value()
        self._gap_max[partition] = max(self._gap_max[partition], now - self._last[partition])
        self._last[partition] = now

    def until_more(self, count: int) -> None:
        """Every partition has taken so many more."""
        goals = [len(told) + count for told in self.acknowledged]
        wait_until(
            lambda: all(len(told) >= goal for told, goal in zip(self.acknowledged, goals, strict=True)),
            f"{count} more acknowledgements in each partition",
        )

    def report(self) -> Report:
        """After the load: reads everything back, and prints what it finds."""
        lost: list[str] = []
        read = duplicated = reordered = 0
        for partition, told in enumerate(self.acknowledged):
            values = read_all(self.bootstrap, self.topic, partition)
            read += len(values)
            numbers = [int(value.partition(b":")[2]) for value in values.values()]
            duplicated += len(numbers) - len(set(numbers))
            reordered += sum(after < before for before, after in itertools.pairwise(numbers))
            lost += [
                f"{partition}/{offset}: {value!r}, found {values.get(offset)!r}"
                for offset, value in told.items()
                if values.get(offset) != value
            ]
        acknowledged = sum(map(len, self.acknowledged))
        found = Report(
            sum(self.sent), acknowledged, read, lost, duplicated, reordered, self.failed, max(self._gap_max)
        )
        print(found)
        return found


def read_all(bootstrap: str, topic: str, partition: int) -> dict[int, bytes]:
    """Offset -> value, in the order they came."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, "log_level": 0}
    )
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=60)
    assert low == 0
    consumer.assign([TopicPartition(topic, partition, 0)])
    values: dict[int, bytes] = {}
    while len(values) < high:
        for message in consumer.consume(min(1000, high - len(values)), timeout=1.0):
            assert message.error() is None, message.error()
            values[message.offset()] = message.value()
    consumer.close()
    return values
