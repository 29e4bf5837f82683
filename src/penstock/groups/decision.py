"""What a decision consists of."""

from collections.abc import Callable
from typing import Any, NamedTuple

Ticket = Any  # whoever asked; opaque here, and given back with the reply
NEVER = float("inf")
# The id of the topic that has a name, and how many partitions it has.
KnownTopics = Callable[[str], tuple[bytes, int] | None]


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
