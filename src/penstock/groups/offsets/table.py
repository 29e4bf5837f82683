"""The committed offsets of one group, by topic and partition."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from penstock.core.limits import GROUP_OFFSET_BYTES
from penstock.groups.decision import KnownTopic, KnownTopics
from penstock.groups.records.offset_value import NO_EPOCH, CommittedOffset

_NONE: Mapping[int, CommittedOffset] = {}


class OffsetTable:
    __slots__ = ("topics",)

    def __init__(self) -> None:
        self.topics: dict[str, dict[int, CommittedOffset]] = {}

    def __len__(self) -> int:
        return sum(len(partitions) for partitions in self.topics.values())

    def __bool__(self) -> bool:
        return bool(self.topics)  # a topic without offsets is not kept: counting all of them would take long

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        partitions = self.topics.get(topic)
        return partitions.get(partition) if partitions is not None else None

    def of_topic(self, topic: str) -> Mapping[int, CommittedOffset]:
        """What is told to whoever names the partitions."""
        return self.topics.get(topic, _NONE)

    def listed(self, topic: str) -> Mapping[int, CommittedOffset]:
        """What is told to whoever asks for everything."""
        return self.of_topic(topic)

    def set(self, topic: str, partition: int, value: CommittedOffset) -> None:
        partitions = self.topics.get(topic)
        if partitions is None:
            partitions = self.topics[topic] = {}
        partitions[partition] = value

    def remove(self, topic: str, partition: int) -> CommittedOffset | None:
        """What was committed there."""
        partitions = self.topics.get(topic)
        removed = partitions.pop(partition, None) if partitions is not None else None
        if removed is not None and not partitions:
            del self.topics[topic]
        return removed

    def copy(self, wanted: Iterable[tuple[str, Iterable[int]]] | None) -> "OffsetTable":
        """As it is now, of these partitions, or of all."""
        copied = OffsetTable()
        if wanted is None:
            copied.topics = {topic: dict(self.listed(topic)) for topic in self.topics}
            return copied
        for topic, indexes in wanted:
            known = self.of_topic(topic)
            if known:
                found = {index: known[index] for index in indexes if index in known}
                copied.topics.setdefault(topic, {}).update(found)
        return copied

    def all(self) -> Iterator[tuple[str, int, CommittedOffset]]:
        for topic, partitions in self.topics.items():
            for partition, value in partitions.items():
                yield topic, partition, value


class LiveOffsets(OffsetTable):
    """To be read: of a table those that are of the topics there are, whatever else it still holds.

    Of a partition that was removed they are told where it is named, and left out where everything is asked for. Once
    there is a new one of its number, who had read all of the old one stands where that begins.
    """

    __slots__ = ("_known",)

    def __init__(self, table: OffsetTable, known: KnownTopics) -> None:
        self.topics = table.topics
        self._known = known

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        return self.of_topic(topic).get(partition)

    def of_topic(self, topic: str) -> Mapping[int, CommittedOffset]:
        known = self._known(topic)
        if known is None:
            return _NONE
        return {
            partition: self._shown(known, partition, value)
            for partition, value in super().of_topic(topic).items()
            if value.topic_id == known.id and known.keeps(partition)
        }

    def _shown(self, known: KnownTopic, partition: int, value: CommittedOffset) -> CommittedOffset:
        offset = known.goes_on(partition, value.offset)
        return value if offset == value.offset else replace(value, offset=offset, leader_epoch=NO_EPOCH)

    def listed(self, topic: str) -> Mapping[int, CommittedOffset]:
        known = self._known(topic)
        if known is None:
            return _NONE
        return {
            partition: value
            for partition, value in self.of_topic(topic).items()
            if known.lists(partition, value.offset)
        }


class StableOffsets(OffsetTable):
    """To be read by whoever wants nothing that an open transaction may change: such partitions have `UNSTABLE`.

    Apache Kafka leaves out partitions without a committed offset where all are asked for; here they are told, too:
    whoever took them for partitions that nobody has committed for would begin anew.
    """

    __slots__ = ("_base", "_unstable")

    def __init__(self, base: OffsetTable, unstable: Mapping[str, Iterable[int]]) -> None:
        self._base = base
        self._unstable = {
            topic: dict.fromkeys(partitions, UNSTABLE) for topic, partitions in unstable.items()
        }
        self.topics = {**base.topics, **self._unstable}

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        return self.of_topic(topic).get(partition)

    def of_topic(self, topic: str) -> Mapping[int, CommittedOffset]:
        return self._over(self._base.of_topic(topic), topic)

    def listed(self, topic: str) -> Mapping[int, CommittedOffset]:
        return self._over(self._base.listed(topic), topic)

    def _over(self, found: Mapping[int, CommittedOffset], topic: str) -> Mapping[int, CommittedOffset]:
        unstable = self._unstable.get(topic)
        return found if unstable is None else {**found, **unstable}


def offset_bytes(metadata: str) -> int:
    """About what an offset takes in memory."""
    return GROUP_OFFSET_BYTES + len(metadata)


UNSTABLE = CommittedOffset(-1)  # in place of an offset that depends on how a transaction ends
NOTHING = OffsetTable()  # to be read where a group has none
