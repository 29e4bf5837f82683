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

from penstock.client.commits import Commits, Plan
from penstock.client.connect import handle_settings, reach
from penstock.client.errors import ClientError, explained, kafka_errors
from penstock.client.holding import Holding
from penstock.client.intake import Intake
from penstock.client.reader_errors import PASSING
from penstock.client.starting import begin_at, is_simple, reset_policy, told
from penstock.client.window import Where, Window, place_of, where

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
    ) -> None:
        """`admit` may keep messages back, `before_commit` must be done before any position moves, `assigned`
        sees partitions before their first message, `forgotten` those that went away uncommitted."""
        self._plan = plan
        self._admit = admit
        self._assigned = assigned
        self._forgotten = forgotten
        self._ahead = plan.delivery == "at-most-once"
        self._owned: set[Where] = set()
        # Those that met their end since they are ours; known where `enable.partition.eof` is set.
        self.at_end: set[Where] = set()
        self.window = Window(self._owned)
        self.commits = Commits(plan, self._owned, self.window, before_commit)
        self._rebalances = 0
        self._attended_at = self._committed_at = time.monotonic()
        self._failure: ClientError | None = None
        self._unready: set[Where] = set()  # ours, but where to begin is not known yet
        self._begun: dict[Where, int] = {}  # where reading began, of partitions that had no commit then
        # At-most-once: the first offset that was, or may have been, committed and then not handed out.
        self._returned: dict[Where, int] = {}
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
                        "on_commit": self.commits.ended,
                        **plan.settings,
                    },
                )
            )
        self.intake = Intake(self.raw, self._owned, self.window)
        self.holding = Holding(self.raw, self._owned, self.intake)
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
            begun = begin_at(self.raw, self._plan.start, found)
            self.raw.assign(begun)
        self._owned.update(map(place_of, found))
        for one in begun:
            self.window.moved(place_of(one), one.offset)

    def _on_assign(self, raw: RawConsumer, partitions: list[TopicPartition]) -> None:
        self._rebalances += 1
        places = [place_of(one) for one in partitions]
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
        self.holding.assigned(places)

    def fail(self, error: KafkaException | ClientError, subject: str = "") -> None:
        """The next step of the loop says so."""
        if isinstance(error, KafkaException):
            error = explained(error, bootstrap=self._plan.bootstrap, subject=subject)
        self._failure = self._failure or error

    def _prepared(self, raw: RawConsumer, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Partitions with the offset where they begin; ready to be read."""
        chosen = partitions if is_simple(self._plan.start) else self._begin(raw, partitions)
        if self._assigned is not None:
            self._assigned(self, partitions)
        self._unready.difference_update(map(place_of, partitions))
        return chosen

    def _make_ready(self) -> None:
        """What went wrong when partitions were assigned, or where a poll was cut short, is done again."""
        self._unready |= self.intake.mend()
        self._unready &= self._owned
        if not self._unready:
            return
        partitions = [TopicPartition(*place) for place in sorted(self._unready)]
        with kafka_errors(self._plan.bootstrap, "the assignment"):
            begun = self._begin(self.raw, partitions)
            self.intake.drop(self._unready)
            for one in begun:
                self.intake.read_again(place_of(one), one.offset)
            self._prepared(self.raw, partitions)

    def _begin(self, raw: RawConsumer, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Where the group stands; else where reading began, which is found once for as long as they are ours."""
        committed = told(raw.committed(partitions, timeout=30))
        new = [one for one in committed if one.offset < 0 and place_of(one) not in self._begun]
        # What waits in a retry topic was put there by this group: it is never behind the start.
        retries = [one for one in new if one.topic not in self._plan.topics]
        begun = begin_at(raw, self._plan.start, [one for one in new if one.topic in self._plan.topics])
        begun += begin_at(raw, "earliest", retries)
        self._begun.update({place_of(one): one.offset for one in begun})
        for one in committed:
            if one.offset < 0:
                one.offset = self._begun[place_of(one)]
        return committed

    def _on_revoke(self, _: RawConsumer, partitions: list[TopicPartition]) -> None:
        self._rebalances += 1
        gone = [place_of(one) for one in partitions]
        try:
            if not self.closed:
                self._leave(gone)
        except ClientError as error:
            self.fail(error, "the revocation")
        finally:
            self._forget(gone)

    def _on_lost(self, _: RawConsumer, partitions: list[TopicPartition]) -> None:
        self._rebalances += 1
        gone = [place_of(one) for one in partitions]
        self.window.finish()
        self._forget(gone)

    def _forget(self, gone: list[Where]) -> None:
        self._owned.difference_update(gone)
        self._unready.difference_update(gone)
        self.at_end.difference_update(gone)
        self.intake.rebalanced(gone)
        self.holding.forget(gone)
        self.window.forget(gone)
        for place in gone:
            self.commits.forget(place)
            self._returned.pop(place, None)
            self._begun.pop(place, None)
        if (
            self._forgotten is not None and not self._ahead
        ):  # at-most-once they are committed, and come to nobody else
            self._forgotten(gone)

    def _leave(self, gone: Iterable[Where]) -> None:
        """Commit exactly what was worked on. Runs between two bodies: what was handed out is finished."""
        gone = set(gone)
        self.window.finish()
        positions = self._not_handed_out() if self._ahead else self.window.positions
        self.commits.send(self.raw, {place: offset for place, offset in positions.items() if place in gone})

    def _not_handed_out(self) -> dict[Where, int]:
        """At-most-once: where partitions stand of which more was committed than handed out."""
        pending = self.window.pending()
        return pending | {
            place: min(offset, pending.get(place, offset)) for place, offset in self._returned.items()
        }

    # Taking messages

    def refill(self, wait: float = WAIT_SECONDS) -> bool:
        """Everything handed out is finished; take more. False when there was nothing."""
        self.window.finish()
        if not self._ahead and self._commit_due():
            self.commit(asynchronous=self._plan.commit_seconds > 0)
        return self._take(self._plan.batch_messages, wait)

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
            self._take(1, 0)
        elif self._plan.group is not None:
            # One message at most, and committed before it joins the others.
            self._take(1, 0)

    def _take(self, most: int, wait: float) -> bool:
        """From librdkafka into the window, by way of the inbox: what raises on the way is told, and nothing is lost."""
        if self.window.took is self.intake.inbox:  # interrupted just then: they are not taken twice
            self.intake.inbox = []
        self._raise_failure()
        self._make_ready()
        with kafka_errors(self._plan.bootstrap, ", ".join(self._plan.topics)):
            self.intake.return_back()
            wait = self.holding.resume_due(wait)
            self.intake.poll(most, wait)
        self._attended_at = time.monotonic()
        for raw in self.intake.take_errors():
            self._note_error(raw)
        self._raise_failure()
        self._make_ready()  # a rebalance may have come with the messages
        fresh = self.intake.inbox
        if self.holding.active:
            fresh = self.holding.without_held(fresh)
        if self._admit is not None:
            fresh = self._admit(self, fresh)
        returned: dict[Where, int] | None = {}
        if fresh and self._ahead:
            returned = self._precommit(fresh)
        taken = bool(fresh) and returned is not None
        if taken:
            self.window.refill(fresh, self.intake.inbox)
            self._returned = returned or {}
        self.intake.inbox = []
        return taken

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

    def _precommit(self, fresh: "list[RawMessage]") -> dict[Where, int] | None:
        """At-most-once: the commit comes first. What could not be committed is not worked on but read again.

        Gives what is still returned once they are in the window."""
        if self._plan.group is None:
            return {}
        ends: dict[Where, int] = {}
        starts: dict[Where, int] = {}
        for raw in fresh:
            place, offset = where(raw), raw.offset()
            assert offset is not None
            starts.setdefault(place, offset)
            ends[place] = offset + 1
        # Until they are in the window: a commit that raises may have been made.
        self._returned = starts | self._returned
        if self.commits.send(self.raw, ends):
            return {place: offset for place, offset in self._returned.items() if place not in ends}
        for place, offset in starts.items():
            if place in self._owned:
                self.intake.read_again(place, offset)
        return None

    def _commit_due(self) -> bool:
        return time.monotonic() - self._committed_at >= self._plan.commit_seconds

    def commit(self, *, asynchronous: bool = False) -> None:
        """Commit what is finished. At-most-once has committed it before: a commit now could only go back."""
        self._committed_at = time.monotonic()
        positions = dict(self.window.positions)
        # What could not be committed stays to be committed, unless its partition goes.
        if self._ahead or self.commits.send(self.raw, positions, asynchronous=asynchronous):
            self.window.sent(positions)

    # Moving about

    def seek(self, one: TopicPartition) -> None:
        place = place_of(one)
        self._read_again([place])
        with kafka_errors(self._plan.bootstrap, f"{one.topic}, partition {one.partition}"):
            self.intake.seek(place, one.offset)

    def _read_again(self, places: Iterable[Where]) -> None:
        """What was taken of these and not handed out is not, until it is read again."""
        for place, offset in self.window.pending_of(places).items():
            if self._ahead:
                self._returned.setdefault(place, offset)
            self.intake.read_again(place, offset)
        self.window.drop(places)

    def try_again(self, place: Where, offset: int, wait_seconds: float) -> None:
        """Hand out a message again after a while, and nothing of its partition before; its position stays."""
        self.window.pin(place, offset)
        if self._ahead:
            self._returned[place] = offset
        self.intake.read_again(place, offset)
        self.window.drop([place])
        self.holding.until(place, offset, wait_seconds)

    def pause(self, places: Sequence[Where]) -> None:
        """Nothing more of these is handed out; what was taken already is read again on resume."""
        self._read_again(places)
        self.holding.pause(places)

    def resume(self, places: Iterable[Where]) -> None:
        self.holding.resume(places)

    @property
    def joined(self) -> bool:
        """Whether an assignment has come, be it an empty one."""
        return self._plan.group is None or self._rebalances > 0

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
                self.commits.send(self.raw, self._not_handed_out())
            else:
                self.commit()
        finally:
            self.closed = True
            self.raw.close()
