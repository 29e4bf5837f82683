"""Numbered values sent with acks=all through whatever happens to the brokers, and what became of them.

One idempotent librdkafka producer and one reader run beside the fault, neither is ever restarted. Afterwards everything
is read once more from the beginning: what was acknowledged has to be there, in the order in which it was sent, and
what the reader saw on the way must be what stayed.
"""

import itertools
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from tests.integration.raw import wait_until

# Per partition: one that cannot be written to must not keep the others from it.
_QUEUED_MAX = 200
_POLL_S = 0.005
# Clients that a fault threw out ask again this often, and give up on who does not answer after so long, so that a test
# need not wait for them.
_EAGER: dict[str, str | int] = {
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.max.ms": 100,
    "socket.timeout.ms": 5000,
    "log_level": 0,
}


@dataclass(frozen=True, slots=True)
class Report:
    sent: int
    acknowledged: int
    read: int
    lost: list[str]
    duplicated: int
    reordered: int
    # Offsets that showed the reader beside the fault another value than they have now.
    changed: list[str]
    failed: list[str]
    unavailable_s_max: float

    def __str__(self) -> str:
        return (
            f"sent {self.sent}, acknowledged {self.acknowledged}, failed {len(self.failed)}, read {self.read}, "
            f"lost {len(self.lost)}, duplicated {self.duplicated}, reordered {self.reordered}, "
            f"changed {len(self.changed)}, longest unavailability {self.unavailable_s_max:.2f} s"
        )

    def check(self) -> None:
        """Nothing acknowledged is gone or elsewhere; the producer was idempotent, so nothing is there twice."""
        assert self.lost == []
        assert self.changed == []
        assert (self.duplicated, self.reordered) == (0, 0)
        assert self.failed == []


class Reader:
    """Reads all partitions from the beginning, in a thread, offset by offset, until it is closed."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                **_EAGER,
            }
        )
        # Per partition: values by offset.
        self.seen: list[list[bytes]] = [[] for _ in range(partitions)]
        self.failure = ""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def grow(self, partitions: int) -> None:
        self.seen += [[] for _ in range(partitions - len(self.seen))]

    def _run(self) -> None:
        assigned = 0
        while not self._stopped.is_set() and not self.failure:
            if assigned < len(self.seen):
                more = [
                    TopicPartition(self._topic, partition, 0) for partition in range(assigned, len(self.seen))
                ]
                self._consumer.incremental_assign(more)
                assigned += len(more)
            for message in self._consumer.consume(1000, timeout=0.1):
                self._take(message)
        self._consumer.close()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            # Growth may be known to one broker and not yet to another.
            if error.code() not in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION):
                self.failure = f"partition {message.partition()}: {error}"
            return
        values = self.seen[message.partition()]
        if message.offset() != len(values):
            self.failure = f"partition {message.partition()}: {message.offset()} came after {len(values) - 1}"
        values.append(message.value())

    def until(self, ends: list[int]) -> list[list[bytes]]:
        """Everything below these offsets; then it ends."""

        def there() -> bool:
            return all(len(values) >= end for values, end in zip(self.seen, ends, strict=True))

        try:
            wait_until(lambda: there() or bool(self.failure), f"all of {ends} is read: {self}")
        finally:
            self.close()
        assert self.failure == ""
        return self.seen

    def close(self) -> None:
        self._stopped.set()
        self._thread.join()

    def __str__(self) -> str:
        return ", ".join(map(str, map(len, self.seen)))


def read_all(bootstrap: str, topic: str, partitions: int) -> list[list[bytes]]:
    """Every value that may be read, per partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", **_EAGER})
    bounds = [
        consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=60)
        for partition in range(partitions)
    ]
    consumer.close()
    assert all(low == 0 for low, _ in bounds)
    return Reader(bootstrap, topic, partitions).until([high for _, high in bounds])


@dataclass
class Load:
    """The producer, in a thread, for as long as the `with` block lasts; the reader beside it until the report."""

    bootstrap: str
    topic: str
    partitions: int
    settings: Mapping[str, str | int] = field(default_factory=dict)
    sent: list[int] = field(init=False)
    # Per partition: offset -> value.
    acknowledged: list[dict[int, bytes]] = field(init=False)
    # Those that librdkafka knows to be stored, but not where: it was told only that they came twice. By partition.
    somewhere: list[tuple[int, bytes]] = field(default_factory=list)
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
        self._reader = Reader(self.bootstrap, self.topic, self.partitions)
        self._thread.start()
        try:
            self.until_more(50)  # the load is on
        except BaseException:
            self._end()
            self._reader.close()
            raise
        self._gap_max = [0.0] * self.partitions
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._end()
        if kind is not None:
            self._reader.close()

    def _end(self) -> None:
        self._stopped.set()
        self._thread.join()

    def grow(self, partitions: int) -> None:
        """From now on into so many."""
        more = partitions - self.partitions
        self.sent += [0] * more
        self.acknowledged += [{} for _ in range(more)]
        self._last += [time.monotonic()] * more
        self._gap_max += [0.0] * more
        self.partitions = partitions
        self._reader.grow(partitions)

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 1,
                "topic.metadata.refresh.interval.ms": 500,
                "message.timeout.ms": 300_000,
                "request.timeout.ms": 4000,
                **_EAGER,
                **self.settings,
            }
        )
        while not self._stopped.is_set():
            for partition in range(self.partitions):
                if self.sent[partition] - len(self.acknowledged[partition]) < _QUEUED_MAX:
                    value = b"%d:%d" % (partition, self.sent[partition])
                    try:
                        producer.produce(self.topic, value, partition=partition, on_delivery=self._told)
                    except KafkaException as error:
                        # It learns of more partitions with its next look at the metadata.
                        assert error.args[0].code() == KafkaError._UNKNOWN_PARTITION  # noqa: PT017
                        continue
                    self.sent[partition] += 1
            producer.poll(_POLL_S)
        assert producer.flush() == 0

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        self.note(message.partition(), message.offset(), message.value())

    def note(self, partition: int, offset: int | None, value: bytes) -> None:
        """It was acknowledged, now."""
        now = time.monotonic()
        if offset is None:
            self.somewhere.append((partition, value))
            # Counted below no offset that there is.
            offset = -len(self.somewhere)
        self.acknowledged[partition][offset] = value
        self._gap_max[partition] = max(self._gap_max[partition], now - self._last[partition])
        self._last[partition] = now

    def until_more(self, count: int, partitions: Sequence[int] = ()) -> None:
        """Every partition, or these, have taken so many more."""
        goals = {
            partition: len(self.acknowledged[partition]) + count
            for partition in partitions or range(self.partitions)
        }
        wait_until(
            lambda: all(len(self.acknowledged[partition]) >= goal for partition, goal in goals.items()),
            f"{count} more acknowledgements in each partition",
        )

    def report(self) -> Report:
        """After the load: reads everything once more, and prints what it finds."""
        lost: list[str] = []
        changed: list[str] = []
        duplicated = reordered = 0
        logs = read_all(self.bootstrap, self.topic, self.partitions)
        seen = self._reader.until(list(map(len, logs)))
        for partition, (told, values) in enumerate(zip(self.acknowledged, logs, strict=True)):
            numbers = [int(value.partition(b":")[2]) for value in values]
            duplicated += len(numbers) - len(set(numbers))
            reordered += sum(after < before for before, after in itertools.pairwise(numbers))
            lost += [
                f"{partition}/{offset}: {value!r}, found {values[offset : offset + 1]}"
                for offset, value in told.items()
                if offset >= 0 and values[offset : offset + 1] != [value]
            ]
            stored = set(values)
            lost += [
                f"{partition}: {value!r}"
                for where, value in self.somewhere
                if where == partition and value not in stored
            ]
            changed += [
                f"{partition}/{offset}: {before!r}, now {after!r}"
                for offset, (before, after) in enumerate(zip(seen[partition], values, strict=False))
                if before != after
            ]
        found = Report(
            sent=sum(self.sent),
            acknowledged=sum(map(len, self.acknowledged)),
            read=sum(map(len, logs)),
            lost=lost,
            duplicated=duplicated,
            reordered=reordered,
            changed=changed,
            failed=self.failed,
            unavailable_s_max=max(self._gap_max),
        )
        print(found)
        return found
