"""Reading without a group: every partition there is, also those that are added while it runs."""

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, TopicPartition

from penstock.client.consuming.commits import Plan
from penstock.client.consuming.starting import Start, begin_at
from penstock.client.consuming.unfinished import Unfinished, Where, place_of

if TYPE_CHECKING:
    from confluent_kafka import Consumer as RawConsumer

# A new partition is noticed after so long; asking takes a request.
_LOOK_SECONDS = 30.0
_ANSWER_SECONDS = 1.0


class Alone:
    def __init__(self, plan: Plan, raw: "RawConsumer", owned: set[Where], unfinished: Unfinished) -> None:
        self._plan = plan
        self._raw = raw
        self._owned = owned
        self._unfinished = unfinished
        self._topics: tuple[str, ...] = ()
        self._look_at = 0.0
        asked_ms = plan.settings.get("topic.metadata.refresh.interval.ms")
        self._every = _LOOK_SECONDS if asked_ms is None else max(0.1, float(asked_ms) / 1000)

    def open(self, topics: Sequence[str]) -> None:
        from penstock.client.admin.admin import Admin  # noqa: PLC0415 - the admin client is needed here alone

        admin = Admin(self._plan.bootstrap)
        found = [TopicPartition(topic, index) for topic in topics for index in admin.partition_indexes(topic)]
        begun = begin_at(self._raw, self._plan.start, found)
        self._raw.assign(begun)
        self._take_over(begun)
        self._topics = tuple(topics)
        self._look_at = time.monotonic() + self._every

    def look(self) -> None:
        """Now and then: read partitions that were added. What fails is looked at again later."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + self._every
        try:
            new = [partition for topic in self._topics for partition in self._partitions(topic)]
            new = [partition for partition in new if place_of(partition) not in self._owned]
            if new:
                begun = begin_at(self._raw, self._start_of_new(), new)
                self._raw.incremental_assign(begun)
                self._take_over(begun)
        except KafkaException:
            return

    def _start_of_new(self) -> Start:
        """What is in a partition that was not there at the start has all come since."""
        start = self._plan.start
        return "earliest" if start == "latest" or isinstance(start, timedelta) else start

    def _partitions(self, topic: str) -> list[TopicPartition]:
        found = self._raw.list_topics(topic, timeout=_ANSWER_SECONDS).topics[topic]
        return [TopicPartition(topic, index) for index in sorted(found.partitions)]

    def _take_over(self, begun: list[TopicPartition]) -> None:
        self._owned.update(map(place_of, begun))
        for partition in begun:
            self._unfinished.moved(place_of(partition), partition.offset)
