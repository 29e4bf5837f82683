"""Where a group goes on, moved from outside."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import index
from typing import Literal

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from penstock.client.admin.groups import GroupAdmin, group_refusal, members_at_work
from penstock.client.connect import REQUEST_SECONDS
from penstock.client.consuming.beginning import began_with
from penstock.client.consuming.starting import checked_offset, is_number
from penstock.client.errors import ClientError


@dataclass(frozen=True, slots=True)
class Shift:
    """So many messages on from where the group is; negative goes back."""

    by: int


ResetTo = Literal["earliest", "latest"] | datetime | timedelta | int | Shift


@dataclass(frozen=True, slots=True)
class Move:
    """One partition's place in a group, before and after a reset."""

    topic: str
    partition: int
    before: int | None  # None where nothing was committed
    after: int
    note: str = ""  # metadata of the commit


class OffsetAdmin(GroupAdmin):
    """Groups, and their offsets changed."""

    def reset_offsets(
        self, name: str, topic: str, to: ResetTo, partitions: Iterable[int] | None = None
    ) -> dict[int, int]:
        """Let a group go on elsewhere in a topic. The group must have no members.

        `to` is "earliest", "latest", a datetime, a timedelta (that long ago), an offset, or `Shift(-10)` for ten
        messages back. Gives the new position of each partition; all are within what the partition holds.
        """
        moves = self.plan_reset(name, topic, to, partitions)
        self.carry_out(name, moves)
        return {move.partition: move.after for move in moves}

    def plan_reset(
        self, name: str, topic: str, to: ResetTo, partitions: Iterable[int] | None = None
    ) -> list[Move]:
        """What `reset_offsets` would do. Refuses a group with members, too."""
        if is_number(to):
            to = checked_offset("to", to)
        known = self.partition_indexes(topic)
        chosen = known if partitions is None else sorted(set(partitions))
        unknown = [index for index in chosen if index not in known]
        if unknown:
            raise ClientError(f"{topic} has no partition {unknown[0]}: it has 0 to {max(known, default=-1)}")
        found = self.describe_groups([name])
        if found and found[0].members:
            raise members_at_work(name)
        committed = (
            {(offset.topic, offset.partition): offset.committed for offset in found[0].offsets}
            if found
            else {}
        )
        before = {index: committed.get((topic, index)) for index in chosen}
        if partitions is None and isinstance(to, Shift) and any(at is not None for at in before.values()):
            # There is nothing to shift from in the others: they begin where consumers choose, as before.
            before = {index: at for index, at in before.items() if at is not None}
        places = self._resolve(name, topic, before, to)
        notes = self.notes(name) if found else {}
        # From here on the group has a place in all there are: those that are added later are read from the first.
        began = began_with(len(known)) if before.keys() == set(known) else ""
        return [
            Move(topic, index, before[index], places[index], notes.get((topic, index)) or began)
            for index in before
        ]

    def carry_out(self, name: str, moves: Sequence[Move]) -> None:
        """Commit planned moves for the group."""
        if not moves:
            return
        offsets = [TopicPartition(move.topic, move.partition, move.after, move.note) for move in moves]
        asked = [ConsumerGroupTopicPartitions(name, offsets)]
        future = self._client.alter_consumer_group_offsets(asked, request_timeout=REQUEST_SECONDS)[name]
        try:
            done = self._wait(future, f"group {name}")
            for partition in done.topic_partitions:
                if partition.error is not None:
                    said = f"group {name}, {partition.topic}[{partition.partition}]: {partition.error.str()}"
                    raise ClientError(said, partition.error.code())
        except ClientError as error:
            raise group_refusal(name, error) from error

    def _resolve(self, name: str, topic: str, before: dict[int, int | None], to: ResetTo) -> dict[int, int]:
        partitions = list(before)
        earliest = self.earliest(topic, partitions)
        latest = self.latest(topic, partitions)
        if to == "earliest":
            return earliest
        if to == "latest":
            return latest
        if isinstance(to, timedelta):
            to = datetime.now(UTC) - to
        if isinstance(to, datetime):
            found = self.since(topic, partitions, max(0, round(to.timestamp() * 1000)))
            return {index: offset if offset >= 0 else latest[index] for index, offset in found.items()}
        if isinstance(to, Shift):
            wanted = {index: _shifted(name, topic, index, at, to.by) for index, at in before.items()}
        elif is_number(to):
            wanted = dict.fromkeys(partitions, index(to))
        else:
            raise ClientError(f"to={to!r} is not a place: earliest, latest, a datetime, an offset or a Shift")
        return {index: min(max(at, earliest[index]), latest[index]) for index, at in wanted.items()}


def _shifted(name: str, topic: str, partition: int, committed: int | None, by: int) -> int:
    if committed is None:
        raise ClientError(
            f"group {name} has committed nothing for {topic}[{partition}], so there is nothing to shift from: "
            "choose a place such as earliest or latest"
        )
    return committed + index(by)
