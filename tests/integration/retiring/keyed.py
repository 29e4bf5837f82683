"""Numbered values of many keys, written by producers that are never restarted, and a group that reads all partitions.

A producer in another language is a program that is given a JSON object (bootstrap, topic, idempotent, name, keys,
queued) and writes until its input ends. It says `stored <partition> <value>`, `failed <why>`, `full` when it waits for
room in its queue, and `done` in the end.
"""

import json
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from tests.integration.raw import HANG_SECONDS, wait_until
from tests.integration.working import Working

KEYS = 40
_POLL_S = 0.005


@dataclass
class Writing(Working):
    """One producer at work in a thread, its queue always full, for as long as the `with` block lasts."""

    bootstrap: str
    topic: str
    idempotent: bool
    name: str = "a"
    queued_max: int = 2_000
    sent: int = 0
    failed: list[str] = field(default_factory=list)
    acknowledged: set[bytes] = field(default_factory=set)
    by_partition: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    # The longest time that a partition acknowledged nothing.
    unavailable_s_max: float = 0.0
    _last: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()
        self._full = threading.Event()

    def until_full(self) -> None:
        """Its queue holds all that it can."""
        self._full.clear()
        # A client in Python alone takes a minute for 100,000 of them, where others are at work, too.
        wait_until(self._full.is_set, f"{self.queued_max} records in the queue", 10 * HANG_SECONDS)

    def stored(self, partition: int, value: bytes) -> None:
        now = time.monotonic()
        self.unavailable_s_max = max(self.unavailable_s_max, now - self._last.get(partition, now))
        self._last[partition] = now
        self.acknowledged.add(value)
        self.by_partition[partition] += 1

    def until_more(self, count: int, partition: int) -> None:
        goal = self.by_partition[partition] + count
        wait_until(lambda: self.by_partition[partition] >= goal, f"{count} more in partition {partition}")


@dataclass
class KeyedLoad(Writing):
    """Of librdkafka."""

    settings: Mapping[str, str | int] = field(default_factory=dict)
    age_ms: int = 0  # how old the records say they are

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "acks": "all",
                "enable.idempotence": self.idempotent,
                "linger.ms": 2,
                "partitioner": "murmur2",
                "batch.num.messages": 100,
                "queue.buffering.max.messages": self.queued_max,
                "topic.metadata.refresh.interval.ms": 500,
                "message.timeout.ms": 120_000,
                "log_level": 0,
                **self.settings,
            }
        )
        while not self._stopped.is_set():
            for _ in range(100):
                key = f"{self.name}{self.sent % KEYS}"
                value = f"{key}:{self.sent // KEYS}".encode()
                timestamp = int(time.time() * 1000) - self.age_ms
                try:
                    producer.produce(self.topic, value, key=key, timestamp=timestamp, on_delivery=self._told)
                except BufferError:
                    self._full.set()
                    break
                self.sent += 1
            producer.poll(_POLL_S)
        assert producer.flush() == 0

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        self.stored(message.partition(), message.value())


@dataclass
class ProgramLoad(Writing):
    """Of another client, in a process of its own."""

    program: Sequence[str] = ()

    def _run(self) -> None:
        wanted = {
            "bootstrap": self.bootstrap,
            "topic": self.topic,
            "idempotent": self.idempotent,
            "name": self.name,
            "keys": KEYS,
            "queued": self.queued_max,
        }
        command = [*self.program, json.dumps(wanted)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            threading.Thread(target=self._end, args=(process.stdin,)).start()
            done = False
            for line in process.stdout:
                what, _, rest = line.strip().partition(" ")
                if what == "stored":
                    partition, _, value = rest.partition(" ")
                    self.stored(int(partition), value.encode())
                    self.sent += 1
                elif what == "failed":
                    self.failed.append(rest)
                elif what == "full":
                    self._full.set()
                done = what == "done"
        if not done:
            self.failed.append(f"the program ended with {process.returncode}")

    def _end(self, stdin: IO[str]) -> None:
        self._stopped.wait()
        stdin.close()


class GroupReader(Working):
    """One member of a group of its own, in a thread: everything it was given, in the order it came."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        super().__init__()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 500,
                "enable.auto.commit": True,
                "log_level": 0,
            }
        )
        self.topic = topic
        self.values: dict[int, list[tuple[int, bytes]]] = defaultdict(list)  # partition -> (offset, value)
        self.count = 0
        self.assigned: list[int] = []
        self.assignments = 0

    def _run(self) -> None:
        self._consumer.subscribe([self.topic], on_assign=self._on_assign)
        while not self._stopped.is_set():
            for message in self._consumer.consume(1000, timeout=0.1):
                if message.error() is None:
                    self.values[message.partition()].append((message.offset(), message.value()))
                    self.count += 1
        self._consumer.close()

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.assigned = sorted(partition.partition for partition in partitions)
        self.assignments += 1

    def check(self, *loads: Writing, retired: Mapping[int, int] | None = None) -> None:
        """Everything acknowledged was read, once; with `retired`, from which into which, every key in its order."""
        wanted = set().union(*(load.acknowledged for load in loads))
        wait_until(lambda: self.count >= len(wanted), f"{len(wanted)} values read")
        read = [value for values in self.values.values() for _, value in values]
        failed = [error for load in loads for error in load.failed]
        reordered = set() if retired is None else self.reordered(retired)
        print(
            f"sent {sum(load.sent for load in loads)}, acknowledged {len(wanted)}, failed {len(failed)}, "
            f"read {len(read)}, lost {len(wanted - set(read))}, duplicated {len(read) - len(set(read))}, "
            f"reordered {'unknown' if retired is None else len(reordered)}, "
            f"longest unavailability {max(load.unavailable_s_max for load in loads):.2f} s"
        )
        assert failed == []
        assert wanted - set(read) == set()
        assert len(read) == len(set(read))
        assert reordered == set()

    def reordered(self, retired: Mapping[int, int]) -> set[bytes]:
        """Keys that did not come in their order, in what was read so far."""
        read = {partition: list(values) for partition, values in list(self.values.items())}
        homes = [numbers_by_key(values) for values in read.values()]
        for source, into in retired.items():
            # What was moved comes behind what was read in the retired partition.
            homes.append(numbers_by_key(read.get(source, []) + read.get(into, [])))
        return {key for home in homes for key, numbers in home.items() if numbers != sorted(numbers)}


def numbers_by_key(values: list[tuple[int, bytes]]) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = defaultdict(list)
    for _, value in values:
        key, _, number = value.partition(b":")
        found[key].append(int(number))
    return found


def ends(bootstrap: str, topic: str, partition: int) -> tuple[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "log_level": 0})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=60)
        return low, high
    finally:
        consumer.close()
