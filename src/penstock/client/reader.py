"""The heart of both consumers: takes messages from librdkafka, and commits before or after they are worked on.

A step of the loop, and what a crash at that point means:

    refill      messages are taken                      nothing is committed: they come again
    precommit   at-most-once: committed up to their end  what was taken but not worked on is lost
    (the body runs)
    finish      at-least-once: positions move           not committed yet: they come again
    commit      at-least-once: positions are committed  from here on they do not come again

When partitions are revoked, exactly what was worked on is committed, also under at-most-once, where that takes a
commit back. When they are lost (this member was expelled), nothing is: another member owns them by then.
One thread at a time may use a reader.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer as RawConsumer
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from penstock.client.connect import handle_settings, reach
from penstock.client.errors import ClientError, explained, kafka_errors
from penstock.client.holding import Holding
from penstock.client.profiles import Delivery
from penstock.client.starting import Start, begin_at, is_simple, reset_policy
from penstock.client.window import Where, Window, where

if TYPE_CHECKING:
    from confluent_kafka import Message as RawMessage

log = logging.getLogger("penstock.client")

# Signals are noticed between waits: librdkafka does not let Python run while it waits.
WAIT_SECONDS = 0.2
# While a batch is worked on for long, the group is attended to so often.
ATTEND_SECONDS = 0.5

# What librdkafka mends by itself; it says so and goes on.
_PASSING = {
    KafkaError._PARTITION_EOF,  # noqa: SLF001
    KafkaError._TRANSPORT,  # noqa: SLF001
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
    KafkaError._RESOLVE,  # noqa: SLF001
    KafkaError._TIMED_OUT,  # noqa: SLF001
    KafkaError._MAX_POLL_EXCEEDED,  # noqa: SLF001 - the partitions are lost, and will be assigned again
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
}
# A commit that came too late: the partition is another member's now, or will be in a moment.
_NOT_OURS = {
    KafkaError._NO_OFFSET,  # noqa: SLF001
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError._ASSIGNMENT_LOST,  # noqa: SLF001
    KafkaError._STATE,  # noqa: SLF001
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What a consumer was asked to do."""

    bootstrap: str
    topics: tuple[str, ...]
    group: str | None
    delivery: Delivery
    start: Start
    batch_messages: int
    commit_seconds: float
    settings: dict[str, Any]


class Reader:
    def __init__(
        self,
        plan: Plan,
        *,
        admit: "Callable[[Reader, list[RawMessage]], list[RawMessage]] | None" = None,
        before_commit: Callable[[], None] | None = None,
        assigned: "Callable[[Reader, list[TopicPartition]], None] | None" = None,
    ) -> None:
        """`admit` may keep messages back, `before_commit` must be done before any position moves, `assigned`
        sees partitions before their first message."""
        self._plan = plan
        self._admit = admit
        self._before_commit = before_commit
        self._assigned = assigned
        self._ahead = plan.delivery == "at-most-once"
        self._owned: set[Where] = set()
        self.window = Window(self._owned)
        self._rebalances = 0
        self._attended_at = self._committed_at = time.monotonic()
        self._failure: ClientError | None = None
        self._metadata: dict[Where, str] = {}
        self._sent: dict[Where, int] = {}  # the last position each partition was asked to be committed at
        self.closed = False
        reach(plan.bootstrap)
        with kafka_errors(plan.bootstrap, "the consumer's config"):
            self.raw = RawConsumer(
                handle_settings(
                    plan.bootstrap,
                    debug=False,
                    **{
                        # Without a group nothing is joined or committed; librdkafka wants a name all the same.
                        "group.id": plan.group or "penstock-no-group",
                        "auto.offset.reset": reset_policy(plan.start),
                        "on_commit": self._on_commit,
                        **plan.settings,
                    },
                )
            )
        self.holding = Holding(self.raw, self._owned)
        strategy = str(plan.settings.get("partition.assignment.strategy", ""))
        self._cooperative = "cooperative" in strategy or plan.settings.get("group.protocol") == "consumer"

    # Joining

    def open(self, topics: Sequence[str]) -> None:
        if self._plan.group is None:
            self._assign_all(topics)
            return
        with kafka_errors(self._plan.bootstrap, ", ".join(topics)):
            self.raw.subscribe(
                list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )

    def _assign_all(self, topics: Sequence[str]) -> None:
        from penstock.client.admin import Admin  # noqa: PLC0415 - the admin client is needed here alone

        admin = Admin(self._plan.bootstrap)
        found = [TopicPartition(topic, index) for topic in topics for index in admin.partition_indexes(topic)]
        with kafka_errors(self._plan.bootstrap, ", ".join(topics)):
            self.raw.assign(begin_at(self.raw, self._plan.start, found))
        self._owned.update((one.topic, one.partition) for one in found)

    def _on_assign(self, raw: RawConsumer, partitions: list[TopicPartition]) -> None:
        self._rebalances += 1
        self._owned.update((one.topic, one.partition) for one in partitions)
        chosen = partitions
        try:
            if not is_simple(self._plan.start):
                chosen = self._begin(raw, partitions)
            if self._assigned is not None:
                self._assigned(self, partitions)
        except (KafkaException, ClientError) as error:
            # Raised in a callback it would be lost: it is told by the loop.
            self._failure = (
                error
                if isinstance(error, ClientError)
                else explained(error, bootstrap=self._plan.bootstrap, subject="the assignment")
            )
        if self._cooperative:
            raw.incremental_assign(chosen)
        else:
            raw.assign(chosen)
        self.holding.assigned(partitions)

    def _begin(self, raw: RawConsumer, partitions: list[TopicPartition]) -> list[TopicPartition]:
        committed = raw.committed(partitions, timeout=30)
        new = [one for one in committed if one.offset < 0]
        begun = {(one.topic, one.partition): one for one in begin_at(raw, self._plan.start, new)}
        return [begun.get((one.topic, one.partition), one) for one in committed]

    def _on_revoke(self, _: RawConsumer, partitions: list[TopicPartition]) -> None:
        self._rebalances += 1
        gone = [(one.topic, one.partition) for one in partitions]
        if not self.closed:
            self._leave(gone)
        self._forget(gone)

    def _on_lost(self, _: RawConsumer, partitions: list[TopicPartition]) -> None:
        self._rebalances += 1
        gone = [(one.topic, one.partition) for one in partitions]
        self.window.finish()
        self.window.drop(gone)
        self.window.take_positions(gone)
        self._forget(gone)

    def _forget(self, gone: list[Where]) -> None:
        self._owned.difference_update(gone)
        self.holding.forget(gone)
        for place in gone:
            self.window.unpin(place)
            self._metadata.pop(place, None)

    def _leave(self, gone: Iterable[Where]) -> None:
        """Commit exactly what was worked on. Runs between two bodies: what was handed out is finished."""
        gone = list(gone)
        self.window.finish()
        pending = self.window.drop(gone)
        finished = self.window.take_positions(gone)
        self._commit(pending if self._ahead else finished)

    # Taking messages

    def refill(self, wait: float = WAIT_SECONDS) -> bool:
        """Everything handed out is finished; take more. False when there was nothing."""
        self.window.finish()
        if not self._ahead and self._commit_due():
            self.commit(asynchronous=self._plan.commit_seconds > 0)
        fresh = self._take(self._plan.batch_messages, wait)
        if self._ahead and fresh:
            fresh = self._precommit(fresh)
        self.window.refill(fresh)
        return bool(fresh)

    @property
    def attend_due(self) -> bool:
        return time.monotonic() - self._attended_at >= ATTEND_SECONDS

    def attend(self) -> None:
        """Between two bodies of a long batch: let rebalances happen and heartbeats count."""
        if not self.attend_due:
            return
        self.window.finish()
        if not self._ahead:
            if self._commit_due():
                self.commit(asynchronous=True)
            self.window.refill(self._take(1, 0))
        elif self._plan.group is not None:
            # One message at most, and committed before it joins the others.
            self.window.refill(self._precommit(self._take(1, 0)))

    def _take(self, most: int, wait: float) -> "list[RawMessage]":
        self._raise_failure()
        before = self._rebalances
        wait = self.holding.resume_due(wait)
        with kafka_errors(self._plan.bootstrap, ", ".join(self._plan.topics)):
            first = self.raw.poll(wait)
            taken = [] if first is None else [first]
            if first is not None and most > 1:
                # consume(n, wait) would wait for all n; what is here already is enough.
                taken += self.raw.consume(most - 1, 0)
        self._attended_at = time.monotonic()
        self._raise_failure()
        good = [raw for raw in taken if raw.error() is None]
        if len(good) != len(taken):
            for raw in taken:
                self._check(raw.error(), raw.topic())
        if self._rebalances != before and self._plan.group is not None:
            good = [raw for raw in good if where(raw) in self._owned]
        if self.holding.active:
            good = self.holding.without_held(good)
        return good if self._admit is None else self._admit(self, good)

    def _check(self, error: KafkaError | None, topic: str | None) -> None:
        if error is None or error.code() in _PASSING:
            return
        raise explained(error, bootstrap=self._plan.bootstrap, subject=topic or ", ".join(self._plan.topics))

    def _raise_failure(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    # Committing

    def _precommit(self, fresh: "list[RawMessage]") -> "list[RawMessage]":
        """At-most-once: the commit comes first. What could not be committed is not worked on but read again."""
        if self._plan.group is None or not fresh:
            return fresh
        ends: dict[Where, int] = {}
        starts: dict[Where, int] = {}
        for raw in fresh:
            place, offset = where(raw), raw.offset()
            assert offset is not None
            starts.setdefault(place, offset)
            ends[place] = offset + 1
        if self._commit(ends):
            return fresh
        for (topic, partition), offset in starts.items():
            if (topic, partition) in self._owned:
                self.raw.seek(TopicPartition(topic, partition, offset))
        return []

    def _commit_due(self) -> bool:
        return time.monotonic() - self._committed_at >= self._plan.commit_seconds

    def note(self, place: Where, text: str) -> None:
        """Metadata that goes with the next commit of a partition."""
        self._metadata[place] = text

    def commit(self, *, asynchronous: bool = False) -> None:
        """Commit what is finished. At-most-once has committed it before: a commit now could only go back."""
        self._committed_at = time.monotonic()
        positions = self.window.take_positions()
        if not self._ahead and not self._commit(positions, asynchronous=asynchronous):
            self._give_back(positions)

    def _give_back(self, positions: dict[Where, int]) -> None:
        """A commit that came to nothing is made again, unless the partition has gone or a later one was sent."""
        for place, offset in positions.items():
            if place in self._owned and self._sent.get(place) == offset:
                self.window.positions.setdefault(place, offset)

    def _commit(self, positions: dict[Where, int], *, asynchronous: bool = False) -> bool:
        """False when the partitions are not ours any more."""
        if not positions or self._plan.group is None:
            return True
        if self._before_commit is not None:
            self._before_commit()
        offsets = [
            TopicPartition(topic, partition, offset, self._metadata.pop((topic, partition), ""))
            for (topic, partition), offset in positions.items()
        ]
        self._sent.update(positions)
        try:
            self._send_commit(offsets, asynchronous=asynchronous)
        except KafkaException as error:
            if error.args[0].code() not in _NOT_OURS:
                raise explained(
                    error, bootstrap=self._plan.bootstrap, subject=f"group {self._plan.group}"
                ) from error
            return False
        return True

    def _send_commit(self, offsets: list[TopicPartition], *, asynchronous: bool) -> None:
        if asynchronous:
            self.raw.commit(offsets=offsets, asynchronous=True)
            return
        for one in self.raw.commit(offsets=offsets, asynchronous=False) or ():
            if one.error is not None:
                raise KafkaException(one.error)

    def _on_commit(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        """How asynchronous commits ended."""
        failed = [one for one in offsets if error is not None or one.error is not None]
        self._give_back({(one.topic, one.partition): one.offset for one in failed})
        if error is not None and error.code() not in _NOT_OURS:
            log.warning("a commit of group %s failed and will be made again: %s", self._plan.group, error)

    # Moving about

    def seek(self, one: TopicPartition) -> None:
        self.window.drop([(one.topic, one.partition)])
        with kafka_errors(self._plan.bootstrap, f"{one.topic}, partition {one.partition}"):
            self.raw.seek(one)

    def try_again(self, place: Where, offset: int, wait_seconds: float) -> None:
        """Hand out a message again after a while, and nothing of its partition before; its position stays."""
        self.window.pin(place, offset)
        self.window.drop([place])
        self.holding.until(place, offset, wait_seconds)

    def pause(self, places: Iterable[Where]) -> None:
        """Nothing more of these is handed out; what was taken already is read again on resume."""
        self.holding.pause(places, self.window)

    def resume(self, places: Iterable[Where]) -> None:
        self.holding.resume(places)

    @property
    def owned(self) -> list[Where]:
        return sorted(self._owned)

    def close(self, *, unfinished: int) -> None:
        """Commit and leave. The last `unfinished` of what was handed out do not count as worked on."""
        if self.closed:
            return
        self.window.finish(unfinished)
        try:
            if self._ahead:
                self._commit(self.window.pending())
            else:
                self.commit()
        finally:
            self.closed = True
            self.raw.close()
