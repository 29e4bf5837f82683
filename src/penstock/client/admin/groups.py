"""Consumer groups, administered: who is in them, and how far behind they are."""

import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError
from confluent_kafka.admin import OffsetSpec

from penstock.client.admin.group_info import GroupInfo, GroupOffset, GroupSummary, MemberInfo, Where
from penstock.client.admin.topics import TopicAdmin
from penstock.client.connect import REQUEST_SECONDS
from penstock.client.errors import ClientError, explained, kafka_errors
from penstock.client.retry.policy import retry_topic
from penstock.core.internal_topics import OFFSETS_TOPIC

# What is said while the coordinator of a group changes.
_MOVING = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}
_RETRY_SECONDS = 0.1


class GroupAdmin(TopicAdmin):
    """Topics, and the groups that read them."""

    def groups(self) -> list[GroupSummary]:
        """Every group, by name."""
        deadline = time.monotonic() + REQUEST_SECONDS
        while (listed := self._listed()).errors:
            error = explained(listed.errors[0], bootstrap=self._bootstrap, subject="the groups")
            if error.code not in _MOVING or time.monotonic() >= deadline:
                raise error
            time.sleep(_RETRY_SECONDS)  # a broker does not know all of its groups just now
        return sorted(
            (
                GroupSummary(listing.group_id, _name(listing.state), _name(listing.type))
                for listing in listed.valid
            ),
            key=lambda summary: summary.name,
        )

    def _listed(self) -> Any:
        return self._wait(self._client.list_consumer_groups(request_timeout=REQUEST_SECONDS), "the groups")

    def describe_group(self, name: str) -> GroupInfo:
        """Its members, what it has committed, and how far behind it is."""
        found = self.describe_groups([name])
        if not found:
            raise no_group(name)
        return found[0]

    def describe_groups(self, names: Sequence[str]) -> list[GroupInfo]:
        """Several at once, in a few requests; those that do not exist are left out."""
        known = self._partition_numbers() if names else {}
        if not names or not self._has_groups(known):
            return []
        found = self._described(names)
        fetching = {name: self._fetch_committed(name) for name in found}
        committed = {name: self._committed(name, future) for name, future in fetching.items()}
        members = {name: tuple(map(_member, group.members)) for name, group in found.items()}
        read = {name: _read_topics(name, committed[name], members[name], known) for name in found}
        places = [
            (topic, index) for topic in sorted(set().union(*read.values())) for index in known.get(topic, ())
        ]
        earliest = self._bounds(places, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        latest = self._bounds(places, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        infos = []
        for name, group in found.items():
            owners = {place: member.id for member in members[name] for place in member.partitions}
            offsets = tuple(
                GroupOffset(
                    *place, committed[name].get(place), latest[place], owners.get(place), earliest[place]
                )
                for place in sorted(latest)
                if place[0] in read[name]
            )
            there = {offset.topic for offset in offsets}
            infos.append(
                GroupInfo(
                    name,
                    _name(group.state),
                    group.coordinator.id if group.coordinator is not None else None,
                    group.partition_assignor,
                    members[name],
                    offsets,
                    tuple(sorted(read[name] - there)),
                )
            )
        return [info for info in infos if info.exists]

    def _described(self, names: Sequence[str]) -> dict[str, Any]:
        """Those that exist. librdkafka gives up where a coordinator has just moved: then it is asked again."""
        deadline = time.monotonic() + REQUEST_SECONDS
        found: dict[str, Any] = {}
        left = list(names)
        while left:
            describing = self._client.describe_consumer_groups(left, request_timeout=REQUEST_SECONDS)
            left = []
            for name, future in describing.items():
                try:
                    found[name] = self._wait(future, f"group {name}")
                except ClientError as error:
                    if error.code in _MOVING and time.monotonic() < deadline:
                        left.append(name)
                    elif error.code != KafkaError.GROUP_ID_NOT_FOUND:
                        raise
            if left:
                time.sleep(_RETRY_SECONDS)
        return {name: found[name] for name in names if name in found}

    def committed(self, name: str) -> dict[Where, int]:
        """What a group has committed: the next offset to read, by topic and partition."""
        # Described first, until its coordinator has settled: librdkafka 2.16 does not survive a NOT_COORDINATOR here.
        if not self._has_groups(self._partition_numbers()) or not self._described([name]):
            return {}
        return self._committed(name, self._fetch_committed(name))

    def notes(self, name: str) -> dict[Where, str]:
        """The metadata of its commits."""
        found = self._wait(self._fetch_committed(name), f"group {name}")
        return {(at.topic, at.partition): at.metadata or "" for at in found.topic_partitions or ()}

    def _has_groups(self, topics: Collection[str]) -> bool:
        """Whoever asks for a group's coordinator makes the topic for groups where it is missing, with as many replicas
        as there are brokers just then. Looking must not: without that topic there is no group. Some clusters hide it,
        but list their groups all the same."""
        return OFFSETS_TOPIC in topics or bool(self._listed().valid)

    def _partition_numbers(self) -> dict[str, list[int]]:
        """Of every topic there is."""
        with kafka_errors(self._bootstrap, "the topics"):
            known = self._client.list_topics(timeout=REQUEST_SECONDS).topics
        return {name: list(topic.partitions) for name, topic in known.items()}

    def _fetch_committed(self, name: str) -> Any:
        asked = [ConsumerGroupTopicPartitions(name)]
        return self._client.list_consumer_group_offsets(asked, request_timeout=REQUEST_SECONDS)[name]

    def _committed(self, name: str, future: Any) -> dict[Where, int]:
        found = self._wait(future, f"group {name}")
        return {(at.topic, at.partition): at.offset for at in found.topic_partitions or () if at.offset >= 0}

    def _bounds(self, places: Iterable[Where], spec: OffsetSpec) -> dict[Where, int]:
        """One end of each partition; those that were deleted in this moment are left out."""
        found = {}
        for place, future in self._ask_offsets(places, spec).items():
            try:
                found[place] = self._wait(future, place[0]).offset
            except ClientError as error:
                if error.code != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
        return found

    def delete_group(self, name: str) -> None:
        """Forget a group and everything it committed; it must have no members."""
        if not self._has_groups(self._partition_numbers()):
            raise no_group(name)
        future = self._client.delete_consumer_groups([name], request_timeout=REQUEST_SECONDS)[name]
        try:
            self._wait(future, f"group {name}")
        except ClientError as error:
            raise group_refusal(name, error) from error


# What the coordinator says to changes from outside while members are at work.
_AT_WORK = {
    KafkaError.NON_EMPTY_GROUP,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.ILLEGAL_GENERATION,
}


def group_refusal(name: str, error: ClientError) -> ClientError:
    """A change of a group that was refused, with what to do about it."""
    if error.code == KafkaError.GROUP_ID_NOT_FOUND:
        return no_group(name)
    return members_at_work(name, error.code) if error.code in _AT_WORK else error


def no_group(name: str) -> ClientError:
    return ClientError(
        f"there is no group {name}: `penstock group list` shows those there are",
        KafkaError.GROUP_ID_NOT_FOUND,
    )


def members_at_work(name: str, code: int | None = KafkaError.NON_EMPTY_GROUP) -> ClientError:
    return ClientError(
        f"group {name} has members at work: stop them first (`penstock group describe {name}` names them); one "
        "that was killed is forgotten when its session.timeout.ms has passed",
        code,
    )


def _read_topics(
    group: str, committed: Iterable[Where], members: Iterable[MemberInfo], known: Collection[str]
) -> set[str]:
    """What a group has committed for or reads now, and the retry topics beside them: what waits there may never have
    been committed for."""
    read = {topic for topic, _ in committed}
    read |= {topic for member in members for topic, _ in member.partitions}
    return read | {name for topic in read if (name := retry_topic(topic, group)) in known}


def _member(found: Any) -> MemberInfo:
    assigned = found.assignment.topic_partitions if found.assignment else ()
    places = tuple(sorted((at.topic, at.partition) for at in assigned))
    return MemberInfo(found.member_id, found.client_id, found.host, found.group_instance_id, places)


def _name(value: Any) -> str:
    return str(getattr(value, "name", value)).lower()
