"""A seeded story of one member of a group over a scripted broker, and what must be true of it.

At-least-once: no commit passes a message that was neither worked on nor placed in a retry or dead-letter topic, and in
the end every message was worked on or is a dead letter. At-most-once: none is handed out twice, and none is missed
unless a member crashed, lost its partitions, or was interrupted while it gave them back.

The application goes on after whatever is raised, Ctrl-C included: who ends there has it easier. Ctrl-C comes at calls
into librdkafka and, while it asks for messages, at any moment at which CPython looks for signals. Some stories begin
at the end, and some keep the order of keys: there, nothing is handed out before all that came earlier under its key
has ended.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext, suppress
from datetime import timedelta
from random import Random
from typing import Any, Literal

from confluent_kafka import KafkaError, KafkaException
from tests.unit.client.interrupting import Interruption
from tests.unit.client.scripted import Broker, RawConsumer, Stored

from penstock.client import retry_headers
from penstock.client.consumer import Consumer
from penstock.client.errors import ClientError
from penstock.client.message import Message
from penstock.client.retry import Retry
from penstock.client.window import Where

TOPIC, GROUP = "orders", "billing"
_PARTITIONS = 2
_STEPS = 150
_QUIET_ROUNDS = 12
_TROUBLE = (ClientError, KafkaException, KeyboardInterrupt)
_PASSED_ON = [("penstock-origin", b"elsewhere/0/7"), ("penstock-failures", b"1")]

Spot = tuple[str, int, int]


class Violation(AssertionError):  # noqa: N818 - as the other checkers call it
    """A promise was broken."""


class Story:
    def __init__(self, seed: int, broker: Broker, delivery: Literal["at-least-once", "at-most-once"]) -> None:
        self._random = Random(seed)
        self._broker = broker
        self._ahead = delivery == "at-most-once"
        self._options: dict[str, Any] = {"delivery": delivery, "batch_messages": 5}
        self._plain = seed % 2 == 0  # rare meetings of rebalances and commits need many plain steps
        self._by_key = not self._ahead and not self._plain and self._random.random() < 0.4
        if not self._ahead:
            self._options |= {
                "retry": Retry(attempts=3, backoff="20s", ordered_by_key=self._by_key),
                "commit_every": self._random.choice([0, 1]),
            }
        self._at_end = not self._by_key and not self._plain and self._random.random() < 0.3
        if self._at_end:
            self._options["start"] = self._random.choice(["latest", timedelta(0)])
        self._done: set[Spot] = set()
        self._begun: Counter[Spot] = Counter()
        self._away: set[Where] = set()
        self._others: dict[Where, int] = {}  # what another member has committed last
        self._excused = False
        self._begins: dict[Where, int] = {}  # where a partition without a commit was begun last
        self._fuse: tuple[int, BaseException] | None = None
        self._ctrl_c: Interruption | None = None
        self._patience = 0
        broker.make(TOPIC, _PARTITIONS)
        broker.on_commit = self._committed
        broker.fault = self._fault
        self._send(6)
        self._open()

    # The world

    @property
    def _raw(self) -> RawConsumer:
        assert self._broker.consumer is not None
        return self._broker.consumer

    def _send(self, count: int) -> None:
        for _ in range(count):
            headers = _PASSED_ON if self._random.random() < 0.2 else []
            key = self._random.choice([b"a", b"b", b"c"]) if self._by_key else None
            self._broker.append((TOPIC, self._random.randrange(_PARTITIONS)), b"x", key, list(headers))

    def _open(self) -> None:
        self._consumer = Consumer("scripted", TOPIC, group=GROUP, stop_on=(), **self._options)
        self._away.clear()
        self._raw.queue.append(("assign", self._places()))
        self._raw.on_begin = self._begin

    def _begin(self, place: Where, offset: int) -> None:
        if self._at_end and place not in self._broker.committed:
            self._begins[place] = offset

    def _places(self) -> list[Where]:
        return [place for place in self._broker.logs if place[0] in self._raw.topics]

    def _fault(self, call: str, done: bool) -> None:
        if self._patience and (call, done) == ("poll", False):
            self._patience -= 1
            if not self._patience:
                raise KeyboardInterrupt
        if self._fuse is None:
            return
        left, error = self._fuse
        # librdkafka's own errors come before anything was done; those of callbacks may have a message in hand.
        own = isinstance(error, KafkaException) and call not in ("poll", "consume")
        if left > 0 or (done and own):
            self._fuse = (left - 1, error)
            return
        self._fuse = None
        self._excused |= self._raw.rebalancing
        raise error

    def _may_interrupt(self) -> bool:
        """At-most-once, a rebalance that is interrupted may give back too much."""
        return not (self._ahead and self._raw.rebalancing)

    # What must be true

    def _committed(self, place: Where, offset: int) -> None:
        if offset < self._others.get(place, 0):
            raise Violation(f"{place} is set back to {offset} behind another member")
        if self._ahead:
            return
        for stored in self._broker.logs[place][self._begins.get(place, 0) : offset]:
            if not self._is_safe(stored):
                raise Violation(f"{place} is committed at {offset}, and {stored.number} is nowhere")

    def _is_safe(self, stored: Stored) -> bool:
        if (*stored.at, stored.number) in self._done:
            return True
        origin, failures = _told(stored)
        later = (_told(one) for place in self._kept() for one in self._broker.logs[place])
        parked = stored.topic() == TOPIC  # behind its key: it is there without having failed
        return any(known == origin and (count > failures or parked) for known, count in later)

    def _kept(self) -> list[Where]:
        """Where failed messages are found again: in the topics that this flow reads or lays them aside in."""
        names = (f"{TOPIC}.{GROUP}.retry", f"{TOPIC}.{GROUP}.dlq")
        return [place for place in self._broker.logs if place[0] in names]

    def _ended(self) -> set[Spot]:
        ended = {_told(self._broker.logs[topic, index][number])[0] for topic, index, number in self._done}
        return ended | {
            _told(one)[0]
            for place in self._kept()
            if place[0].endswith(".dlq")
            for one in self._broker.logs[place]
        }

    def _check_order(self, message: Message) -> None:
        topic, index, number = message.origin
        earlier = {
            (topic, index, one.number)
            for one in self._broker.logs[topic, index][:number]
            if one.key() == message.key
        }
        if earlier - self._ended():
            raise Violation(f"{message!r} of {number} is handed out before {sorted(earlier - self._ended())}")

    def _check_end(self) -> None:
        ended = self._ended()
        for index in range(_PARTITIONS):
            for stored in self._broker.logs[TOPIC, index][self._begins.get((TOPIC, index), 0) :]:
                spot = (TOPIC, index, stored.number)
                if self._ahead:
                    if not self._begun[spot] and not self._excused:
                        raise Violation(f"{spot} was never handed out")
                elif spot not in ended:
                    raise Violation(f"{spot} was never worked on")

    # The application

    def _work(self, messages: list[Message]) -> None:
        for message in messages:
            spot = (message.topic, message.partition, message.offset)
            self._begun[spot] += 1
            if self._ahead and self._begun[spot] > 1:
                raise Violation(f"{spot} was handed out twice")
            if self._by_key:
                self._check_order(message)
            # Asking for more says that all were done: it goes through them whatever is raised.
            with suppress(*_TROUBLE), self._consumer.handling(message):
                if not self._ahead and self._random.random() < self._failing:
                    raise ValueError("no")
                self._done.add(spot)

    _failing = 0.3

    def _ask(self, ask: Callable[[], list[Message]]) -> None:
        with nullcontext() if self._ctrl_c is None else self._ctrl_c.armed():
            found = ask()
        self._work(found)

    def _receive(self) -> None:
        def ask() -> list[Message]:
            message = self._consumer.receive(0.3)
            return [] if message is None else [message]

        self._ask(ask)

    def _receive_many(self) -> None:
        self._ask(lambda: self._consumer.receive_many(3, 0.3))

    def _loop(self) -> None:
        messages = iter(self._consumer)
        self._until_weary(lambda: [next(messages)])

    def _batch(self) -> None:
        batches = self._consumer.batches(size=3, wait=0.3)
        self._until_weary(lambda: next(batches))

    def _table(self) -> None:
        """Values that do not always go together."""

        def made(messages: list[Message]) -> list[Message]:
            if self._random.random() < 0.5:
                raise ClientError("no common type")
            return messages

        tables = self._consumer._batches(3, 0.3, made)
        self._until_weary(lambda: next(tables))

    def _until_weary(self, ask: Callable[[], list[Message]]) -> None:
        """Who waits for ever presses Ctrl-C."""
        self._patience = 5
        try:
            self._ask(ask)
        finally:
            self._patience = 0

    def _commit(self) -> None:
        self._consumer.commit()

    def _pause(self) -> None:
        self._consumer.pause(*self._random.choice(sorted(self._places())))

    def _resume(self) -> None:
        self._consumer.resume()

    def _seek_back(self) -> None:
        owned = [place for place in sorted(self._raw.positions) if place[0] == TOPIC]
        if owned and not self._ahead:
            place = self._random.choice(owned)
            self._others.pop(place, None)  # it wants to go back
            self._consumer.seek(
                *place, self._random.randrange(self._broker.committed.get(place, (0, ""))[0] + 1)
            )

    # What befalls it

    def _wait(self) -> None:
        self._broker.clock.now += self._random.choice([0.6, 1.5, 30])

    def _more(self) -> None:
        self._send(self._random.randrange(4))

    def _error(self) -> None:
        code = self._random.choice([KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._TRANSPORT])
        self._raw.queue.append(("error", Stored((TOPIC, 0), wrong=KafkaError(code))))

    def _trouble(self) -> None:
        """One of the next calls raises."""
        if self._random.random() < 0.5:
            self._ctrl_c = Interruption(self._random.randrange(300), self._may_interrupt)
            return
        timed_out = KafkaException(KafkaError(KafkaError._TIMED_OUT))
        error = KeyboardInterrupt() if self._random.random() < 0.6 else timed_out
        self._fuse = (self._random.randrange(8), error)

    def _refuse(self) -> None:
        wanted = self._random.random() < 0.5
        self._broker.refuse = lambda topic: wanted and topic != TOPIC

    def _rebalance(self) -> None:
        if self._raw.queue:
            return
        if self._by_key:
            self._rebalance_all([place for place in self._places() if self._random.random() < 0.7])
            return
        if self._away:
            self._raw.queue.append(("assign", sorted(self._away)))
            self._away = set()
            return
        kind = self._random.choice(["revoke", "revoke", "lost"])
        gone = [place for place in sorted(self._raw.positions) if self._random.random() < 0.5]
        if gone:
            self._excused |= kind == "lost"
            self._raw.queue.append((kind, gone))
            self._away = set(gone)

    def _rebalance_all(self, kept: list[Where]) -> None:
        """As the range assignor does: all are taken away, and some come back."""
        kind = self._random.choice(["revoke", "revoke", "lost"])
        self._raw.queue.append((kind, sorted(self._raw.positions)))
        self._raw.queue.append(("assign", kept))

    def _another_member(self) -> None:
        """Works on what is away, and commits it."""
        for place in sorted(self._away - self._raw.positions.keys()):
            first = self._broker.committed.get(place, (0, ""))[0]
            for stored in self._broker.logs[place][first : first + 3]:
                spot = (*place, stored.number)
                self._begun[spot] += 1
                if self._ahead and self._begun[spot] > 1:
                    raise Violation(f"{spot} was handed out twice")
                self._done.add(spot)
                self._broker.commit(place, stored.number + 1, "")
                self._others[place] = stored.number + 1

    def _end_commits(self) -> None:
        self._raw.end_commits(self._random.choice([None, None, KafkaError.REQUEST_TIMED_OUT]))

    def _close(self) -> None:
        try:
            self._consumer.close()
        except _TROUBLE:
            self._excused = True
        self._reopen()

    def _crash(self) -> None:
        self._excused = True
        self._reopen()

    def _reopen(self) -> None:
        self._fuse = None
        self._open()

    # The telling

    def tell(self) -> None:
        steps: dict[Callable[[], None], int] = {
            self._receive: 20, self._receive_many: 6, self._loop: 6, self._batch: 6, self._table: 4,
            self._commit: 4, self._pause: 3, self._resume: 4,
            self._seek_back: 2, self._wait: 6, self._more: 6, self._error: 4, self._trouble: 8, self._refuse: 3,
            self._rebalance: 6, self._another_member: 9, self._end_commits: 2, self._close: 2, self._crash: 1,
        }  # fmt: skip
        if self._ahead:
            del steps[self._crash]  # what is lost is excused: stories without are worth more
        if self._plain:
            del steps[self._loop], steps[self._batch], steps[self._table]
            steps[self._receive] = 30
        if self._by_key:
            del steps[self._seek_back], steps[self._another_member]  # they keep no order
        for step in self._random.choices(list(steps), list(steps.values()), k=_STEPS):
            self._dare(step)
        self._settle()
        self._check_end()

    def _dare(self, step: Callable[[], None]) -> None:
        with suppress(*_TROUBLE):
            step()

    def _settle(self) -> None:
        """All is well again; what waits is worked off."""
        self._fuse, self._ctrl_c, self._failing = None, None, 0.0
        self._broker.refuse = lambda _: False
        if self._by_key:
            self._rebalance_all(self._places())
        elif self._away:
            self._raw.queue.append(("assign", sorted(self._away)))
            self._away = set()
        self._dare(self._resume)
        quiet = 0
        while quiet < _QUIET_ROUNDS:
            before = sum(self._begun.values())
            self._dare(self._receive)
            self._dare(self._end_commits)
            quiet = 0 if sum(self._begun.values()) > before else quiet + 1
            self._broker.clock.now += 25
        self._consumer.close()


def _told(stored: Stored) -> tuple[Spot, int]:
    """Where a message came from, and how often it had failed when it was stored there."""
    if stored.topic() == TOPIC:
        return (TOPIC, stored.partition(), stored.number), 0
    origin = retry_headers.origin(stored.headers())
    assert origin is not None
    return origin, retry_headers.failures(stored.headers())
