"""The committed offsets of one group, by topic and partition."""

from collections.abc import Iterable, Iterator

from penstock.core.limits import GROUP_OFFSET_BYTES
from penstock.groups.records.offset_value import CommittedOffset


class OffsetTable:
    __slots__ = ("topics",)

    def __init__(self) -> None:
        self.topics: dict[str, dict[int, CommittedOffset]] = {}

    def __len__(self) -> int:
        return sum(len(partitions) for partitions in self.topics.values())

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        partitions = self.topics.get(topic)
        return partitions.get(partition) if partitions is not None else None

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
            copied.topics = {topic: partitions.copy() for topic, partitions in self.topics.items()}
            return copied
        for topic, indexes in wanted:
            known = self.topics.get(topic)
            if known is not None:
                found = {index: known[index] for index in indexes if index in known}
                copied.topics.setdefault(topic, {}).update(found)
        return copied

    def all(self) -> Iterator[tuple[str, int, CommittedOffset]]:
        for topic, partitions in self.topics.items():
            for partition, value in partitions.items():
                yield topic, partition, value


def offset_bytes(metadata: str) -> int:
    """About what an offset takes in memory."""
    return GROUP_OFFSET_BYTES + len(metadata)
