"""Consumer groups, administered: who is in them, how far behind they are, and where they go on."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from penstock.client.admin_topics import TopicAdmin
from penstock.client.connect import REQUEST_SECONDS
from penstock.client.errors import ClientError

ResetTo = Literal["earliest", "latest"] | datetime | int


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
    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class GroupOffset:
    topic: str
    partition: int
    committed: int
    latest: int
    member: str | None  # the id of the member that reads it now

    @property
    def lag(self) -> int:
        """How many offsets are still to be read."""
        return max(0, self.latest - self.committed)


@dataclass(frozen=True, slots=True)
class GroupInfo:
    name: str
    state: str
    coordinator: int | None
    assignor: str
    members: tuple[MemberInfo, ...]
    offsets: tuple[GroupOffset, ...]

    @property
    def lag(self) -> int:
        return sum(one.lag for one in self.offsets)


class GroupAdmin(TopicAdmin):
    """Topics, and the groups that read them."""

    def groups(self) -> list[GroupSummary]:
        """Every group, by name."""
        listed = self._wait(self._client.list_consumer_groups(request_timeout=REQUEST_SECONDS), "the groups")
        return sorted(
            (GroupSummary(one.group_id, _name(one.state), _name(one.type)) for one in listed.valid),
            key=lambda one: one.name,
        )

    def describe_group(self, name: str) -> GroupInfo:
        """Its members, what it has committed, and how far behind it is."""
        future = self._client.describe_consumer_groups([name], request_timeout=REQUEST_SECONDS)[name]
        found = self._wait(future, f"group {name}")
        members = tuple(
            MemberInfo(
                one.member_id,
                one.client_id,
                one.host,
                one.group_instance_id,
                tuple(
                    sorted(
                        (at.topic, at.partition)
                        for at in (one.assignment.topic_partitions if one.assignment else ())
                    )
                ),
            )
            for one in found.members
        )
        state = _name(found.state)
        committed = self.committed(name)
        if state == "dead" and not committed:
            raise ClientError(f"there is no group {name}: `Admin.groups()` lists those there are")
        owners = {place: member.id for member in members for place in member.partitions}
        coordinator = found.coordinator.id if found.coordinator is not None else None
        return GroupInfo(
            name,
            state,
            coordinator,
            found.partition_assignor,
            members,
            tuple(self._lags(committed, owners)),
        )

    def committed(self, name: str) -> dict[tuple[str, int], int]:
        """What a group has committed: the next offset to read, by topic and partition."""
        asked = [ConsumerGroupTopicPartitions(name)]
        future = self._client.list_consumer_group_offsets(asked, request_timeout=REQUEST_SECONDS)[name]
        found = self._wait(future, f"group {name}")
        return {(at.topic, at.partition): at.offset for at in found.topic_partitions or () if at.offset >= 0}

    def _lags(
        self, committed: Mapping[tuple[str, int], int], owners: Mapping[tuple[str, int], str]
    ) -> list[GroupOffset]:
        lags = []
        for topic in sorted({topic for topic, _ in committed}):
            try:
                indexes = set(self.partition_indexes(topic))
            except ClientError:
                continue  # the topic was deleted; its commits expire
            mine = sorted(index for name, index in committed if name == topic and index in indexes)
            latest = self.latest(topic, mine)
            lags += [
                GroupOffset(topic, index, committed[topic, index], latest[index], owners.get((topic, index)))
                for index in mine
            ]
        return lags

    def reset_offsets(
        self, name: str, topic: str, to: ResetTo, partitions: Iterable[int] | None = None
    ) -> dict[int, int]:
        """Let a group go on elsewhere: "earliest", "latest", a datetime, or an offset. The group must have no members.

        Gives the new position of each partition.
        """
        known = self.partition_indexes(topic)
        chosen = known if partitions is None else sorted(set(partitions))
        unknown = [index for index in chosen if index not in known]
        if unknown:
            raise ClientError(f"{topic} has no partition {unknown[0]}: it has 0 to {max(known, default=-1)}")
        places = self._resolve(topic, chosen, to)
        offsets = [TopicPartition(topic, index, offset) for index, offset in places.items()]
        asked = [ConsumerGroupTopicPartitions(name, offsets)]
        future = self._client.alter_consumer_group_offsets(asked, request_timeout=REQUEST_SECONDS)[name]
        done = self._wait(future, f"group {name}")
        for one in done.topic_partitions:
            if one.error is not None:
                raise ClientError(
                    f"group {name}, {topic}[{one.partition}]: {one.error.str()}", one.error.code()
                )
        return places

    def _resolve(self, topic: str, partitions: list[int], to: ResetTo) -> dict[int, int]:
        earliest = self.earliest(topic, partitions)
        latest = self.latest(topic, partitions)
        if to == "earliest":
            return earliest
        if to == "latest":
            return latest
        if isinstance(to, datetime):
            found = self.since(topic, partitions, round(to.timestamp() * 1000))
            return {index: offset if offset >= 0 else latest[index] for index, offset in found.items()}
        if isinstance(to, int):
            return {index: min(max(to, earliest[index]), latest[index]) for index in partitions}
        raise ClientError(f"to={to!r} is not a place: earliest, latest, a datetime or an offset")

    def delete_group(self, name: str) -> None:
        """Forget a group and everything it committed; it must have no members."""
        future = self._client.delete_consumer_groups([name], request_timeout=REQUEST_SECONDS)[name]
        self._wait(future, f"group {name}")


def _name(value: Any) -> str:
    return str(getattr(value, "name", value)).lower()
