"""Partitions that are not read for a while: paused by the user, or until the time of a message has come."""

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition

from penstock.client.window import Where, Window, where

if TYPE_CHECKING:
    from confluent_kafka import Consumer as RawConsumer
    from confluent_kafka import Message as RawMessage


class Holding:
    def __init__(self, raw: "RawConsumer", owned: set[Where]) -> None:
        self._raw = raw
        self._owned = owned
        self._paused: set[Where] = set()
        self._due: dict[Where, float] = {}  # on the monotonic clock

    @property
    def active(self) -> bool:
        return bool(self._paused or self._due)

    def without_held(self, raws: "list[RawMessage]") -> "list[RawMessage]":
        """librdkafka may still have had some of a paused partition in hand: they are read again later."""
        kept: list[RawMessage] = []
        first: dict[Where, int] = {}
        for raw in raws:
            place = where(raw)
            if place in self._paused or place in self._due:
                first.setdefault(place, raw.offset())  # type: ignore[arg-type]
            else:
                kept.append(raw)
        for place, offset in first.items():
            self._seek(place, offset)
        return kept

    def pause(self, places: Iterable[Where], window: Window) -> None:
        wanted = list(places)
        self._paused.update(wanted)
        self._raw.pause([TopicPartition(*place) for place in wanted if place in self._owned])
        for place, offset in window.drop(wanted).items():
            self._seek(place, offset)

    def resume(self, places: Iterable[Where]) -> None:
        wanted = list(places)
        self._paused.difference_update(wanted)
        self._raw.resume(
            [TopicPartition(*place) for place in wanted if place in self._owned and place not in self._due]
        )

    def until(self, place: Where, offset: int, wait_seconds: float) -> None:
        """Read this partition again from `offset`, after a while."""
        self._due[place] = time.monotonic() + wait_seconds
        self._raw.pause([TopicPartition(*place)])
        self._seek(place, offset)

    def resume_due(self, wait: float) -> float:
        """Let go of what is due; gives how long a wait may be so that nothing is late."""
        if not self._due:
            return wait
        now = time.monotonic()
        ready = [place for place, due in self._due.items() if due <= now]
        for place in ready:
            del self._due[place]
        self._raw.resume([TopicPartition(*place) for place in ready if place not in self._paused])
        return min([wait, *(due - now for due in self._due.values())])

    def assigned(self, partitions: list[TopicPartition]) -> None:
        """What the user paused stays paused when it comes back."""
        again = [one for one in partitions if (one.topic, one.partition) in self._paused]
        if again:
            self._raw.pause([TopicPartition(one.topic, one.partition) for one in again])

    def forget(self, gone: Iterable[Where]) -> None:
        for place in gone:
            self._due.pop(place, None)

    def _seek(self, place: Where, offset: int) -> None:
        self._raw.seek(TopicPartition(*place, offset))
