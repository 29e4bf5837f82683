"""What is known about a consumer group from outside."""

from dataclasses import dataclass, field

from penstock.client.retry.policy import retry_topic

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
    def never_read(self) -> bool:
        return self.committed is None

    @property
    def position(self) -> int:
        """Where reading goes on. Without a commit, all there is counts: where a consumer begins is its own setting."""
        return self.earliest if self.committed is None else self.committed

    @property
    def lag(self) -> int:
        """How many offsets are still to be read."""
        return max(0, self.latest - self.position)


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
    def retry_topics(self) -> dict[str, str]:
        """Where its messages wait for another try, each with the topic they came from."""
        there = set(self.topics)
        return {name: topic for topic in self.topics if (name := retry_topic(topic, self.name)) in there}

    @property
    def own(self) -> tuple[GroupOffset, ...]:
        """Without its retry topics."""
        retries = self.retry_topics
        return tuple(offset for offset in self.offsets if offset.topic not in retries)

    @property
    def lag(self) -> int:
        """What was not read yet; what waits for another try is counted apart, in `retrying`."""
        return sum(offset.lag for offset in self.own)

    @property
    def never_read(self) -> tuple[GroupOffset, ...]:
        """Partitions that have messages, and for which nothing was ever committed: all of them count as lag."""
        return tuple(offset for offset in self.own if offset.never_read and offset.lag)

    @property
    def waiting(self) -> tuple[GroupOffset, ...]:
        """Partitions of its retry topics in which something waits."""
        retries = self.retry_topics
        return tuple(offset for offset in self.offsets if offset.topic in retries and offset.lag)

    @property
    def retrying(self) -> int:
        return sum(offset.lag for offset in self.waiting)

    @property
    def exists(self) -> bool:
        return self.state != "dead" or bool(self.offsets or self.deleted_topics)

    @property
    def topics(self) -> list[str]:
        return sorted({offset.topic for offset in self.offsets})
