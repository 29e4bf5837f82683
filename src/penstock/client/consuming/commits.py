"""How a consumer's positions are committed, and what becomes of commits that fail.

One that is refused because its topic or partition is not there is no reason to stop: the poll that would tell the group
of a deletion comes behind it. Those of the other partitions count, and its own is made again with the next, until the
partition is taken away (or is known again: a coordinator may hear of a topic late).
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from penstock.client.consuming.reader_errors import NOT_OURS, UNKNOWN
from penstock.client.consuming.starting import Start
from penstock.client.consuming.unfinished import Unfinished, Where, place_of
from penstock.client.errors import ClientError, explained
from penstock.client.profiles import Delivery, check_delivery

if TYPE_CHECKING:
    from confluent_kafka import Consumer as RawConsumer

logger = logging.getLogger("penstock.client")


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


def check_plan(
    topics: Sequence[str], group: str | None, delivery: str, retry: object, batch_messages: int
) -> None:
    check_delivery(delivery)
    if not topics:
        raise ClientError("no topics to read: Consumer(bootstrap, 'orders')")
    if retry is not None and group is None:
        raise ClientError("retry needs a group: its retry and dead-letter topics carry the group's name")
    if batch_messages < 1:
        raise ClientError(f"batch_messages={batch_messages}: at least one message is taken at a time")


class Commits:
    def __init__(
        self, plan: Plan, owned: set[Where], unfinished: Unfinished, before: Callable[[], None] | None
    ) -> None:
        """`before` must be done before any position moves."""
        self._plan = plan
        self._owned = owned
        self._unfinished = unfinished
        self._before = before
        self._sent: dict[Where, int] = {}  # the last position each partition was asked to be committed at
        self._notes: dict[Where, tuple[int, str]] = {}
        self.missing: set[Where] = set()  # refused as unknown, and told so
        self.told_deleted: set[str] = set()  # topics
        self.topic_notes: dict[str, str] = {}  # metadata that goes with every other commit of a topic
        self._unsure = False  # an asynchronous commit was refused for some partition that is unknown
        self.default_note = ""  # and where there is none for a topic

    def note(self, place: Where, offset: int, text: str) -> None:
        """Metadata that goes with every commit of a partition at that offset."""
        self._notes[place] = (offset, text)

    def forget(self, place: Where) -> None:
        """It is not ours any more: how an old commit ended says nothing about what the next owner committed."""
        self._notes.pop(place, None)
        self._sent.pop(place, None)
        self.missing.discard(place)

    def wait(self) -> None:
        if self._before is not None:
            self._before()

    def send(
        self, raw: "RawConsumer", positions: dict[Where, int], *, asynchronous: bool = False
    ) -> Collection[Where]:
        """The partitions whose position was committed, or sent: none when they are not ours any more, and not those
        that are unknown."""
        if not positions or self._plan.group is None:
            return positions.keys()
        self.wait()
        return self.send_back(raw, positions, asynchronous=asynchronous)

    def send_back(
        self, raw: "RawConsumer", positions: dict[Where, int], *, asynchronous: bool = False
    ) -> Collection[Where]:
        """The same where it only goes back: whatever waits to be done was passed before."""
        if not positions or self._plan.group is None:
            return positions.keys()
        offsets = [
            TopicPartition(*place, offset, self._note_at(place, offset))
            for place, offset in positions.items()
        ]
        self._sent.update(positions)
        try:
            if asynchronous and not self._unsure:
                raw.commit(offsets=offsets, asynchronous=True)
                return positions.keys()
            failed = _commit(raw, offsets)
        except KafkaException as error:
            if error.args[0].code() in NOT_OURS:
                return ()
            if asynchronous and self._unsure:
                logger.warning(
                    "a commit of group %s failed and will be made again: %s", self._plan.group, error
                )
                return ()
            raise self._explained(error) from error
        self._tell_missing(failed)
        self._unsure = False
        committed = positions.keys() - failed
        self.missing -= committed
        return committed

    def _explained(self, error: KafkaException) -> ClientError:
        return explained(error, bootstrap=self._plan.bootstrap, subject=f"group {self._plan.group}")

    def _tell_missing(self, places: Iterable[Where]) -> None:
        for place in sorted(set(places) - self.missing):
            self.missing.add(place)
            logger.warning(
                "group %s cannot commit its place in %s, partition %d: there is no such topic or partition any more",
                self._plan.group,
                *place,
            )

    def tell_deleted(self, topic: str) -> None:
        if topic not in self.told_deleted:
            self.told_deleted.add(topic)
            logger.warning("group %s reads on without topic %s: it was deleted", self._plan.group, topic)

    def end(
        self, raw: "RawConsumer", positions: dict[Where, int], before_end: Callable[[], None] | None
    ) -> None:
        """At-most-once, for the last time. What was refused is committed already, and gets its last try also where
        nothing can be committed any more."""
        try:
            self.send_back(raw, positions)
        finally:
            if before_end is not None:
                before_end()
            self.wait()

    def _note_at(self, place: Where, offset: int) -> str:
        at, text = self._notes.get(place, (None, ""))
        return text if at == offset else self.topic_notes.get(place[0], self.default_note)

    def ended(self, error: KafkaError | None, offsets: list[TopicPartition]) -> None:
        """How an asynchronous commit ended: one that failed is made again, unless a later one was sent."""
        for offset in offsets:
            place = (offset.topic, offset.partition)
            failed = error is not None or offset.error is not None
            if failed and place in self._owned and self._sent.get(place) == offset.offset:
                self._unfinished.positions.setdefault(place, offset.offset)
        # Which of them are unknown it does not say: where one was refused, librdkafka gives each that error. The next
        # commit is one that is waited for, whose answer says.
        unsure = error is not None and error.code() in UNKNOWN
        self._unsure |= unsure
        if error is not None and not unsure and error.code() not in NOT_OURS:
            logger.warning("a commit of group %s failed and will be made again: %s", self._plan.group, error)


def _commit(raw: "RawConsumer", offsets: list[TopicPartition]) -> set[Where]:
    """Gives those that are unknown; whatever else a partition is refused for is raised."""
    try:
        answer = raw.commit(offsets=offsets, asynchronous=False) or ()
    except KafkaException as error:
        # librdkafka raises the last refusal where all were refused, be it for other reasons.
        if error.args[0].code() not in UNKNOWN:
            raise
        if len(offsets) == 1:
            return {place_of(offsets[0])}
        return {place for offset in offsets for place in _commit(raw, [offset])}
    refused = {place_of(partition): partition.error for partition in answer if partition.error is not None}
    for refusal in refused.values():
        if refusal.code() not in UNKNOWN:
            raise KafkaException(refusal)
    return set(refused)
