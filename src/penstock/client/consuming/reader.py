"""The heart of both consumers: takes messages from librdkafka, and commits before or after they are worked on.

A step of the loop, and what a crash at that point means:

    refill      messages are taken                      nothing is committed: they come again
    precommit   at-most-once: committed up to their end  what was taken but not worked on is lost
    (the body runs)
    finish      at-least-once: positions move           not committed yet: they come again
    commit      at-least-once: positions are committed  from here on they do not come again

When partitions are revoked, exactly what was worked on is committed, also under at-most-once, where that takes a
commit back. When they are lost (this member was expelled), nothing is: another member owns them by then.

An exception (an error of the broker's, Ctrl-C) may come out of any step. Who goes on afterwards misses nothing: what
was taken stays in the intake, positions stay until their commit was sent, and a partition whose assignment went wrong
is not read before it was put right.
One thread at a time may use a reader.
"""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from confluent_kafka import Consumer as RawConsumer
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from penstock.client.connect import handle_settings, reach
from penstock.client.consuming.ahead import Ahead
from penstock.client.consuming.alone import Alone
from penstock.client.consuming.beginning import Beginning
from penstock.client.consuming.commits import Commits, Plan
from penstock.client.consuming.intake import Intake
from penstock.client.consuming.paused import PausedPartitions
from penstock.client.consuming.reader_errors import PASSING
from penstock.client.consuming.starting import RESET_POLICY, is_simple
from penstock.client.consuming.unfinished import Unfinished, Where, first_offsets, place_of, where
from penstock.client.errors import ClientError, explained, kafka_errors

if TYPE_CHECKING:
    from confluent_kafka import Message as RawMessage

# Signals are noticed between waits: librdkafka does not let Python run while it waits.
WAIT_SECONDS = 0.2
# While a batch is worked on for long, the group is attended to so often.
ATTEND_SECONDS = 0.5


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
        self._assigned = assigned
        self._forgotten = forgotten
        self._before_end = before_end
        self._ahead = plan.delivery == "at-most-once"
        self._owned: set[Where] = set()
        # Those that met their end since they are ours; known where `enable.partition.eof` is set.
        self.at_end: set[Where] = set()
        self.unfinished = Unfinished(self._owned)
        self.commits = Commits(plan, self._owned, self.unfinished, before_commit)
        self.rebalances = 0  # how often partitions came or went
        self._attended_at = self._committed_at = time.monotonic()
        self._failure: ClientError | None = None
        self._unready: set[Where] = set()  # ours, but where to begin is not known yet
        self._beginning = Beginning(plan, retries, self.commits)
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
        strategy = str(plan.settings.get("partition.assignment.strategy", ""))
        self._cooperative = "cooperative" in strategy or plan.settings.get("group.protocol") == "consumer"

    # Joining

    def open(self, topics: Sequence[str]) -> None:
        with kafka_errors(self._plan.bootstrap, ", ".join(topics)):
            if self._plan.group is None:
                self._alone.open(topics)
                return
            self._beginning.look(self.raw)
            self.raw.subscribe(
                list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )

    def _on_assign(self, raw: RawConsumer, partitions: list[TopicPartition]) -> None:
        self.rebalances += 1
        places = [place_of(partition) for partition in partitions]
        self._owned.update(places)
        self.intake.rebalanced()
        chosen = partitions
        if self._assigned is not None or not is_simple(self._plan.start):
            self._unready.update(places)
            try:
                chosen = self._prepared(raw, partitions)
            except (KafkaException, ClientError) as error:
                # Raised in a callback it would be lost: it is told by the loop, which then tries again.
                self.fail(error, "the assignment")
        if self._cooperative:
            raw.incremental_assign(chosen)
        else:
            raw.assign(chosen)
        self.paused.assigned(places)

    def fail(self, error: KafkaException | ClientError, subject: str = "") -> None:
        """The next step of the loop says so."""
        if isinstance(error, KafkaException):
            error = explained(error, bootstrap=self._plan.bootstrap, subject=subject)
        self._failure = self._failure or error

    def _prepared(self, raw: RawConsumer, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Partitions with the offset where they begin; ready to be read."""
        chosen = partitions if is_simple(self._plan.start) else self._beginning.find(raw, partitions)
        if self._assigned is not None:
            self._assigned(self, partitions)
        self._unready.difference_update(map(place_of, partitions))
        return chosen

    def _reconcile(self) -> None:
        """A callback that was cut short may not have noted what came and went; librdkafka has."""
        if not self.intake.cut_short or self._plan.group is None:
            return
        with kafka_errors(self._plan.bootstrap, "the assignment"):
            assigned = set(map(place_of, self.raw.assignment()))
            self.rebalances += bool(assigned)
            self._forget(self._owned - assigned)
            self._unready |= assigned - self._owned
            self._owned |= assigned
            self.paused.assigned(assigned)

    def _make_ready(self) -> None:
        """What went wrong when partitions were assigned, or where a poll was cut short, is done again."""
        self._reconcile()
        self._unready |= self.intake.mend()
        self._unready &= self._owned
        if self._unready:
            self._make_begin()
        self._tell_begun()

    def _make_begin(self) -> None:
        partitions = [TopicPartition(*place) for place in sorted(self._unready)]
        with kafka_errors(self._plan.bootstrap, "the assignment"):
            begun = self._beginning.find(self.raw, partitions)
            self.intake.drop(self._unready)
            for partition in begun:
                self.intake.read_again(place_of(partition), partition.offset)
            self._prepared(self.raw, partitions)

    def _tell_begun(self) -> None:
        """Before anything of them is handed out: from here on their next owner begins there, too."""
        begun = self._beginning.untold
        if begun and self.commits.send(self.raw, dict(begun)):
            begun.clear()
        self._note_begun()

    def _note_begun(self) -> None:
        """What could not be committed at once is with the next commit."""
        positions = self.ahead.returned if self._ahead else self.unfinished.positions
        for place, offset in self._beginning.untold.items():
            positions.setdefault(place, offset)
        self._beginning.untold.clear()

    def _on_revoke(self, _: RawConsumer, partitions: list[TopicPartition]) -> None:
        self.rebalances += 1
        gone = [place_of(partition) for partition in partitions]
        try:
            if not self.closed:
                self._leave(gone)
        except ClientError as error:
            self.fail(error, "the revocation")
        finally:
            self._forget(gone)

    def _on_lost(self, _: RawConsumer, partitions: list[TopicPartition]) -> None:
        self.rebalances += 1
        gone = [place_of(partition) for partition in partitions]
        self.unfinished.finish()
        self._forget(gone)

    def _forget(self, gone: Collection[Where]) -> None:
        self._unready.difference_update(gone)
        self.at_end.difference_update(gone)
        self.intake.rebalanced(gone)
        self.paused.forget(gone)
        self.unfinished.forget(gone)
        self._beginning.forget(gone)
        for place in gone:
            self.commits.forget(place)
            self.ahead.returned.pop(place, None)
        # At-most-once they are committed, and come to nobody else.
        if self._forgotten is not None and not self._ahead:
            self._forgotten(gone)
        self._owned.difference_update(gone)  # last: what is cut short before is done again

    def _leave(self, gone: Collection[Where]) -> None:
        """Commit exactly what was worked on. Runs between two bodies: what was handed out is finished."""
        self.unfinished.finish()
        self._note_begun()
        positions = self.ahead.not_handed_out(self.intake) if self._ahead else self.unfinished.positions
        going = {place: offset for place, offset in positions.items() if place in gone}
        if self._ahead:
            try:
                self.commits.send_back(self.raw, going)
            except ClientError as error:
                self.fail(error)
            self.commits.wait()  # their next owner looks which keys wait: those on their way must be there
        else:
            self.commits.send(self.raw, going)

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
        return self.ahead.promise(self.raw, self.intake, count)

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
        self._raise_failure()
        self._make_ready()
        with kafka_errors(self._plan.bootstrap, ", ".join(self._plan.topics)):
            if self._plan.group is None:
                self._alone.look()
            self.intake.return_back()
            wait = self.paused.resume_due(wait)
            self.intake.poll(most, wait)
        self._attended_at = time.monotonic()
        for raw in self.intake.take_errors():
            self._note_error(raw)
        self._raise_failure()
        self._make_ready()  # a rebalance may have come with the messages
        with kafka_errors(self._plan.bootstrap, ", ".join(self._plan.topics)):
            fresh = self._admitted(self.intake.inbox)
        is_left = self.unfinished.index < len(self.unfinished.raws)
        hold = self._ahead and (hold or (self.ahead.held and is_left))
        returned: dict[Where, int] | None = self.ahead.returned
        if fresh and self._ahead and not hold:
            returned = self.ahead.precommit(self.raw, self.intake, fresh)
        taken = bool(fresh) and returned is not None
        if taken:
            self.ahead.held |= hold  # before they are there
            self.unfinished.refill(fresh, self.intake.inbox)
            self.ahead.returned, self.ahead.held = returned or {}, hold
        self.intake.inbox = []
        return taken

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
            self.at_end.add(where(raw))
        elif error.code() not in PASSING:
            self.fail(KafkaException(error), raw.topic() or ", ".join(self._plan.topics))

    def _raise_failure(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    # Committing

    def _commit_due(self) -> bool:
        return time.monotonic() - self._committed_at >= self._plan.commit_seconds

    def commit(self, *, asynchronous: bool = False) -> None:
        """Commit what is finished. At-most-once has committed it before: a commit now could only go back. But what
        was passed on may have been refused, and with nothing new to read nobody else would send it again."""
        self._reconcile()
        self._committed_at = time.monotonic()
        positions = dict(self.unfinished.positions)
        if self._ahead:
            self.commits.wait()
        # What could not be committed stays to be committed, unless its partition goes.
        if self._ahead or self.commits.send(self.raw, positions, asynchronous=asynchronous):
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
        for place, offset in self.unfinished.pending_of(places).items():
            if self._ahead:
                self.ahead.returned.setdefault(place, offset)
            self.intake.read_again(place, offset)
        self.unfinished.drop(places)

    def try_again(self, place: Where, offset: int, wait_seconds: float) -> None:
        """Hand out a message again after a while, and nothing of its partition before; its position stays."""
        self.unfinished.pin(place, offset)
        if self._ahead:
            self.ahead.returned[place] = offset
        self.intake.read_again(place, offset)
        self.unfinished.drop([place])
        with kafka_errors(self._plan.bootstrap, "the assignment"):
            self.paused.until(place, offset, wait_seconds)

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
        return self._plan.group is None or self.rebalances > 0

    @property
    def owned(self) -> list[Where]:
        return sorted(self._owned)

    def close(self, *, in_hand: int) -> None:
        """Commit and leave. The last `in_hand` of what was handed out do not count as worked on."""
        if self.closed:
            return
        self.unfinished.finish(in_hand)
        try:
            self._reconcile()
            self._note_begun()
            if self._ahead:
                self.commits.end(self.raw, self.ahead.not_handed_out(self.intake), self._before_end)
            else:
                self.commit()
        finally:
            self.closed = True
            self.raw.close()
