"""Offsets that transactions would commit and that count for nobody yet.

    TxnOffsetCommit  ─▶ pending ──┬─ commit marker ─▶ committed, unless a later commit is there
                                  ├─ abort marker ──▶ gone
                                  └─ tombstone ─────▶ gone

Which of two commits of one partition is the later one is decided by where their records are in the log, not by when
their transactions end: compaction keeps the last record of a key, and what is loaded from that must be the same.
Records are taken in in the order in which they are in the log, just decided or read back; so the order in which they
come here says it, and their offsets need not be compared. What has been overtaken (its value is None) still makes the
partition unstable until its transaction ends.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from penstock.core.limits import GROUP_OFFSET_BYTES
from penstock.groups.offsets.table import offset_bytes
from penstock.groups.records.keys import OffsetKey
from penstock.groups.records.offset_value import CommittedOffset

# Of a group by topic and partition: the producers with an open transaction there, in the order of their records.
Waiting = dict[tuple[str, int], dict[int, CommittedOffset | None]]
_NONE: Waiting = {}


class Ended(NamedTuple):
    """What a transaction leaves behind: None where something later has been committed, or it was aborted."""

    key: OffsetKey
    value: CommittedOffset | None


class PendingOffsets:
    __slots__ = ("_by_producer", "by_group", "size_bytes")

    def __init__(self) -> None:
        self.by_group: dict[str, Waiting] = {}
        self._by_producer: dict[int, dict[OffsetKey, None]] = {}
        self.size_bytes = 0  # about what they take in memory

    def of_group(self, group_id: str) -> Waiting:
        return self.by_group.get(group_id, _NONE)

    def values(self, key: OffsetKey) -> Iterable[CommittedOffset]:
        """What may still be committed there."""
        waiting = self.of_group(key.group).get((key.topic, key.partition), {})
        return [value for value in waiting.values() if value is not None]

    def bytes_of(self, producer_id: int, key: OffsetKey) -> int:
        """What the producer's has of `size_bytes`."""
        waiting = self.of_group(key.group).get((key.topic, key.partition), {})
        return pending_bytes(waiting[producer_id]) if producer_id in waiting else 0

    def add(self, producer_id: int, key: OffsetKey, value: CommittedOffset) -> None:
        """What the producer had there before is replaced; it comes last now."""
        self._forget_one(key, producer_id)
        waiting = self.by_group.setdefault(key.group, {}).setdefault((key.topic, key.partition), {})
        waiting[producer_id] = value
        self._by_producer.setdefault(producer_id, {})[key] = None
        self.size_bytes += pending_bytes(value)

    def overtake(self, key: OffsetKey) -> None:
        """Something later than all of them was committed."""
        waiting = self.of_group(key.group).get((key.topic, key.partition))
        if waiting is not None:
            self._overtake(waiting, list(waiting))

    def forget(self, key: OffsetKey) -> bool:
        """A tombstone: whatever transactions do, nothing that was written before it is committed. False: none was."""
        producers = list(self.of_group(key.group).get((key.topic, key.partition), ()))
        for producer_id in producers:
            self._forget_one(key, producer_id)
        return bool(producers)

    def end(self, producer_id: int, *, committed: bool) -> Iterator[Ended]:
        for key in list(self._by_producer.get(producer_id, ())):
            waiting = self.by_group[key.group][key.topic, key.partition]
            value = waiting[producer_id]
            if committed and value is not None:
                producers = list(waiting)
                self._overtake(waiting, producers[: producers.index(producer_id)])
            self._forget_one(key, producer_id)
            yield Ended(key, value if committed else None)

    def _overtake(self, waiting: dict[int, CommittedOffset | None], producers: Iterable[int]) -> None:
        for producer_id in producers:
            self.size_bytes += pending_bytes(None) - pending_bytes(waiting[producer_id])
            waiting[producer_id] = None

    def _forget_one(self, key: OffsetKey, producer_id: int) -> None:
        keys = self._by_producer.get(producer_id)
        if keys is None or key not in keys:
            return
        del keys[key]
        if not keys:
            del self._by_producer[producer_id]
        group = self.by_group[key.group]
        waiting = group[key.topic, key.partition]
        self.size_bytes -= pending_bytes(waiting.pop(producer_id))
        if not waiting:
            del group[key.topic, key.partition]
            if not group:
                del self.by_group[key.group]


def pending_bytes(value: CommittedOffset | None) -> int:
    """About what one takes: not less than when it is committed, so that there is always room for that."""
    return 2 * GROUP_OFFSET_BYTES + (offset_bytes(value.metadata) if value is not None else 0)


def unstable_partitions(waiting: Mapping[tuple[str, int], object]) -> dict[str, list[int]]:
    """By topic."""
    found: dict[str, list[int]] = {}
    for topic, partition in waiting:
        found.setdefault(topic, []).append(partition)
    return found
