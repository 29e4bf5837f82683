"""What is known about a consumer group from outside."""

from dataclasses import dataclass, field

Where = tuple[str, int]


@dataclass(frozen=True, slots=True)
class GroupSummary:
    name: str
    state: str  # stable, empty, preparing_rebalancing, completing_rebalancing, dead, unknown
    kind: str  # classic, consumer


@dataclass(frozen=True, slots=True)
class MemberInfo:
    id: str
    client_id: str
    host: str
    instance_id: str | None
    partitions: tuple[Where, ...]


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """One partition of a topic that the group reads or has committed for."""

    topic: str
    partition: int
    committed: int | None  # the next offset to read; None where nothing was committed
    latest: int
    member: str | None  # the id of the member that reads it now
    earliest: int = 0

    @property
    def lag(self) -> int | None:
        """How many offsets are still to be read; None where nothing says where reading begins."""
        return None if self.committed is None else max(0, self.latest - self.committed)


@dataclass(frozen=True, slots=True)
class GroupInfo:
    name: str
    state: str
    coordinator: int | None
    assignor: str
    members: tuple[MemberInfo, ...]
    offsets: tuple[GroupOffset, ...]
    deleted_topics: tuple[str, ...] = field(default=())  # committed for, but there no more

    @property
    def lag(self) -> int:
        return sum(one.lag or 0 for one in self.offsets)

    @property
    def exists(self) -> bool:
        return self.state != "dead" or bool(self.offsets or self.deleted_topics)

    @property
    def topics(self) -> list[str]:
        return sorted({one.topic for one in self.offsets})
