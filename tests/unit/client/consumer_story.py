"""A seeded story of one member of a group over a scripted broker, and what must be true of it.

At-least-once: no commit passes a message that was neither worked on nor placed in a retry or dead-letter topic, and in
the end every message was worked on or is a dead letter. At-most-once: none is handed out twice, and none is missed
unless a member crashed, lost its partitions, or was interrupted while it gave them back.

The application goes on after whatever is raised, Ctrl-C included: who ends there has it easier. Ctrl-C comes at calls
into librdkafka and, while it asks for messages, commits, pauses or ends a body, at any moment at which CPython looks
for signals. Whatever librdkafka raises comes out as a ClientError. Some stories begin at the end, a time or an offset,
and some keep the order of keys: there, nothing is handed out before all that came earlier under its key has ended.
"""

from collections.abc import Callable
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Literal

from confluent_kafka import KafkaError, KafkaException
from tests.unit.client.consumer_checks import GROUP, PARTITIONS, TOPIC, Checks
from tests.unit.client.interrupting import Calm, Interruption, handled
from tests.unit.client.raising import slip
from tests.unit.client.scripted import Broker, RawConsumer
from tests.unit.client.scripted_message import Stored

from penstock.client.consuming.consumer import Consumer
from penstock.client.consuming.unfinished import Where
from penstock.client.errors import ClientError
from penstock.client.message import Message
from penstock.client.retry.policy import Retry

_PARTITIONS_MAX = 4
_STEPS = 150
_QUIET_ROUNDS = 12
_TROUBLE = (ClientError, KeyboardInterrupt)
_OFFSET = 2
_TIME = datetime.fromtimestamp(1000, UTC)  # when stories begin; half of their messages are older
_STARTS = ["latest", timedelta(0), "latest", timedelta(0), _TIME, _OFFSET]
_PASSED_ON = [("penstock-origin", b"orders/0/7"), ("penstock-failures", b"1")]


class Story(Checks):
    def __init__(self, seed: int, broker: Broker, delivery: Literal["at-least-once", "at-most-once"]) -> None:
        super().__init__(broker, ahead=delivery == "at-most-once")
        self._random, self._others_random = Random(seed), Random(seed)
        self._options: dict[str, Any] = {"delivery": delivery, "batch_messages": 5}
        self._plain = seed % 2 == 0  # rare meetings of rebalances and commits need many plain steps
        self._by_key = not self._ahead and not self._plain and self._random.random() < 0.4
        attempts = self._random.choice([1, 2, 3]) if self._by_key else 3
        self._retries = not self._ahead or seed % 3 == 1
        if self._retries:
            self._options["retry"] = Retry(attempts, backoff="20s", ordered_by_key=self._by_key)
        if not self._ahead:
            self._options["commit_every"] = self._random.choice([0, 1])
        # At-most-once, what is lost there is excused: stories without are worth more.
        self._in_rebalances = not self._ahead or self._random.random() < 0.5
        self._at_end = not self._by_key and not self._plain and self._random.random() < 0.8
        self._deletes = seed % 3 == 2 and not self._by_key
        self._offset = 0  # chosen by number
        if self._at_end:
            start = self._options["start"] = self._random.choice(_STARTS)
            if start == _OFFSET:
                self._at_end, self._offset = False, _OFFSET
        self._away: set[Where] = set()
        self._fuse: tuple[int, BaseException] | None = None
        self._ctrl_c: Interruption | Calm = Calm()
        self._moves = (self._commit, self._pause, self._resume)
        broker.make(TOPIC, PARTITIONS)
        broker.on_commit = self._committed
        broker.fault = self._fault
        broker.on_offsets = self._written_meanwhile
        broker.on_refused = self._refused
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
            place = (TOPIC, self._random.choice(self._broker.partitions(TOPIC)))
            old = self._options.get("start") == _TIME and self._random.random() < 0.5
            self._broker.append(place, b"x", key, list(headers), at_ms=0 if old else None)

    def _open(self) -> None:
        self._consumer = Consumer("scripted", TOPIC, group=GROUP, stop_on=(), **self._options)
        self._away.clear()
        self._broker.unknown.clear()
        self._raw.queue.append(("assign", self._places()))
        self._raw.on_begin = self._begin
        self._opened_with = len(self._broker.partitions(TOPIC))
        if not self._group_began():
            begun = range(self._opened_with if self._offset else 0)
            self._begins |= dict.fromkeys([(TOPIC, index) for index in begun], self._offset)

    def _begin(self, place: Where, offset: int, by_time: bool = False) -> bool:
        """The group begins there once and for all, unless something keeps it from committing that."""
        if by_time != isinstance(self._options.get("start"), datetime | timedelta):
            return False  # it begins at a time, and has asked for the end as well
        if self._at_end and place not in self._broker.committed:
            self._note_begin(place, offset)
        return True

    def _places(self) -> list[Where]:
        return [place for place in self._broker.logs if place[0] in self._raw.topics]

    def _fault(self, call: str, done: bool) -> None:
        if self._patience and (call, done) == ("poll", False):
            self._patience -= 1
            if not self._patience:
                self._troubles += 1
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
        self._interrupted()
        raise error

    def _may_interrupt(self) -> bool:
        return self._in_rebalances or self._raw.rebalancing != "revoke"

    def _interrupted(self) -> None:
        self._troubles += 1
        self._again.clear()
        self._excused |= self._raw.rebalancing == "revoke"

    def _refused(self, _: Where) -> None:
        self._troubles += 1
        self._excused |= self._raw.rebalancing == "revoke" or self._closing  # nothing can be given back

    def _written_meanwhile(self) -> None:
        """Between two requests of one that begins at a time."""
        by_time = isinstance(self._options.get("start"), datetime | timedelta)
        if by_time and self._others_random.random() < 0.5:
            for index in self._broker.partitions(TOPIC):
                self._broker.append((TOPIC, index), b"x", None, [])

    # The application

    def _work(self, messages: list[Message]) -> None:
        for message in messages:
            spot = (message.topic, message.partition, message.offset)
            self._handed_out(spot)
            if self._by_key:
                self._check_order(message)
            error = slip(message.offset) if self._retries and self._random.random() < self._failing else None
            if error is None:
                self._done.add(spot)
            with suppress(*_TROUBLE):  # it goes through them whatever is raised
                handled(self._consumer, message, error, self._ctrl_c.armed)

    _failing, _patience = 0.3, 0

    def _ask(self, ask: Callable[[], list[Message]]) -> None:
        with self._ctrl_c.armed():
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
            first = self._broker.starts.get(place, 0)
            seen, here = self._seen_to(place), self._consumer._reader.unfinished._reached
            if place not in here:  # by an earlier life: to go further than that had committed would skip some
                seen = min(seen, self._broker.committed.get(place, (0, ""))[0])
            to = self._random.randrange(first, max(first, seen) + 1)
            self._raw.end_commits()  # what was sent before it was asked for again may pass it
            self._consumer.seek(*place, "earliest" if to == first else to)
            self._asked_again(place, to)

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
        kind = self._random.random()
        if kind < 0.35:
            self._ctrl_c = Interruption(self._random.randrange(300), self._may_interrupt, self._interrupted)
            return
        if kind < 0.6 and self._in_rebalances:
            self._rebalance()
            moment = self._random.randrange(100)
            self._ctrl_c = Interruption(moment, lambda: self._raw.rebalancing, self._interrupted)
            return
        timed_out = KafkaException(KafkaError(KafkaError._TIMED_OUT))
        error = KeyboardInterrupt() if self._random.random() < 0.6 else timed_out
        self._fuse = (self._random.randrange(8), error)

    def _refuse(self) -> None:
        wanted = self._random.random() < 0.5
        self._broker.refuse = lambda topic: wanted and topic != TOPIC
        self._broker.forget_answer = [] if wanted else [f"{TOPIC}.{GROUP}.retry"]

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
        kind = self._random.choice(["revoke", "revoke", "revoke" if self._ahead and self._at_end else "lost"])
        gone = [place for place in sorted(self._raw.positions) if self._random.random() < 0.5]
        if gone:
            self._excused |= kind == "lost"
            if kind == "lost":
                self._again.clear()
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
            first, note = self._broker.committed.get(place, (None, self._note()))
            if first is None:
                first = self._begins.get(place, 0)
                if self._at_end and place[0] == TOPIC and (place[1] < PARTITIONS or not self._group_began()):
                    first = len(self._broker.logs[place])
                    self._note_begin(place, first)
                self._broker.commit(place, first, note)
            first = max(first, self._broker.starts.get(place, 0))
            for stored in self._broker.logs[place][first : first + 3]:
                spot = (*place, stored.number)
                self._handed_out(spot)
                self._done.add(spot)
                self._broker.commit(place, stored.number + 1, note)
                self._others[place] = stored.number + 1

    def _grow(self) -> None:
        """The group notices later."""
        count = len(self._broker.partitions(TOPIC))
        if count < _PARTITIONS_MAX:
            self._broker.make(TOPIC, count + 1)
            self._away.add((TOPIC, count))

    def _delete(self) -> None:
        """Commits for a partition are refused until it is taken away, some polls later; it comes back."""
        owned = [place for place in sorted(self._raw.positions) if place[0] == TOPIC and not self._away]
        if owned and not self._raw.queue:
            self._away = {self._others_random.choice(owned)}
            self._broker.unknown |= self._away
            self._raw.queue.append(("later", (8, ("revoke", sorted(self._away)))))

    def _expire(self) -> None:
        """Retention takes some messages, read or not."""
        place = self._random.choice(sorted(self._places()))
        end = len(self._broker.logs[place])
        self._retain(place, self._random.randrange(self._broker.starts.get(place, 0), end + 1))

    def _end_commits(self) -> None:
        self._raw.end_commits(self._random.choice([None, None, KafkaError.REQUEST_TIMED_OUT]))

    def _close(self) -> None:
        self._closing = True
        try:
            self._consumer.close()
        except _TROUBLE:
            self._excused = True
        self._reopen()

    def _crash(self) -> None:
        self._excused = True
        self._reopen()

    def _reopen(self) -> None:
        self._again.clear()
        self._fuse, self._closing = None, False
        self._open()

    # The telling

    def tell(self) -> None:
        steps: dict[Callable[[], None], int] = {
            self._receive: 20, self._receive_many: 6, self._loop: 6, self._batch: 6, self._table: 4,
            self._commit: 4, self._pause: 3, self._resume: 4,
            self._seek_back: 2, self._wait: 6, self._more: 6, self._error: 4, self._trouble: 8, self._refuse: 3,
            self._rebalance: 6, self._another_member: 9, self._end_commits: 2, self._close: 2, self._crash: 1,
            self._grow: 1, self._expire: 1,
        }  # fmt: skip
        if self._ahead:
            del steps[self._crash]  # what is lost is excused: stories without are worth more
        if self._plain:
            del steps[self._loop], steps[self._batch], steps[self._table]
            steps[self._receive] = 30
        if self._at_end and self._ahead:
            # It moves before it has read anything.
            steps |= {self._rebalance: 20, self._more: 12, self._trouble: 1}
        elif self._at_end:
            steps |= {self._close: 6, self._more: 12, self._trouble: 12}  # it begins often
        if self._by_key:
            del steps[self._seek_back], steps[self._another_member], steps[self._expire]  # they keep no order
        for step in self._random.choices(list(steps), list(steps.values()), k=_STEPS):
            self._dare(step)
        self._settle()
        self._check_end()

    def _dare(self, step: Callable[[], None]) -> None:
        if self._deletes and self._others_random.random() < 0.05:
            self._delete()
        with suppress(*_TROUBLE), self._ctrl_c.armed() if step in self._moves else nullcontext():
            step()
        self._raw.begun &= self._consumer._reader.membership._beginning._at.keys()  # ends it never heard of

    def _settle(self) -> None:
        """All is well again; what waits is worked off."""
        self._fuse, self._ctrl_c, self._failing, self._deletes = None, Calm(), 0.0, False
        self._broker.refuse, self._broker.forget_answer = lambda _: False, []
        if self._by_key:
            self._rebalance_all(self._places())
        elif self._away:
            self._raw.queue.append(("assign", sorted(self._away)))
            self._away = set()
        self._dare(self._resume)
        quiet = 0
        while quiet < _QUIET_ROUNDS:
            before = sum(self._begun.values())
            if self._by_key and self._raw.positions.keys() != set(self._places()):
                self._rebalance_all(self._places())  # the retry topic has grown behind its source
            self._dare(self._receive)
            self._dare(self._end_commits)
            quiet = 0 if sum(self._begun.values()) > before else quiet + 1
            self._broker.clock.now += 25
        self._check_ends(self._consumer.close)
