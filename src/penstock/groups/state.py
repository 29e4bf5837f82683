"""All groups of one partition of `__consumer_offsets`, and how its records make them.

`apply` is the only way in for what is stored: it is called for every record, the same way when it was just decided as
when it is read back, so that a restart arrives where the broker was. (A classic group's own records are the exception
while it is in service: its members in memory are ahead of what is stored of them.)
"""

from collections.abc import Iterable, Iterator

from penstock.core.error_codes import ErrorCode
from penstock.core.limits import GROUP_BYTES, TURN_ITEMS_MAX
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.classic.requests import ClassicSettings
from penstock.groups.classic.states import DEAD, EMPTY
from penstock.groups.classic.timeouts import begin_sessions, expire
from penstock.groups.decision import CoordinatorRecord, Decision, KnownTopic, KnownTopics, Now, Ticket
from penstock.groups.offsets.commit import offset_tombstone
from penstock.groups.offsets.retention import expired_offsets
from penstock.groups.offsets.table import NOTHING, OffsetTable, offset_bytes
from penstock.groups.records.group_value import decode_group_value
from penstock.groups.records.keys import GroupKey, OffsetKey, decode_key, encode_group_key
from penstock.groups.records.offset_value import NO_TOPIC_ID, CommittedOffset, decode_offset_value

# What is stored before the next portion is asked for: in between others may have their turn, and change what they like.
Portions = Iterator[list[CoordinatorRecord]]
# The topic of an offset that does not say of which it is, when none had the name: whatever is made later is another.
_NO_TOPIC = b"\xff" * len(NO_TOPIC_ID)


class CoordinatorState:
    __slots__ = ("groups", "offsets", "size_bytes", "subjects_bytes")

    def __init__(self) -> None:
        self.size_bytes = 0  # about what groups take, with their offsets and without their members
        self.subjects_bytes = 0  # about what their members take
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets: dict[str, OffsetTable] = {}

    # -- groups --------------------------------------------------------------------------------------------

    def get_or_create(self, group_id: str, now: Now) -> ClassicGroup:
        group = self.groups.get(group_id)
        if group is None:
            group = self._add(ClassicGroup(group_id, state_since_ms=now.wall_ms))
        return group

    def _add(self, group: ClassicGroup) -> ClassicGroup:
        self._remove(group.id)
        self.size_bytes += GROUP_BYTES + len(group.id)
        self.subjects_bytes += group.size_bytes
        self.groups[group.id] = group
        return group

    def _remove(self, group_id: str) -> ClassicGroup | None:
        group = self.groups.pop(group_id, None)
        if group is not None:
            self.size_bytes -= GROUP_BYTES + len(group_id)
            self.subjects_bytes -= group.size_bytes
        return group

    def offsets_of(self, group_id: str) -> OffsetTable:
        table = self.offsets.get(group_id)
        if table is None:
            table = self.offsets[group_id] = OffsetTable()
        return table

    def set_offset(self, group_id: str, topic: str, partition: int, value: CommittedOffset) -> None:
        table = self.offsets_of(group_id)
        before = table.get(topic, partition)
        table.set(topic, partition, value)
        self.size_bytes += offset_bytes(value.metadata)
        if before is not None:
            self.size_bytes -= offset_bytes(before.metadata)

    # -- replay --------------------------------------------------------------------------------------------

    def apply(
        self, key: bytes | None, value: bytes | None, _offset: int = -1, _producer_id: int = -1
    ) -> bool:
        """One stored record. False: of a kind that is not known here. DecodeError: damaged; nothing was changed."""
        decoded = decode_key(key or b"")
        match decoded:
            case OffsetKey(group_id, topic, partition):
                if value is None:
                    self._forget_offset(group_id, topic, partition)
                else:
                    offset = decode_offset_value(value)
                    if group_id not in self.groups:
                        self._add(ClassicGroup(group_id))
                    self.set_offset(group_id, topic, partition, offset)
            case GroupKey(group_id):
                if value is None:
                    self._forget_group(group_id)
                else:
                    self._add(ClassicGroup.restored(group_id, decode_group_value(value)))
            case _:
                return False
        return True

    def _forget_offset(self, group_id: str, topic: str, partition: int) -> None:
        table = self.offsets.get(group_id)
        if table is not None:
            removed = table.remove(topic, partition)
            if removed is not None:
                self.size_bytes -= offset_bytes(removed.metadata)
            if not table.topics:
                del self.offsets[group_id]
                group = self.groups.get(group_id)
                if group is not None and group.is_simple and group.state is EMPTY and not group.pending:
                    self._remove(group_id)

    def _forget_group(self, group_id: str) -> None:
        group = self._remove(group_id)
        if group is not None:
            group.state = DEAD
        if self.offsets.get(group_id):  # they outlive it, as a simple group's
            self._add(ClassicGroup(group_id))
        else:
            self.offsets.pop(group_id, None)

    # -- giving up -----------------------------------------------------------------------------------------

    def _in_portions(
        self, group_id: str, topics: Iterable[str]
    ) -> Iterator[list[tuple[str, int, CommittedOffset]]]:
        """A group's offsets of these topics: each portion as it is when it is asked for."""
        for topic in topics:
            partitions = list(self.offsets.get(group_id, NOTHING).of_topic(topic))
            for first in range(0, len(partitions), TURN_ITEMS_MAX):
                now = self.offsets.get(group_id, NOTHING).of_topic(topic)
                some = partitions[first : first + TURN_ITEMS_MAX]
                yield [(topic, partition, now[partition]) for partition in some if partition in now]

    def _topics_of(self, group_id: str) -> list[str]:
        return list(self.offsets.get(group_id, NOTHING).topics)

    def tombstones_of_group(self, group_id: str) -> Portions:
        """Its offsets first: what is left behind by half of them is a group, not offsets without one."""
        for portion in self._in_portions(group_id, self._topics_of(group_id)):
            yield [offset_tombstone(group_id, topic, partition) for topic, partition, _ in portion]
        yield [CoordinatorRecord(encode_group_key(group_id), None)]

    def hear_of_topics(self, topics: KnownTopics, names: Iterable[str] | None = None) -> Portions:
        """Tombstones of what was committed for topics (of these names; for all) and partitions that are no more.

        A topic that was made again is another one. Offsets that do not say of which topic they are (older brokers
        wrote them) are taken to be of the one that has the name when they are first looked at.
        """
        chosen = None if names is None else dict.fromkeys(names).keys()
        for group_id in list(self.offsets):
            yield []  # looking at it takes its time, too
            found = self.offsets.get(group_id, NOTHING).topics.keys()
            wanted = list(found) if chosen is None else sorted(chosen & found)
            for portion in self._in_portions(group_id, wanted):
                yield [
                    offset_tombstone(group_id, name, partition)
                    for name, partition, value in portion
                    if not _is_of(topics(name), partition, value)
                ]

    # -- in service ----------------------------------------------------------------------------------------

    def transaction_ended(self, producer_id: int, *, committed: bool) -> None:
        """Nothing here waits for one: no transactional offsets are taken."""

    def subjects(self) -> Iterable[ClassicGroup]:
        return self.groups.values()

    def holds(self, group: ClassicGroup) -> bool:
        return self.groups.get(group.id) is group

    def begin(self, group: ClassicGroup, settings: ClassicSettings, now: Now) -> Decision:
        return begin_sessions(group, settings, now)

    def expire(self, group: ClassicGroup, settings: ClassicSettings, now: Now) -> Decision:
        return expire(group, settings, now)

    def waiting(self, group: ClassicGroup) -> Iterable[Ticket]:
        for member in group.members.values():
            yield from (
                ticket for ticket in (member.awaiting_join, member.awaiting_sync) if ticket is not None
            )

    def expire_group(self, group_id: str, retention_ms: int, now_ms: int) -> Portions:
        """What retention takes from a group now, itself included when nothing of it is left."""
        for portion in self._in_portions(group_id, self._topics_of(group_id)):
            group = self.groups.get(group_id)
            if group is None:
                return
            expired = expired_offsets(group, portion, retention_ms, now_ms)
            yield [offset_tombstone(group_id, topic, partition) for topic, partition in expired]
        group = self.groups.get(group_id)
        if (
            group is not None
            and group.state is EMPTY
            and not group.pending
            and not self.offsets.get(group_id)
        ):
            yield [CoordinatorRecord(encode_group_key(group_id), None)]

    def check_deletable(self, group_id: str) -> ErrorCode:
        group = self.groups.get(group_id)
        if group is None or group.state is DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.NONE if group.state is EMPTY else ErrorCode.NON_EMPTY_GROUP

    def offset_count(self, group_id: str) -> int:
        return len(self.offsets.get(group_id, NOTHING))


def _is_of(topic: KnownTopic | None, partition: int, value: CommittedOffset) -> bool:
    """Whether it was committed for this topic, and for a partition that it has, or will be known to have."""
    is_there = topic is not None and topic.has(partition, value.offset)
    topic_id = topic.id if topic is not None and is_there else _NO_TOPIC
    if value.topic_id == NO_TOPIC_ID:
        value.topic_id = topic_id
    return is_there and value.topic_id == topic_id
