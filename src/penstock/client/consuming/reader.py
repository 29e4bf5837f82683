"""The heart of both consumers: takes messages from librdkafka, and commits before or after they are worked on.

A step of the loop, and what a crash at that point means:

    refill      messages are taken                      nothing is committed: they come again
    precommit   at-most-once: committed up to their end  what was taken but not worked on is lost
    (the body runs)
    finish      at-least-once: positions move           not committed yet: they come again
    commit      at-least-once: positions are committed  from here on they do not come again

How partitions come and go: `membership`.

An exception (an error of the broker's, Ctrl-C) may come out of any step. Who goes on afterwards misses nothing: what
was taken stays in the intake, positions stay until their commit was sent, and a partition whose assignment went wrong
is not read before it was put right.
One thread at a time may use a reader.
"""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from confluent_kafka import Consumer as RawConsumer
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from penstock.client.connect import handle_settings, reach
from penstock.client.consuming.ahead import Ahead
from penstock.client.consuming.alone import Alone
from penstock.client.consuming.commits import Commits, Plan
from penstock.client.consuming.intake import Intake
from penstock.client.consuming.membership import Membership
from penstock.client.consuming.paused import PausedPartitions
from penstock.client.consuming.reader_errors import PASSING, UNKNOWN, Failure
from penstock.client.consuming.starting import RESET_POLICY
from penstock.client.consuming.unfinished import Unfinished, Where, first_offsets, place_of, where
from penstock.client.errors import ClientError, kafka_errors

if TYPE_CHECKING:
    from confluent_kafka import Message as RawMessage

# Signals are noticed between waits: librdkafka does not let Python run while it waits.
WAIT_SECONDS = 0.2
# While a batch is worked on for long, the group is attended to so often.
ATTEND_SECONDS = 0.5
_NO_TOPIC = KafkaError.UNKNOWN_TOPIC_OR_PART


class Reader:
    def __init__(
        self,
        plan: Plan,
        *,
        admit: "Callable[[Reader, list[RawMessage]], list[RawMessage]] | None" = None,
        before_commit: Callable[[], None] | None = None,
        assigned: "Callable[[Reader, list[TopicPartition]], None] | None" = None,
        forgotten: Callable[[Collection[Where]], None] | None = None,
        before_end: Callable[[], None] | None = None,
        retries: Collection[str] = (),
    ) -> None:
        """`admit` may keep messages back, `before_commit` must be done before any position moves, `assigned`
        sees partitions before their first message, `forgotten` those that went away uncommitted; `before_end` is
        called before an at-most-once reader waits for the last time; `retries` are the retry topics that are read."""
        self._plan = plan
        self._admit = admit
        self._before_end = before_end
        self._ahead = plan.delivery == "at-most-once"
        self._owned: set[Where] = set()
        self.unfinished = Unfinished(self._owned)
        self.commits = Commits(plan, self._owned, self.unfinished, before_commit)
        self._attended_at = self._committed_at = time.monotonic()
        self.failure = Failure(plan.bootstrap)
        self.ahead = Ahead(plan, self._owned, self.unfinished, self.commits)
        self.closed = False
        reach(plan.bootstrap)
        # Without a group nothing is joined or committed; librdkafka wants a name all the same.
        group = {"group.id": plan.group or "penstock-no-group", "auto.offset.reset": RESET_POLICY}
        settings = {**group, "on_commit": self.commits.ended, **plan.settings}
        with kafka_errors(plan.bootstrap, "the consumer's config"):
            self.raw = RawConsumer(handle_settings(plan.bootstrap, debug=False, **settings))
        self.intake = Intake(self.raw, self._owned, self.unfinished)
        self.paused = PausedPartitions(self.raw, self._owned, self.intake)
        self._alone = Alone(plan, self.raw, self._owned, self.unfinished)
        self.membership = Membership(
            plan,
            self.raw,
            owned=self._owned,
            unfinished=self.unfinished,
            commits=self.commits,
            ahead=self.ahead,
            intake=self.intake,
            paused=self.paused,
            failure=self.failure,
            assigned=None if assigned is None else partial(assigned, self),
            forgotten=forgotten,
            retries=retries,
        )

    def open(self, topics: Sequence[str]) -> None:
        with kafka_errors(self._plan.bootstrap, ", ".join(topics)):
            if self._plan.group is None:
                self._alone.open(topics)
                return
            self.membership.join(topics)

    # Taking messages

    def refill(self, wait: float = WAIT_SECONDS, *, hold: bool = False) -> bool:
        """Everything handed out is finished; take more. False when there was nothing. At-most-once, what is taken on
        `hold` is committed when it is promised."""
        self.unfinished.finish()
        if self._commit_due():
            self.commit(asynchronous=self._plan.commit_seconds > 0)
        return self._take(self._plan.batch_messages, wait, hold=hold)

    def promise(self, count: int | None = None) -> bool:
        """At-most-once: the next messages may be handed out, all that were taken without a `count`."""
        return self.ahead.promise(self.raw, self.intake, self.paused, count)

    @property
    def attend_due(self) -> bool:
        return time.monotonic() - self._attended_at >= ATTEND_SECONDS

    def attend(self) -> None:
        """Between two bodies of a long batch: let rebalances happen and heartbeats count."""
        if not self.attend_due:
            return
        self.unfinished.finish()
        if not self._ahead and self._commit_due():
            self.commit(asynchronous=True)
        if not self._ahead or self._plan.group is not None:
            self._take(1, 0)  # at-most-once it is committed before it joins the others

    def _take(self, most: int, wait: float, *, hold: bool = False) -> bool:
        """From librdkafka into `unfinished`, by way of the inbox: what raises on the way is told, nothing is lost."""
        if self.unfinished.took is self.intake.inbox:  # interrupted just then: they are not taken twice
            self.intake.inbox = []
        self.failure.tell()
        self.membership.make_ready()
        with kafka_errors(self._plan.bootstrap, ", ".join(self._plan.topics)):
            if self._plan.group is None:
                self._alone.look()
            self.intake.return_back()
            wait = self.paused.resume_due(wait)
            self.intake.poll(most, wait)
        self._attended_at = time.monotonic()
        for raw in self.intake.take_errors():
            self._note_error(raw)
        self._note_all_deleted()
        self.failure.tell()
        self.membership.make_ready()  # a rebalance may have come with the messages
        with kafka_errors(self._plan.bootstrap, ", ".join(self._plan.topics)):
            fresh = self._admitted(self.intake.inbox)
        is_left = self.unfinished.index < len(self.unfinished.raws)
        hold = self._ahead and (hold or (self.ahead.held and is_left))
        returned = self.ahead.returned
        if fresh and self._ahead and not hold:
            committed, returned = self.ahead.precommit(self.raw, fresh)
            refused = self.ahead.refused(fresh, committed)
            if refused:
                self.intake.back = self.intake.back_to(refused)
                self.ahead.wait_for(refused, self.paused)
                fresh = [message for message in fresh if where(message) in committed]
        if fresh:
            self.ahead.held |= hold  # before they are there
            self.unfinished.refill(fresh, self.intake.inbox)
            self.ahead.returned, self.ahead.held = returned, hold
        self.intake.inbox = []
        return bool(fresh)

    def _admitted(self, fresh: "list[RawMessage]") -> "list[RawMessage]":
        if self.paused.active:
            if self._ahead:  # a poll that was cut short may have brought them back, committed
                held = first_offsets(raw for raw in fresh if self.paused.holds(where(raw)))
                self.ahead.returned = held | self.ahead.returned
            fresh = self.paused.without_held(fresh)
        return fresh if self._admit is None else self._admit(self, fresh)

    def _note_error(self, raw: "RawMessage") -> None:
        error = raw.error()
        assert error is not None
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
            self.membership.at_end.add(where(raw))
        elif self._is_deleted(raw, error):
            self.commits.tell_deleted(raw.topic() or "")
        elif error.code() not in PASSING:
            self.failure.note(KafkaException(error), raw.topic() or ", ".join(self._plan.topics))

    def _is_deleted(self, raw: "RawMessage", error: KafkaError) -> bool:
        """One of several topics, which was there: those who read the others go on."""
        return error.code() in UNKNOWN and raw.topic() in self.membership.seen and len(self._plan.topics) > 1

    def _note_all_deleted(self) -> None:
        """Those who read the others go on; where there are no others, nothing more would come and nobody know why."""
        deleted, topics = self.commits.told_deleted, set(self._plan.topics)
        if deleted and deleted >= topics and not any(place[0] in topics for place in self._owned):
            self.commits.told_deleted = set()  # it is told once
            names = ", ".join(self._plan.topics)
            self.failure.note(ClientError(f"there are no topics {names} any more", _NO_TOPIC), names)

    # Committing

    def _commit_due(self) -> bool:
        return time.monotonic() - self._committed_at >= self._plan.commit_seconds

    def commit(self, *, asynchronous: bool = False) -> None:
        """Commit what is finished. At-most-once has committed it before: a commit now could only go back. But what
        was passed on may have been refused, and with nothing new to read nobody else would send it again."""
        self.membership.reconcile()
        self._committed_at = time.monotonic()
        positions = dict(self.unfinished.positions)
        if self._ahead:
            self.commits.wait()
        # What could not be committed stays to be committed, unless its partition goes.
        if not self._ahead:
            sent = self.commits.send(self.raw, positions, asynchronous=asynchronous)
            positions = {place: offset for place, offset in positions.items() if place in sent}
        self.unfinished.sent(positions)

    # Moving about

    def seek(self, partition: TopicPartition) -> None:
        place = place_of(partition)
        back = self.unfinished.is_back(place, partition.offset)
        self._read_again([place])
        with kafka_errors(self._plan.bootstrap, f"{partition.topic}, partition {partition.partition}"):
            self.intake.seek(place, partition.offset)
        if back and partition.offset >= 0 and place in self._owned:
            if self._ahead:
                self.ahead.returned[place] = partition.offset
            else:
                self.unfinished.go_back(place, partition.offset)

    def _read_again(self, places: Iterable[Where]) -> None:
        """What was taken of these and not handed out is not, until it is read again."""
        wanted = self.unfinished.pending_of(places)
        if not wanted:
            return
        returned = wanted | self.ahead.returned if self._ahead else self.ahead.returned
        self._go_back(returned, self.intake.back_to(wanted), self.unfinished.without(places))

    def _go_back(self, returned: dict[Where, int], back: dict[Where, int], kept: "list[RawMessage]") -> None:
        """In one step, with no call: who is interrupted in between would be handed those that are read again twice."""
        self.ahead.returned, self.intake.back = returned, back
        self.unfinished.raws, self.unfinished.promised = kept, 0

    def try_again(self, place: Where, offset: int, wait_seconds: float) -> None:
        """Hand out a message again after a while, and nothing of its partition before; its position stays."""
        self.unfinished.pin(place, offset)
        returned = self.ahead.returned | {place: offset} if self._ahead else self.ahead.returned
        self._go_back(returned, self.intake.back_to({place: offset}), self.unfinished.without([place]))
        with kafka_errors(self._plan.bootstrap, "the assignment"):
            self.paused.until(place, offset, wait_seconds)

    def keep_back(self, place: Where, offset: int) -> None:
        """A message whose body did not end is not committed. At-most-once it is already."""
        if not self._ahead and self.unfinished.is_in_hand(place, offset):
            self.unfinished.keep_back(place, offset)

    def hand_out_again(self, place: Where, offset: int) -> None:
        """The same, and who goes on is handed it again, and what came behind it. Where its body sought back to before
        it, that comes first."""
        if self._ahead or not self.unfinished.is_in_hand(place, offset):
            return
        self.unfinished.keep_back(place, offset)
        if self.unfinished.is_sought_before(place, offset):
            return
        again = self.intake.back_to({place: offset})
        self._go_back(self.ahead.returned, again, self.unfinished.without([place]))

    def pause(self, places: Sequence[Where]) -> None:
        """Nothing more of these is handed out; what was taken already is read again on resume."""
        self._read_again(places)
        with kafka_errors(self._plan.bootstrap, "the assignment"):
            self.paused.pause(places)

    def bar(self, places: Collection[Where]) -> None:
        """The same, of exactly these, whatever the user pauses and resumes."""
        self._read_again(places)
        self.paused.bar(places)

    def resume(self, places: Iterable[Where]) -> None:
        with kafka_errors(self._plan.bootstrap, "the assignment"):
            self.paused.resume(places)

    @property
    def joined(self) -> bool:
        """Whether an assignment has come, be it an empty one."""
        return self._plan.group is None or self.membership.rebalances > 0

    @property
    def owned(self) -> list[Where]:
        return sorted(self._owned)

    def close(self, *, in_hand: int) -> None:
        """Commit and leave. The last `in_hand` of what was handed out do not count as worked on."""
        if self.closed:
            return
        self.unfinished.finish(in_hand)
        try:
            self.membership.reconcile()
            self.membership.note_begun()
            if self._ahead:
                self.commits.end(self.raw, self.ahead.not_handed_out(self.intake), self._before_end)
            else:
                self.commit()
        finally:
            self.closed = self.membership.closed = True
            self.raw.close()
