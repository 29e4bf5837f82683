"""Where a member of a group begins in partitions without a commit.

It is found once for as long as the partition is ours: the end moves. And it is committed before anything is handed out:
a partition that goes to another member before its first commit would begin there at the end of then, and what came
meanwhile would be handed to nobody.

A partition that was not there when the group began is read from its first message: all of them came since. So every
commit notes how many partitions the topic had then; none, if the group began at the first messages, so that whoever
goes on with another start does not pass over partitions that it never got to. Nor are there any where each partition
has an offset of its own: those that are not named are read from the first. A retry topic is read from its first
message, too: what waits there was put there by this group.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition

from penstock.client.connect import REQUEST_SECONDS
from penstock.client.consuming.commits import Commits, Plan
from penstock.client.consuming.starting import begin_at, told
from penstock.client.consuming.unfinished import Where, place_of

if TYPE_CHECKING:
    from confluent_kafka import Consumer as RawConsumer

_BEGAN_WITH = "began_with"  # partitions


class Beginning:
    def __init__(self, plan: Plan, retries: Collection[str], commits: Commits) -> None:
        self._start = plan.start
        self._retries = retries
        self._commits = commits
        self._at: dict[Where, int] = {}
        self.untold: dict[Where, int] = {}  # not committed yet
        self._counts: dict[str, int] = {}  # partitions of each topic when this consumer began
        self._began_with: dict[str, int] = {}  # when the group did
        if not self._skips:
            commits.default_note = began_with(0)

    @property
    def _skips(self) -> bool:
        """Whether it would pass messages in any partition."""
        return self._start not in ("earliest", 0) and not isinstance(self._start, Mapping)

    def look(self, raw: "RawConsumer") -> None:
        """What is there now, before the group is joined."""
        if self._skips:
            topics = raw.list_topics(timeout=REQUEST_SECONDS).topics
            self._counts = {name: len(topic.partitions) for name, topic in topics.items()}

    def find(self, raw: "RawConsumer", partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The partitions with the offsets from which they are read."""
        committed = told(raw.committed(partitions, timeout=REQUEST_SECONDS))
        if self._skips:
            for topic in sorted(
                {partition.topic for partition in committed} - self._began_with.keys() - set(self._retries)
            ):
                self._ask_when_it_began(raw, topic, partitions)
        new = [
            partition
            for partition in committed
            if partition.offset < 0 and place_of(partition) not in self._at
        ]
        whole = [partition for partition in new if self._from_the_first(partition)]
        begun = begin_at(raw, self._start, [partition for partition in new if partition not in whole])
        self.untold |= {
            place_of(partition): partition.offset for partition in begun if self._is_there(partition)
        }
        begun += begin_at(raw, "earliest", whole)
        self._at |= {place_of(partition): partition.offset for partition in begun}
        for partition in committed:
            if partition.offset < 0:
                partition.offset = self._at[place_of(partition)]
        return committed

    def _is_there(self, partition: TopicPartition) -> bool:
        """Whether it begins at an offset for sure; another number may lie behind its end, and means the first then."""
        was_found = not isinstance(self._start, int | Mapping)
        return partition.offset == 0 or (was_found and partition.offset > 0)

    def _from_the_first(self, partition: TopicPartition) -> bool:
        return partition.topic in self._retries or (
            self._skips and partition.partition >= self._began_with[partition.topic]
        )

    def _ask_when_it_began(self, raw: "RawConsumer", topic: str, partitions: list[TopicPartition]) -> None:
        count = self._counts.get(topic, 0)
        known = max(
            [count, *(partition.partition + 1 for partition in partitions if partition.topic == topic)]
        )
        asked = [TopicPartition(topic, index) for index in range(known)]
        noted = [_noted(partition) for partition in told(raw.committed(asked, timeout=REQUEST_SECONDS))]
        number = min((number for number in noted if number is not None), default=count)
        self._commits.topic_notes[topic] = began_with(number)
        self._began_with[topic] = number

    def forget(self, gone: Iterable[Where]) -> None:
        for place in gone:
            self._at.pop(place, None)
            self.untold.pop(place, None)


def began_with(partitions: int) -> str:
    """The note of a commit."""
    return json.dumps({_BEGAN_WITH: partitions})


def _noted(committed: TopicPartition) -> int | None:
    try:
        return int(json.loads(committed.metadata or "null")[_BEGAN_WITH])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
