"""Partitions that are not read for a while: paused by the user, barred, or until the time of a message has come.

librdkafka remembers what is paused also when a partition leaves and comes back, so whoever is assigned one says anew
whether it is to be read.
"""

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition

from penstock.client.consuming.intake import Intake
from penstock.client.consuming.unfinished import Where, where

if TYPE_CHECKING:
    from confluent_kafka import Consumer as RawConsumer
    from confluent_kafka import Message as RawMessage


class PausedPartitions:
    def __init__(self, raw: "RawConsumer", owned: set[Where], intake: Intake) -> None:
        self._raw = raw
        self._owned = owned
        self._intake = intake
        self.by_user: set[Where] = set()  # by the user; those that are not owned, too
        self._barred: set[Where] = set()
        self._due: dict[Where, float] = {}  # on the monotonic clock

    @property
    def active(self) -> bool:
        return bool(self.by_user or self._due or self._barred)

    def holds(self, place: Where) -> bool:
        return place in self.by_user or place in self._due or place in self._barred

    def without_held(self, raws: "list[RawMessage]") -> "list[RawMessage]":
        """librdkafka may still have had some of a paused partition in hand: they are read again later."""
        kept: list[RawMessage] = []
        held: set[Where] = set()
        for raw in raws:
            place = where(raw)
            if self.holds(place):
                held.add(place)
                self._intake.read_again(place, raw.offset())  # type: ignore[arg-type]
            else:
                kept.append(raw)
        if held:
            self._raw.pause(_partitions(held))  # the call that should have done so may have failed
        return kept

    def pause(self, places: Iterable[Where]) -> None:
        wanted = list(places)
        self.by_user.update(wanted)
        self._raw.pause(_partitions(place for place in wanted if place in self._owned))

    def resume(self, places: Iterable[Where]) -> None:
        self.by_user.difference_update(places)
        self._let_go()

    def bar(self, places: Iterable[Where]) -> None:
        """Read nothing of these until another call leaves them out."""
        self._barred = set(places)
        self._raw.pause(_partitions(self._barred & self._owned))
        self._let_go()

    def until(self, place: Where, offset: int, wait_seconds: float) -> None:
        """Read this partition again from `offset`, after a while."""
        self._intake.read_again(place, offset)
        self._due[place] = time.monotonic() + wait_seconds
        self._raw.pause(_partitions([place]))

    def resume_due(self, wait: float) -> float:
        """Let go of what is due; gives how long a wait may be so that nothing is late."""
        if not self._due:
            return wait
        now = time.monotonic()
        ready = {place for place, due in self._due.items() if due <= now}
        if ready:
            self._raw.resume(_partitions(ready - self.by_user - self._barred))
            for place in ready:
                del self._due[place]
        return max(0.0, min([wait, *(due - now for due in self._due.values())]))

    def assigned(self, places: Iterable[Where]) -> None:
        """What the user paused stays paused when it comes back, and nothing else does."""
        held = {place for place in places if self.holds(place)}
        self._raw.pause(_partitions(held))
        self._raw.resume(_partitions(set(places) - held))

    def forget(self, gone: Iterable[Where]) -> None:
        for place in gone:
            self._due.pop(place, None)
            self._barred.discard(place)

    def _let_go(self) -> None:
        self._raw.resume(_partitions(place for place in self._owned if not self.holds(place)))


def _partitions(places: Iterable[Where]) -> list[TopicPartition]:
    return [TopicPartition(*place) for place in places]
