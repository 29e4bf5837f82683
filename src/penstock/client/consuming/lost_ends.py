"""At-most-once: a log that lost its end is not read again from its first message.

An unclean election, or a power cut where the broker acknowledges before it syncs, may take messages that the group has
read and committed. librdkafka finds that there is no such offset and begins anew, as it must where retention has
overtaken a position; here, that would hand out everything a second time. So where messages come from before the place
that their partition had reached, reading goes on at the end of the log. A topic that was deleted and made again is
another one: all of it is read.
"""

import logging
from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition

from penstock.client.admin.admin import Admin
from penstock.client.connect import REQUEST_SECONDS
from penstock.client.consuming.commits import Plan
from penstock.client.consuming.intake import Intake
from penstock.client.consuming.unfinished import Unfinished, Where, place_of, where

if TYPE_CHECKING:
    from confluent_kafka import Consumer as RawConsumer

logger = logging.getLogger("penstock.client")


class LostEnds:
    def __init__(
        self, plan: Plan, raw: "RawConsumer", owned: set[Where], intake: Intake, unfinished: Unfinished
    ) -> None:
        self._plan = plan
        self._raw = raw
        self._owned = owned
        self._back: dict[Where, int] = {}  # how far those were read that went back
        self._intake = intake
        self._unfinished = unfinished
        self._ids: dict[str, object] = {}

    def begin(self, partitions: list[TopicPartition]) -> None:
        """From where partitions are read."""
        if self._plan.delivery != "at-most-once":
            return
        for one in partitions:
            if one.offset >= 0:
                self._unfinished.moved(place_of(one), one.offset)
        new = {partition.topic for partition in partitions} - self._ids.keys()
        if new:
            admin = Admin(self._plan.bootstrap)
            self._ids |= {topic: admin.topic_id(topic) for topic in sorted(new)}

    def note(self) -> None:
        """What was just taken, and nothing else is there: which partitions went back by themselves."""
        reached = self._unfinished.next_offsets([])
        for raw in self._intake.waiting:
            place, offset = where(raw), raw.offset()
            assert offset is not None
            if offset < reached.get(place, 0):
                self._back[place] = reached[place]
            reached[place] = offset + 1

    def found(self) -> list[TopicPartition]:
        """Those, with the ends at which they go on."""
        mine = {place: position for place, position in self._back.items() if place in self._owned}
        found = [self._end(place, position) for place, position in mine.items() if self._is_the_same(place)]
        self._back = {}
        return found

    def _is_the_same(self, place: Where) -> bool:
        topic = place[0]
        topic_id = Admin(self._plan.bootstrap).topic_id(topic)
        if topic_id == self._ids.get(topic, topic_id):
            return True
        self._ids[topic] = topic_id
        return False

    def _end(self, place: Where, position: int) -> TopicPartition:
        at = TopicPartition(*place)
        _, end = self._raw.get_watermark_offsets(at, timeout=REQUEST_SECONDS)
        logger.warning(
            "%s, partition %d was read up to %d and has lost its end: at-most-once reading goes on at %d",
            *place,
            position,
            end,
        )
        return TopicPartition(*place, end)
