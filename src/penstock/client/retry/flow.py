"""Retries as they run: failed messages wait in `<topic>.<group>.retry`, which the same group reads.

Each wait of the back-off has partitions of its own in the retry topic: messages in one partition then become due
in the order they lie in, so a partition whose first message is not due is paused until it is, nothing waits behind
a longer wait than its own, and nothing is kept in memory. Where a message goes next is acknowledged before the
place it came from is committed: a crash in between brings it twice, never loses it. What its next place did not take
is kept and sent again before the next commit, however often that fails.

Which topic a retry topic belongs to is known by its name, and what headers say of failures and origin counts in these
alone: elsewhere they are some other consumer's, passed on.
"""

import logging
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import TopicPartition

from penstock.client.admin.admin import Admin
from penstock.client.consuming.unfinished import Where, where
from penstock.client.errors import ClientError
from penstock.client.message import Message
from penstock.client.producer import Producer
from penstock.client.retry import headers as retry_headers
from penstock.client.retry import topics as retry_topics
from penstock.client.retry.policy import Retry, dead_letter_topic, retry_topic
from penstock.client.undisturbed import Undisturbed

if TYPE_CHECKING:
    from confluent_kafka import Message as RawMessage

    from penstock.client.consuming.reader import Reader
    from penstock.client.delivery import Delivery

logger = logging.getLogger("penstock.client")

# Lanes per wait: enough for several members to retry side by side, few enough to make no crowd of partitions.
_LANES_MAX = 4
# More failures than this at once wait for their acknowledgement: memory stays bounded.
_UNDER_WAY_MAX = 1000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class Passing:
    """A message on its way to its next place."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, Any]]
    choose: Callable[[], int]  # the partition
    source: Where  # the partition whose commit waits for it
    delivery: "Delivery | None" = None
    kept: bool = False  # no commit passes it from then on


@dataclass(frozen=True, slots=True)
class Outcome:
    """What becomes of a message whose body failed."""

    passing: Passing | None = None  # where it goes
    given_up: bool = False  # after its last try
    dropped_for: str = ""  # where nobody keeps it then
    again: "TriedAgain | None" = None  # in its place


@dataclass(frozen=True, slots=True)
class TriedAgain:
    failures: int
    due_ms: int
    wait_seconds: float
    history: list[Any]


class RetryFlow:
    ordered = False

    def __init__(
        self, bootstrap: str, topics: Sequence[str], group: str, policy: Retry, *, sealed: bool = False
    ) -> None:
        """`sealed`: what exceptions say is not written down, for it may hold values that are."""
        self._sealed = sealed
        self._bootstrap = bootstrap
        self._policy = policy
        self._group = group
        self._sources = {retry_topic(topic, group): topic for topic in topics}
        self._under_way: list[Passing] = []
        self._waits: dict[
            Where, tuple[int, float]
        ] = {}  # the message that a partition waits for, and until when
        admin = Admin(bootstrap)
        for topic in topics:
            partitions = len(admin.partition_indexes(topic))
            self._ensure_retries(admin, topic, partitions)
            if policy.dead_letter:
                self._ensure(admin, dead_letter_topic(topic, group), topic, partitions)
        self._producer = Producer(bootstrap, delivery="at-least-once", profile="latency")
        self._prepare()

    def _prepare(self) -> None:
        """What a kind of retries keeps for itself."""

    def _ensure_retries(self, admin: Admin, topic: str, partitions: int) -> None:
        wanted = self._policy.steps * min(partitions, _LANES_MAX)
        self._ensure(admin, retry_topic(topic, self._group), topic, wanted, self._policy.longest_seconds)

    def _ensure(self, admin: Admin, name: str, topic: str, partitions: int, waits: float = 0.0) -> None:
        retry_topics.ensure(admin, name, retry_topics.Needs(topic, partitions, waits))

    @property
    def settings(self) -> dict[str, Any]:
        """What the reader must have for this to work."""
        return {}

    @property
    def topics(self) -> list[str]:
        """What the group reads: the topics, and their retry topics."""
        return [*self._sources.values(), *self._sources]

    @property
    def retry_topics(self) -> Collection[str]:
        return self._sources.keys()

    def _source(self, message: Message) -> str:
        """The topic that a message came from before its retries."""
        return self._sources.get(message.topic, message.topic)

    # What the reader asks

    def admit(self, reader: "Reader", raws: "list[RawMessage]") -> "list[RawMessage]":
        """Keep back what is not due yet; its partition is paused, and read again from there when it is."""
        if not any(raw.topic() in self._sources for raw in raws):
            return raws
        now = now_ms()
        admitted: list[RawMessage] = []
        held: set[tuple[str, int]] = set()
        for raw in raws:
            place = where(raw)
            if place in held:
                continue
            if not self.ordered and self._is_foreign(raw):
                continue
            wait_seconds = self._wait_seconds(raw, now) if place[0] in self._sources else 0.0
            if wait_seconds > 0:
                held.add(place)
                reader.paused.until(place, raw.offset(), wait_seconds)  # type: ignore[arg-type]
            else:
                admitted.append(raw)
        return admitted

    def _wait_seconds(self, raw: "RawMessage", now: int) -> float:
        """Whichever clock it was written by, nothing waits for longer than the longest wait since it was seen here."""
        wait_ms = self._due_ms(raw) - now
        if wait_ms <= 0:
            return 0.0
        place, offset = where(raw), raw.offset()
        assert offset is not None
        if place not in self._waits or self._waits[place][0] != offset:
            self._waits[place] = (offset, time.monotonic() + self._policy.longest_seconds)
        return min(wait_ms / 1000, self._waits[place][1] - time.monotonic())

    def _is_foreign(self, raw: "RawMessage") -> bool:
        """Names may hold dots: `orders` read by `eu.billing` and `orders.eu` read by `billing` share a retry topic."""
        topic: str = raw.topic()  # type: ignore[assignment]
        return topic in self._sources and Message(raw, None).origin.topic not in (topic, self._sources[topic])

    def _due_ms(self, raw: "RawMessage") -> int:
        """Whatever a header says, nothing waits for longer than the longest wait since it was written."""
        message = Message(raw, None)
        latest = (message.timestamp or 0) + round(self._policy.longest_seconds * 1000)
        return min(retry_headers.due_ms(message.headers) or 0, latest)

    def gate(self, reader: "Reader", raw: "RawMessage") -> bool:
        """True when a message is not to be handed out after all."""
        del reader, raw
        return False

    def gate_waits(self, raw: "RawMessage") -> bool:
        """Whether `gate` may have to wait for messages that are passed on."""
        del raw
        return False

    def assigned(self, reader: "Reader", partitions: list[TopicPartition]) -> None:
        """Called before the first message of newly assigned partitions."""

    def forgotten(self, gone: Collection[Where]) -> None:
        """Partitions went away uncommitted: who owns them next is given their messages again, and passes them on. Sent
        from here as well, they would come behind later ones."""
        self._under_way = [passing for passing in self._under_way if passing.source not in gone]
        for place in gone:
            self._waits.pop(place, None)

    def wait_for_deliveries(self) -> None:
        """Wait until every message passed on is acknowledged; only then may its old place be committed."""
        failure: ClientError | None = None
        for passing in self._under_way:
            try:
                self._send(passing)
            except ClientError as error:
                failure = failure or error
        for passing in self._under_way:
            if passing.delivery is None:
                continue
            refusal = passing.delivery.exception()
            if refusal is None:
                self._arrived(passing, passing.delivery)
            else:
                passing.delivery = None
                failure = failure or refusal
        self._under_way = [passing for passing in self._under_way if passing.delivery is None]
        if failure is not None:
            raise failure

    def send_refused(self) -> None:
        """Once more, at the end: at-most-once they were committed before, and nobody else has them."""
        for passing in self._under_way:
            if passing.delivery is not None and passing.delivery.done() and passing.delivery.exception():
                passing.delivery = None
                with suppress(ClientError):  # it is told by whoever waits for them
                    self._send(passing)

    def _send(self, passing: Passing) -> None:
        """Unless it is under way or there already."""
        if passing.delivery is not None:
            return
        partition = passing.choose()
        with Undisturbed():  # or it would be sent again by who goes on
            passing.delivery = self._producer.pass_on(
                passing.topic, passing.value, passing.key, partition, passing.headers
            )

    def _arrived(self, passing: Passing, delivery: "Delivery") -> None:
        """Its next place has it."""

    # What became of a body

    def succeeded(self, reader: "Reader", message: Message) -> None:
        """Nothing to do: the commit moves on."""

    def attempt(self, message: Message) -> int:
        """Which try this is."""
        return self._earlier(message)[0] + 1

    def _earlier(self, message: Message) -> retry_headers.Failures:
        """How often and how it failed before."""
        if message.topic not in self._sources:
            return 0, []
        return retry_headers.failures(message.headers), retry_headers.history(message.headers)

    def _first(self, message: Message) -> retry_headers.First:
        """Where and when it was stored before its retries."""
        if message.topic not in self._sources:
            return retry_headers.First(message.topic, message.partition, message.offset, message.timestamp)
        return retry_headers.First(*message.origin, retry_headers.timestamp(message.headers))

    def _own_headers(self, message: Message) -> retry_headers.Pairs:
        """Those that it had before its retries."""
        headers = message.headers
        return retry_headers.without_ours(headers) if message.topic in self._sources else headers

    def _failed_headers(
        self, message: Message, error: Exception, due_ms: int | None
    ) -> list[tuple[str, Any]]:
        return retry_headers.with_failure(
            self._own_headers(message),
            self._first(message),
            self._reason(error),
            now_ms(),
            due_ms,
            self._earlier(message),
        )

    def decide(self, message: Message, error: Exception) -> Outcome:
        """Whether it goes to its next try, or to its end. Nothing is changed: it may be asked again."""
        failures = self.attempt(message)
        if failures >= self._policy.attempts:
            return self._given_up(message, error)
        due = now_ms() + round(self._policy.wait_seconds(failures) * 1000)
        return Outcome(self._passing_on(message, retry_topic(self._source(message), self._group), error, due))

    def apply(self, reader: "Reader", message: Message, outcome: Outcome) -> None:
        """Send it there. Made again with the same outcome, it goes on where it was interrupted."""
        del reader
        if outcome.passing is not None:
            self._forward(outcome.passing)
        else:
            logger.error("dropped %r after %d tries: %s", message, self._policy.attempts, outcome.dropped_for)

    def _reason(self, error: Exception) -> str:
        """What is stored of an exception, or logged: with encryption nothing that it may quote of a value."""
        return type(error).__name__ if self._sealed else reason_of(error)

    def _given_up(self, message: Message, error: Exception) -> Outcome:
        if not self._policy.dead_letter:
            return Outcome(given_up=True, dropped_for=self._reason(error))
        topic = dead_letter_topic(self._source(message), self._group)
        return Outcome(self._passing_on(message, topic, error, None), given_up=True)

    def _passing_on(self, message: Message, topic: str, error: Exception, due_ms: int | None) -> Passing:
        headers = self._failed_headers(message, error, due_ms)
        count = self._earlier(message)[0] + 1
        return self._passing(message, topic, headers, lambda: self._partition(message, topic, count, due_ms))

    @staticmethod
    def _passing(
        message: Message, topic: str, headers: list[tuple[str, Any]], choose: Callable[[], int]
    ) -> Passing:
        source = (message.topic, message.partition)
        return Passing(topic, message.key, message.raw_value, headers, choose, source)

    def _forward(self, passing: Passing) -> None:
        """From here on no commit is made before the message is there."""
        if not passing.kept:
            # No call: an interruption between the two would have it sent twice.
            self._under_way += [passing]
            passing.kept = True
        self._send(passing)
        if len(self._under_way) >= _UNDER_WAY_MAX:
            self.wait_for_deliveries()

    def _partition(self, message: Message, topic: str, failures: int, due_ms: int | None) -> int:
        count = self._producer.partitions(topic)
        lane = self._first(message).partition
        if due_ms is None:
            return lane % count
        lanes = max(1, count // self._policy.steps)
        return (self._policy.step(failures) * lanes + lane % lanes) % count

    def close(self) -> None:
        self._producer.close()


def reason_of(error: Exception) -> str:
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except Exception:  # the message must go on, whatever its error says
        return f"{name} (it cannot say what was wrong)"


def retry_flow(
    bootstrap: str, topics: Sequence[str], group: str, policy: Retry, *, sealed: bool = False
) -> RetryFlow:
    if policy.ordered_by_key:
        from penstock.client.retry.ordered import OrderedRetryFlow  # noqa: PLC0415 - it builds on this module

        return OrderedRetryFlow(bootstrap, topics, group, policy, sealed=sealed)
    return RetryFlow(bootstrap, topics, group, policy, sealed=sealed)
