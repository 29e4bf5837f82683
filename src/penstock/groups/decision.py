"""What a decision consists of."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

Ticket = Any  # whoever asked; opaque here, and given back with the reply
NEVER = float("inf")


class RemovedPartition(Protocol):
    @property
    def limit(self) -> int:
        """Up to where readers saw it; what was written from there on, others have."""

    @property
    def end(self) -> int:
        """Where its log ended: a new one of its number goes on there."""


_NONE_REMOVED: Mapping[int, RemovedPartition] = MappingProxyType({})


class KnownTopic(NamedTuple):
    """The topic that has a name, as far as it is known here: others may know of more."""

    id: bytes
    partitions: int
    removed: Mapping[int, RemovedPartition] = _NONE_REMOVED  # by number, the latest of each

    def keeps(self, partition: int) -> bool:
        """Whether what was committed for it is kept.

        Also of one that was removed: a new one of its number goes on behind its end, and whoever has read the old one
        goes on there. Without its commit a group that began at the end would pass over what the new one has.
        """
        return partition < self.partitions or partition in self.removed

    def goes_on(self, partition: int, offset: int) -> int:
        """Where a reader goes on who stands there: in front of a new partition of the number, where it begins.

        What lies between is nowhere for readers: they would wait there for an end, and count it as unread.
        """
        removed = self.removed.get(partition)
        if removed is None or partition >= self.partitions or not removed.limit <= offset < removed.end:
            return offset
        return removed.end

    def lists(self, partition: int, offset: int) -> bool:
        """Whether this offset is told to whoever asks for all that a group has committed: of partitions there are.

        Offsets of a number never go back. What lies beyond the end of a partition that was removed is of a new one
        of its number, of which we shall hear: whoever committed it was told that it is stored.

        Who names the partition is told whatever is kept: it may have heard of a new one before us, and would take
        "nothing was committed" for where it begins. At the very end nothing tells the two apart.
        """
        if partition < self.partitions:
            return True
        removed = self.removed.get(partition)
        return removed is not None and offset > removed.end


KnownTopics = Callable[[str], KnownTopic | None]


class Now(NamedTuple):
    """One moment on two clocks: the loop's seconds, for deadlines, and the wall's milliseconds, for records."""

    seconds: float
    wall_ms: int

    def after_ms(self, delay_ms: int) -> float:
        return self.seconds + delay_ms / 1000


class CoordinatorRecord(NamedTuple):
    """As it is stored in `__consumer_offsets`; without a value a tombstone."""

    key: bytes
    value: bytes | None


class Decision:
    """Records to commit, and replies that may leave once they are."""

    __slots__ = ("records", "replies")

    def __init__(self) -> None:
        self.records: list[CoordinatorRecord] = []
        self.replies: list[tuple[Ticket, Any]] = []

    def reply(self, ticket: Ticket, reply: Any) -> None:
        self.replies.append((ticket, reply))
