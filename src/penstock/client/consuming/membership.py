"""A consumer's place in its group: which partitions are its own, and what is to be done as they come and go.

    assigned    where they begin is found before anything of them is handed out
    revoked     exactly what was worked on is committed, also under at-most-once, where that takes a commit back
    lost        (this member was expelled) nothing is committed: another member owns them by then

librdkafka tells of it in callbacks, between two bodies. An exception that is raised in one is lost, so the next step of
the loop raises it; and what a callback left undone, because of that or of Ctrl-C, is done then (`make_ready`).

A topic that was just deleted does not stop those who read others beside it: the poll that takes it away comes behind
the question where it begins. So the others begin, it is asked again now and then, and nothing of it is handed out.
"""

import logging
import time
from collections.abc import Callable, Collection, Sequence

from confluent_kafka import Consumer as RawConsumer
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from penstock.client.consuming.ahead import Ahead
from penstock.client.consuming.beginning import Beginning
from penstock.client.consuming.commits import Commits, Plan
from penstock.client.consuming.intake import Intake
from penstock.client.consuming.paused import PausedPartitions
from penstock.client.consuming.reader_errors import UNKNOWN, Failure
from penstock.client.consuming.starting import is_simple
from penstock.client.consuming.unfinished import Unfinished, Where, place_of
from penstock.client.errors import ClientError, kafka_errors

logger = logging.getLogger("penstock.client")

# Where there is no such topic or partition, before it is asked again: the others are not kept waiting by it.
_UNKNOWN_SECONDS = 1.0


class Membership:
    def __init__(
        self,
        plan: Plan,
        raw: RawConsumer,
        *,
        owned: set[Where],
        unfinished: Unfinished,
        commits: Commits,
        ahead: Ahead,
        intake: Intake,
        paused: PausedPartitions,
        failure: Failure,
        assigned: Callable[[list[TopicPartition]], None] | None,
        forgotten: Callable[[Collection[Where]], None] | None,
        retries: Collection[str],
    ) -> None:
        """`owned` is changed in place: others look at it, too. For the last three see `Reader`."""
        self._plan = plan
        self._raw = raw
        self._owned = owned
        self._unfinished = unfinished
        self._commits = commits
        self._ahead = ahead
        self._intake = intake
        self._paused = paused
        self._failure = failure
        self._assigned = assigned
        self._forgotten = forgotten
        self._at_most_once = plan.delivery == "at-most-once"
        strategy = str(plan.settings.get("partition.assignment.strategy", ""))
        self._cooperative = "cooperative" in strategy or plan.settings.get("group.protocol") == "consumer"
        self._beginning = Beginning(plan, retries, commits)
        self._unready: set[Where] = set()  # ours, but where to begin is not known yet
        self._missing: set[Where] = set()  # of those, the ones that there are not
        self._missing_until = 0.0  # when they are asked for again
        # Those that met their end since they are ours; known where `enable.partition.eof` is set.
        self.at_end: set[Where] = set()
        self.seen: set[str] = set()  # topics of which partitions were assigned
        self.rebalances = 0  # how often partitions came or went
        self.closed = False  # what was worked on is committed already

    def join(self, topics: Sequence[str]) -> None:
        self._beginning.look(self._raw)
        self._raw.subscribe(
            list(topics), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def _on_assign(self, raw: RawConsumer, partitions: list[TopicPartition]) -> None:
        self.rebalances += 1
        places = [place_of(partition) for partition in partitions]
        self._owned.update(places)
        self.seen.update(place[0] for place in places)
        self._commits.told_deleted -= {place[0] for place in places}
        self._intake.rebalanced()
        chosen = partitions
        if self._assigned is not None or not is_simple(self._plan.start):
            self._unready.update(places)
            try:
                chosen = self._prepared(raw, partitions)
            except (KafkaException, ClientError) as error:
                # Raised in a callback it would be lost: it is told by the loop, which then tries again.
                if not _is_unknown(error):
                    self._failure.note(error, "the assignment")
        if self._cooperative:
            raw.incremental_assign(chosen)
        else:
            raw.assign(chosen)
        self._paused.assigned(places)

    def _prepared(self, raw: RawConsumer, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Partitions with the offset where they begin; ready to be read."""
        chosen = partitions if is_simple(self._plan.start) else self._beginning.find(raw, partitions)
        if self._assigned is not None:
            self._assigned(partitions)
        self._unready.difference_update(map(place_of, partitions))
        return chosen

    def reconcile(self) -> None:
        """A callback that was cut short may not have noted what came and went; librdkafka has."""
        if not self._intake.cut_short or self._plan.group is None:
            return
        with kafka_errors(self._plan.bootstrap, "the assignment"):
            assigned = set(map(place_of, self._raw.assignment()))
            self.rebalances += bool(assigned)
            self._forget(self._owned - assigned)
            self._unready |= assigned - self._owned
            self._owned |= assigned
            self.seen.update(place[0] for place in assigned)
            self._paused.assigned(assigned)

    def make_ready(self) -> None:
        """What went wrong when partitions were assigned, or where a poll was cut short, is done again."""
        self.reconcile()
        self._unready |= self._intake.mend()
        self._unready &= self._owned
        if self._unready:
            self._make_begin()
        self._tell_begun()

    def _make_begin(self) -> None:
        self._missing &= self._unready
        if self._missing and time.monotonic() >= self._missing_until:
            wanted = self._unready
        else:
            wanted = self._unready - self._missing
        with kafka_errors(self._plan.bootstrap, "the assignment"):
            begun = self._found([TopicPartition(*place) for place in sorted(wanted)])
            self._intake.drop(self._unready)
            for partition in begun:
                self._intake.read_again(place_of(partition), partition.offset)
            places = {place_of(partition) for partition in begun}
            if begun and self._assigned is not None:
                self._assigned([TopicPartition(*place) for place in sorted(places)])
            self._unready -= places
            self._missing -= places

    def _found(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """With the offsets where they begin, those that there are."""
        if not partitions:
            return []
        try:
            return self._beginning.find(self._raw, partitions)
        except KafkaException as error:
            if not _is_unknown(error):
                raise
        if len(partitions) > 1:
            return [found for partition in partitions for found in self._found([partition])]
        place = place_of(partitions[0])
        if place not in self._missing:
            logger.warning(
                "where to begin in %s, partition %d, is asked again: there is no such topic or partition",
                *place,
            )
        self._missing.add(place)
        self._missing_until = time.monotonic() + _UNKNOWN_SECONDS
        return []

    def _tell_begun(self) -> None:
        """Before anything of them is handed out: from here on their next owner begins there, too."""
        begun = self._beginning.untold
        if begun:
            for place in list(self._commits.send(self._raw, dict(begun))):
                del begun[place]
        self.note_begun()

    def note_begun(self) -> None:
        """What could not be committed at once is with the next commit."""
        positions = self._ahead.returned if self._at_most_once else self._unfinished.positions
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
            self._failure.note(error, "the revocation")
        finally:
            self._forget(gone)

    def _on_lost(self, _: RawConsumer, partitions: list[TopicPartition]) -> None:
        self.rebalances += 1
        gone = [place_of(partition) for partition in partitions]
        self._unfinished.finish()
        self._forget(gone)

    def _forget(self, gone: Collection[Where]) -> None:
        self._unready.difference_update(gone)
        self.at_end.difference_update(gone)
        self._intake.rebalanced(gone)
        self._paused.forget(gone)
        self._unfinished.forget(gone)
        self._beginning.forget(gone)
        for place in gone:
            self._commits.forget(place)
            self._ahead.returned.pop(place, None)
        # At-most-once they are committed, and come to nobody else.
        if self._forgotten is not None and not self._at_most_once:
            self._forgotten(gone)
        self._owned.difference_update(gone)  # last: what is cut short before is done again

    def _leave(self, gone: Collection[Where]) -> None:
        """Commit exactly what was worked on. Runs between two bodies: what was handed out is finished."""
        self._unfinished.finish()
        self.note_begun()
        positions = (
            self._ahead.not_handed_out(self._intake) if self._at_most_once else self._unfinished.positions
        )
        going = {place: offset for place, offset in positions.items() if place in gone}
        if self._at_most_once:
            try:
                self._commits.send_back(self._raw, going)
            except ClientError as error:
                self._failure.note(error)
            self._commits.wait()  # their next owner looks which keys wait: those on their way must be there
        else:
            self._commits.send(self._raw, going)


def _is_unknown(error: KafkaException | ClientError) -> bool:
    code = error.code if isinstance(error, ClientError) else error.args[0].code()
    return code in UNKNOWN or code == KafkaError._UNKNOWN_PARTITION  # noqa: SLF001
