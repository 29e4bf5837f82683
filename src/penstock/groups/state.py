"""All groups of one partition of `__consumer_offsets`, and how its records make them.

`apply` is the only way in for what is stored: it is called for every record, the same way when it was just decided as
when it is read back, so that a restart arrives where the broker was. (A classic group's own records are the exception
while it is in service: its members in memory are ahead of what is stored of them.)

Offsets of transactions wait beside the committed ones (`offsets.pending`) until `transaction_ended`. A group that is
nothing but offsets goes with the last of either: one whose only offsets were aborted leaves no trace in memory, as it
leaves none in a log that was compacted.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from penstock.core.error_codes import ErrorCode
from penstock.core.limits import GROUP_BYTES, TURN_ITEMS_MAX
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.classic.requests import ClassicSettings
from penstock.groups.classic.states import DEAD, EMPTY
from penstock.groups.classic.timeouts import begin_sessions, expire
from penstock.groups.decision import CoordinatorRecord, Decision, KnownTopic, KnownTopics, Now, Ticket
from penstock.groups.offsets.commit import offset_tombstone
from penstock.groups.offsets.pending import PendingOffsets
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
    __slots__ = ("groups", "offsets", "pending", "size_bytes", "subjects_bytes")

    def __init__(self) -> None:
        self.size_bytes = 0  # about what groups take, with their offsets and without their members
        self.subjects_bytes = 0  # about what their members take
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets: dict[str, OffsetTable] = {}
        self.pending = PendingOffsets()  # of open transactions; its `size_bytes` is part of ours

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

    def apply(self, key: bytes | None, value: bytes | None, _offset: int = -1, producer_id: int = -1) -> bool:
        """One stored record. False: of a kind that is not known here. DecodeError: damaged; nothing was changed.

        They come in the order of the log: where exactly they are in it makes no difference (`offsets.pending`).
        """
        decoded = decode_key(key or b"")
        match decoded:
            case OffsetKey(group_id, topic, partition):
                if value is None:
                    self._forget_offset(decoded)
                else:
                    offset = decode_offset_value(value)
                    if group_id not in self.groups:
                        self._add(ClassicGroup(group_id))
                    if producer_id >= 0:
                        with self._counted():
                            self.pending.add(producer_id, decoded, offset)
                    else:
                        self.set_offset(group_id, topic, partition, offset)
                        self.overtake(decoded)
            case GroupKey(group_id):
                if value is None:
                    self._forget_group(group_id)
                else:
                    self._add(ClassicGroup.restored(group_id, decode_group_value(value)))
            case _:
                return False
        return True

    def transaction_ended(self, producer_id: int, *, committed: bool) -> None:
        """What the producer's transaction wrote counts from now on, or never."""
        with self._counted():
            ended = list(self.pending.end(producer_id, committed=committed))
        for (group_id, topic, partition), value in ended:
            if value is None:
                self._forget_unused(group_id)
            else:
                self.set_offset(group_id, topic, partition, value)

    def overtake(self, key: OffsetKey) -> None:
        """It was committed without a transaction: those that are open do not change it any more."""
        if key.group in self.pending.by_group:
            with self._counted():
                self.pending.overtake(key)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        before = self.pending.size_bytes
        yield
        self.size_bytes += self.pending.size_bytes - before

    def _forget_offset(self, key: OffsetKey) -> None:
        group_id, topic, partition = key
        with self._counted():
            was_pending = self.pending.forget(key)
        table = self.offsets.get(group_id)
        if table is not None:
            removed = table.remove(topic, partition)
            if removed is not None:
                self.size_bytes -= offset_bytes(removed.metadata)
        if table is not None or was_pending:
            self._forget_unused(group_id)

    def _forget_unused(self, group_id: str) -> None:
        """A group that is nothing but its offsets, and has none."""
        if self.offsets.get(group_id):
            return
        self.offsets.pop(group_id, None)
        group = self.groups.get(group_id)
        if (
            group is not None
            and group.is_simple
            and group.state is EMPTY
            and not group.pending
            and group_id not in self.pending.by_group
        ):
            self._remove(group_id)

    def _forget_group(self, group_id: str) -> None:
        group = self._remove(group_id)
        if group is not None:
            group.state = DEAD
        if (
            self.offsets.get(group_id) or group_id in self.pending.by_group
        ):  # they outlive it, as a simple group's
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

    def _uncommitted(self, group_id: str, topics: Iterable[str] | None = None) -> Iterator[list[OffsetKey]]:
        """Keys that have pending offsets and no committed one: each portion as it is when it is asked for."""
        wanted = None if topics is None else set(topics)
        keys = [
            OffsetKey(group_id, topic, partition)
            for topic, partition in self.pending.of_group(group_id)
            if wanted is None or topic in wanted
        ]
        for first in range(0, len(keys), TURN_ITEMS_MAX):
            waiting, committed = self.pending.of_group(group_id), self.offsets.get(group_id, NOTHING)
            yield [
                key
                for key in keys[first : first + TURN_ITEMS_MAX]
                if key[1:] in waiting and committed.get(key.topic, key.partition) is None
            ]

    def _topics_of(self, group_id: str) -> list[str]:
        return list(self.offsets.get(group_id, NOTHING).topics)

    def tombstones_of_group(self, group_id: str) -> Portions:
        """Its offsets first: what is left behind by half of them is a group, not offsets without one."""
        for portion in self._in_portions(group_id, self._topics_of(group_id)):
            yield [offset_tombstone(group_id, topic, partition) for topic, partition, _ in portion]
        for keys in self._uncommitted(group_id):
            yield [offset_tombstone(*key) for key in keys]
        yield [CoordinatorRecord(encode_group_key(group_id), None)]

    def hear_of_topics(self, topics: KnownTopics, names: Iterable[str] | None = None) -> Portions:
        """Tombstones of what was committed for topics (of these names; for all) that are no more, or never had them.

        A topic that was made again is another one. Offsets that do not say of which topic they are (older brokers
        wrote them) are taken to be of the one that has the name when they are first looked at.

        A tombstone takes pending offsets with it. Where the committed one is of the topic there is, those that are not
        were written before it, and come to nothing by themselves; TxnOffsetCommit sees to it that pending ones are of
        one topic (`stale`).
        """
        chosen = None if names is None else dict.fromkeys(names).keys()
        for group_id in list(self.offsets | self.pending.by_group):
            yield []  # looking at it takes its time, too
            found = self.offsets.get(group_id, NOTHING).topics.keys()
            wanted = list(found) if chosen is None else sorted(chosen & found)
            for portion in self._in_portions(group_id, wanted):
                yield [
                    offset_tombstone(group_id, name, partition)
                    for name, partition, value in portion
                    if not _is_of(topics(name), partition, value)
                ]
            for keys in self._uncommitted(group_id, chosen):
                yield [
                    offset_tombstone(*key)
                    for key in keys
                    if not all(
                        _is_of(topics(key.topic), key.partition, value) for value in self.pending.values(key)
                    )
                ]

    def stale(self, key: OffsetKey, topic_id: bytes) -> bool:
        """Whether something there is of another topic of that name than the one that is about to be committed for.

        It has to go first: afterwards nobody could clear it without what was committed for this one.
        """
        known = self.offsets.get(key.group, NOTHING).get(key.topic, key.partition)
        values = [*self.pending.values(key), *([] if known is None else [known])]
        return any(value.topic_id not in (topic_id, NO_TOPIC_ID) for value in values)

    # -- in service ----------------------------------------------------------------------------------------

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
            if waiting := self.pending.of_group(group_id):  # a transaction is about to renew them
                portion = [entry for entry in portion if entry[:2] not in waiting]
            expired = expired_offsets(group, portion, retention_ms, now_ms)
            yield [offset_tombstone(group_id, topic, partition) for topic, partition in expired]
        group = self.groups.get(group_id)
        if (
            group is not None
            and group.state is EMPTY
            and not group.pending
            and not self.offsets.get(group_id)
            and group_id not in self.pending.by_group
        ):
            yield [CoordinatorRecord(encode_group_key(group_id), None)]

    def check_deletable(self, group_id: str) -> ErrorCode:
        group = self.groups.get(group_id)
        if group is None or group.state is DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.NONE if group.state is EMPTY else ErrorCode.NON_EMPTY_GROUP

    def offset_count(self, group_id: str) -> int:
        """Committed and pending ones."""
        return len(self.offsets.get(group_id, NOTHING)) + len(self.pending.of_group(group_id))


def _is_of(topic: KnownTopic | None, partition: int, value: CommittedOffset) -> bool:
    """Whether it was committed for this topic, and for a partition that it has, or had, or will be known to have."""
    is_there = topic is not None and topic.keeps(partition)
    topic_id = topic.id if topic is not None and is_there else _NO_TOPIC
    if value.topic_id == NO_TOPIC_ID:
        value.topic_id = topic_id
    return is_there and value.topic_id == topic_id
