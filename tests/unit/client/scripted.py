"""A broker and a group in memory, behind the calls that the SDK makes into librdkafka.

What the model needs to be true of librdkafka, and is (2.x):

- what it has given away it does not give again, unless somebody seeks or the partition is assigned anew;
- a partition that was paused stays so when it leaves and comes back;
- an exception that comes out of a poll destroys the message that the poll had in hand;
- commits of an earlier generation are refused; those of the present one are taken for any partition.

Every call may be told to raise, before it has done its work or after. Messages, errors, rebalances and the ends of
asynchronous commits come in the order in which the story queues them.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException, TopicPartition
from tests.unit.client.scripted_message import Header, Stored
from tests.unit.client.scripted_sdk import Admin, Producer

from penstock.client.consuming.unfinished import Where
from penstock.client.errors import ClientError


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def time_ns(self) -> int:
        return round(self.now * 1e9)


Fault = Callable[[str, bool], None]  # the call, and whether its work is done; raises or does not


@dataclass
class Broker:
    """What is stored, what is committed, and who is told of either."""

    clock: Clock = field(default_factory=Clock)
    logs: dict[Where, list[Stored]] = field(default_factory=dict)
    committed: dict[Where, tuple[int, str]] = field(default_factory=dict)
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    starts: dict[Where, int] = field(default_factory=dict)  # what retention has left begins there
    fault: Fault = lambda _call, _done: None
    on_commit: Callable[[Where, int], None] = lambda _place, _offset: None
    on_offsets: Callable[[], None] = lambda: None  # asked for offsets, it has answered: others go on writing
    refuse: Callable[[str], bool] = lambda _topic: False  # whether a topic takes nothing now
    # The next message to each is taken, and nobody is told.
    forget_answer: list[str] = field(default_factory=list)
    unknown: set[Where] = field(
        default_factory=set
    )  # deleted: commits for these are refused, and they have no ends
    on_refused: Callable[[Where], None] = lambda _place: None
    unready: bool = False  # asked for commits, it does not answer
    unreadable: bool = False  # asked for commits, it answers with an error for each partition
    retires: bool = True  # knows how to retire partitions
    silent: bool = False  # asked for messages, it has none
    consumer: "RawConsumer | None" = None

    def make(self, topic: str, partitions: int) -> None:
        for index in range(partitions):
            self.logs.setdefault((topic, index), [])

    def append(
        self, place: Where, data: bytes, key: bytes | None, headers: list[Header], at_ms: int | None = None
    ) -> int:
        log = self.logs[place]
        told = tuple((name, value.encode() if isinstance(value, str) else value) for name, value in headers)
        if at_ms is None:
            at_ms = self.clock.time_ns() // 1_000_000
        log.append(Stored(place, len(log), data, key, told, at_ms=at_ms))
        return len(log) - 1

    def partitions(self, topic: str) -> list[int]:
        found = sorted(index for name, index in self.logs if name == topic)
        if not found:
            raise ClientError(f"there is no topic {topic}", KafkaError.UNKNOWN_TOPIC_OR_PART)
        return found

    def commit(self, place: Where, offset: int, metadata: str) -> None:
        if len(metadata.encode()) > 4096:
            raise KafkaException(KafkaError(KafkaError.OFFSET_METADATA_TOO_LARGE))
        if place in self.unknown:
            self.on_refused(place)
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        self.committed[place] = (offset, metadata)
        self.on_commit(place, offset)


class RawConsumer:
    """`confluent_kafka.Consumer`, as far as the SDK uses it."""

    def __init__(self, broker: Broker, settings: dict[str, Any]) -> None:
        self._broker = broker
        self._settings = settings
        self._callbacks: dict[str, Callable[..., None]] = {}
        self.positions: dict[Where, int] = {}
        self.paused: set[Where] = set()
        self.queue: deque[tuple[str, Any]] = deque()
        self.late: list[tuple[dict[Where, int], list[TopicPartition]]] = []
        self._times: dict[Where, int] = {}  # how often each came or went: commits from before are refused
        self.closed = False
        self.rebalancing = ""  # which callback runs
        # First asked for, by time or not; gives whether that is where it begins.
        self.on_begin: Callable[[Where, int, bool], bool] = lambda _place, _offset, _by_time: False
        self.begun: set[Where] = set()

    def _step(self, call: str, done: bool) -> None:
        self._broker.fault(call, done)

    # The group

    def subscribe(self, topics: list[str], **callbacks: Callable[..., None]) -> None:
        self._callbacks = callbacks
        self.topics = topics
        self._broker.consumer = self  # the one of the group; others only look

    def assign(self, partitions: list[TopicPartition]) -> None:
        self._step("assign", False)
        self.positions = {}
        self.incremental_assign(partitions)

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            place = (partition.topic, partition.partition)
            self._times[place] = self._times.get(place, 0) + 1
            logical = {
                OFFSET_BEGINNING: self._broker.starts.get(place, 0),
                OFFSET_END: len(self._broker.logs[place]),
            }
            start = logical.get(partition.offset, partition.offset)
            if start > len(self._broker.logs[place]):
                start = logical[OFFSET_BEGINNING]  # out of range: by the reset policy
            self.positions[place] = self._start(place) if start < 0 else start

    def _start(self, place: Where) -> int:
        end = self._settings.get("auto.offset.reset") == "latest"
        return self._broker.committed.get(place, (len(self._broker.logs[place]) if end else 0, ""))[0]

    def _rebalance(self, kind: str, places: list[Where]) -> None:
        partitions = [TopicPartition(*place) for place in places]
        self.rebalancing = kind
        self.begun.difference_update(places)
        try:
            self._callbacks[f"on_{kind}"](self, partitions)
        finally:
            self.rebalancing = ""
            # confluent-kafka does it for a callback that has not.
            if kind == "assign":
                self.incremental_assign(
                    [partition for partition in partitions if _place(partition) not in self.positions]
                )
            else:
                for place in places:
                    self.positions.pop(place, None)
                    self._times[place] = self._times.get(place, 0) + 1
                    self._broker.unknown.discard(place)  # made again before it comes back

    # Messages

    def poll(self, timeout: float = -1) -> Stored | None:
        self._step("poll", False)
        message = self._next()
        if message is None:
            self._broker.clock.sleep(max(0.0, timeout))
        self._step("poll", True)  # what it had in hand goes with the exception
        return message

    def consume(self, most: int, timeout: float = -1) -> list[Stored]:
        self._step("consume", False)
        found = list(self._ready(most))
        if not found:
            self._broker.clock.sleep(max(0.0, timeout))
        self._step("consume", True)
        return found

    def _ready(self, most: int) -> Iterator[Stored]:
        for _ in range(most):
            message = self._next()
            if message is None:
                return
            yield message

    def _next(self) -> Stored | None:
        while self.queue:
            kind, what = self.queue.popleft()
            if kind == "later":  # behind so many messages
                count, event = what
                self.queue.appendleft(("later", (count - 1, event)) if count else event)
                if count:
                    break
            elif kind == "error":
                error: Stored = what
                return error
            elif kind == "committed":
                self._settings["on_commit"](*what)
            else:
                self._rebalance(kind, what)
        for place in self.positions:
            at = self.positions[place] = self._reset(place, self.positions[place])
            log = [] if self._broker.silent else self._broker.logs[place]
            if place not in self.paused and at < len(log):
                self.positions[place] = at + 1
                return log[at]
        return None

    def _reset(self, place: Where, at: int) -> int:
        """Where retention has overtaken a position, librdkafka goes by its setting."""
        if at >= self._broker.starts.get(place, 0):
            return at
        latest = self._settings.get("auto.offset.reset") == "latest"
        return len(self._broker.logs[place]) if latest else self._broker.starts[place]

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        del timeout
        self._step("list_topics", False)
        topics: dict[str, Any] = {}
        for name, index in self._broker.logs:
            if topic in (None, name):
                topics.setdefault(name, SimpleNamespace(partitions={})).partitions[index] = None
        return SimpleNamespace(topics=topics)

    def assignment(self) -> list[TopicPartition]:
        self._step("assignment", False)
        return [TopicPartition(*place) for place in self.positions]

    def seek(self, partition: TopicPartition) -> None:
        self._step("seek", False)
        place = _place(partition)
        if place not in self.positions:
            raise KafkaException(KafkaError(KafkaError._STATE))
        logical = {-1: len(self._broker.logs[place]), -2: self._broker.starts.get(place, 0)}
        self.positions[place] = logical.get(partition.offset, partition.offset)
        self._step("seek", True)

    def pause(self, partitions: list[TopicPartition]) -> None:
        self._step("pause", False)
        self.paused.update(map(_place, partitions))

    def resume(self, partitions: list[TopicPartition]) -> None:
        self._step("resume", False)
        self.paused.difference_update(map(_place, partitions))

    # Commits

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition] | None:
        self._step("commit", False)
        if asynchronous:
            self.late.append((dict(self._times), offsets))
            return None
        self.end_commits()  # the broker is asked in order
        error, answer = self._apply(offsets)
        self._step("commit", True)
        if error is not None:
            raise KafkaException(error)
        return answer

    def _apply(self, offsets: list[TopicPartition]) -> tuple[KafkaError | None, list[Any]]:
        """Each for itself; where all are refused, the last refusal counts for the whole."""
        answer: list[Any] = []
        for offset in offsets:
            error = None
            try:
                self._broker.commit(_place(offset), offset.offset, offset.metadata or "")
            except KafkaException as refused:
                error = refused.args[0]
            topic, partition = _place(offset)
            answer.append(
                SimpleNamespace(topic=topic, partition=partition, offset=offset.offset, error=error)
            )
        all_failed = all(partition.error is not None for partition in answer)
        return answer[-1].error if all_failed else None, answer

    def end_commits(self, error: int | None = None) -> None:
        """The asynchronous ones reach the broker, or fail; the member hears of it with its next poll."""
        late, self.late = self.late, []
        for times, offsets in late:
            old = any(times[_place(offset)] != self._times[_place(offset)] for offset in offsets)
            refusal = KafkaError.ILLEGAL_GENERATION if old else error
            ended = self._apply(offsets) if refusal is None else (KafkaError(refusal), offsets)
            self.queue.append(("committed", ended))

    def committed(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        del timeout
        self._step("committed", False)
        if self._broker.unready:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        found = [
            (partition, *self._broker.committed.get(_place(partition), (-1001, "")))
            for partition in partitions
        ]
        if self._broker.unreadable:
            refused = KafkaError(KafkaError.NOT_COORDINATOR)
            places: list[Any] = [
                SimpleNamespace(
                    topic=partition.topic, partition=partition.partition, offset=-1001, error=refused
                )
                for partition in partitions
            ]
            return places
        return [
            TopicPartition(partition.topic, partition.partition, at, text) for partition, at, text in found
        ]

    def offsets_for_times(
        self, partitions: list[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        del timeout
        self._step("offsets_for_times", False)
        unknown = self._broker.unknown.intersection(map(_place, partitions))
        if unknown.issuperset(map(_place, partitions)):
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        refused = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        found: list[Any] = [
            SimpleNamespace(topic=partition.topic, partition=partition.partition, offset=-1, error=refused)
            if _place(partition) in unknown
            else TopicPartition(partition.topic, partition.partition, self._at_time(partition))
            for partition in partitions
        ]
        self._broker.on_offsets()
        return found

    def _at_time(self, partition: TopicPartition) -> int:
        """OFFSET_END where nothing is that late; asked for, it is a number."""
        log = self._broker.logs[_place(partition)]
        by_time = partition.offset != OFFSET_END
        at = next((stored.number for stored in log if by_time and stored.at_ms >= partition.offset), len(log))
        if _place(partition) not in self.begun and self.on_begin(_place(partition), at, by_time):
            self.begun.add(_place(partition))
        return OFFSET_END if by_time and at == len(log) else at

    def get_watermark_offsets(self, partition: TopicPartition, timeout: float = -1) -> tuple[int, int]:
        del timeout
        return self._broker.starts.get(_place(partition), 0), len(self._broker.logs[_place(partition)])

    def close(self) -> None:
        if self.closed:
            return
        if self._callbacks and self.positions:
            self._rebalance("revoke", list(self.positions))
        self.closed = True


def _place(partition: TopicPartition) -> Where:
    return partition.topic, partition.partition


def install(broker: Broker, patch: Callable[[str, Any], None]) -> None:
    """The SDK of this process talks to `broker`; `patch` is `monkeypatch.setattr`."""
    package = "penstock.client"
    for module in ("consuming.reader", "retry.ordered"):
        patch(f"{package}.{module}.RawConsumer", lambda settings: RawConsumer(broker, settings))
    for module in (
        "retry.flow",
        "retry.ordered",
        "retry.topics",
        "retry.retiring",
        "admin.admin",
    ):
        patch(f"{package}.{module}.Admin", lambda _: Admin(broker))
    patch(f"{package}.consuming.reader.reach", lambda _: None)
    patch(f"{package}.retry.flow.Producer", lambda *_, **__: Producer(broker))
    for module in (
        "consuming.alone",
        "consuming.reader",
        "consuming.paused",
        "consuming.consumer",
        "consuming.membership",
        "retry.flow",
        "retry.ordered",
        "retry.topics",
        "retry.retiring",
        "consuming.gathering",
    ):
        patch(f"{package}.{module}.time", broker.clock)
