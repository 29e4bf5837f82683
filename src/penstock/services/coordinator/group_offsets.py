"""OffsetCommit, OffsetFetch and OffsetDelete on the shards."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.groups.classic.states import DEAD, EMPTY
from penstock.groups.offsets.commit import (
    Committer,
    check_committer,
    expiry,
    keep_session,
    offset_tombstone,
)
from penstock.groups.offsets.pending import unstable_partitions
from penstock.groups.offsets.table import NOTHING, LiveOffsets, OffsetTable, StableOffsets, offset_bytes
from penstock.groups.records.keys import OffsetKey, encode_offset_key
from penstock.groups.records.offset_value import CommittedOffset, encode_offset_value
from penstock.groups.state import CoordinatorState, Portions
from penstock.services.coordinator.group_kind import GroupCoordinator, GroupShard
from penstock.services.coordinator.group_room import GroupRoom
from penstock.services.coordinator.pending_reply import PendingReply
from penstock.services.coordinator.shard import Status

# (topic, its id, partition, offset, leader epoch, metadata)
Entry = tuple[str, bytes, int, int, int, str | None]
_NAME_BYTES_MAX = 0x7FFF
_NONE = ErrorCode.NONE  # looking it up in its class takes longer than all that is done with it


class GroupOffsetService:
    def __init__(self, runtime: GroupCoordinator) -> None:
        self._runtime = runtime
        self.room = GroupRoom(runtime)
        self.commits = 0

    def commit(self, by: Committer, entries: Sequence[Entry], retention_ms: int, later: PendingReply) -> None:
        """Store offsets for a group; fills `later` with a code for each once they are committed."""
        group_id = by.group_id
        shard = self._shard(group_id, later)
        if shard is None:
            return
        state = shard.state
        group = state.groups.get(group_id)
        code = check_committer(group, by)
        if code is not _NONE:
            shard.answer_refused(later, code)
            return
        if group is None and not is_storable(group_id):
            shard.answer_refused(later, ErrorCode.INVALID_GROUP_ID)
            return
        if group is None and not self.room.has_for_group(shard.now().seconds):
            shard.answer_refused(later, ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
            return
        if not shard.may_store():
            later.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        now_ms = shard.wall_ms()
        expires_ms = expiry(retention_ms, now_ms)
        codes = []
        left_bytes: int | None = None  # looked up for what is new alone
        in_transactions = group_id in state.pending.by_group
        try:
            if group is None:
                state.get_or_create(group_id, shard.now())
            elif by.member_id:
                keep_session(group, by.member_id, shard.now())
            offsets = state.offsets_of(group_id)
            for topic, topic_id, partition, offset, leader_epoch, metadata in entries:
                if metadata and not self._takes_metadata(metadata):
                    codes.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                    continue
                committed = offsets.topics.get(topic)
                known = None if committed is None else committed.get(partition)
                if known is None or metadata or known.metadata:
                    growth = offset_bytes(metadata or "") - (offset_bytes(known.metadata) if known else 0)
                    left_bytes = self.room.left_bytes if left_bytes is None else left_bytes
                    if growth > 0 and not self.room.has_for_offset(growth, left_bytes, shard.now().seconds):
                        codes.append(ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
                        continue
                    left_bytes -= growth
                    state.size_bytes += growth
                value = CommittedOffset(offset, leader_epoch, metadata or "", now_ms, expires_ms, topic_id)
                # Encoded first: what cannot be stored must not be in memory either.
                key, encoded = encode_offset_key(group_id, topic, partition), encode_offset_value(value)
                if committed is None:
                    offsets.set(topic, partition, value)
                else:
                    committed[partition] = value
                if in_transactions:
                    state.overtake(OffsetKey(group_id, topic, partition))
                shard.append_applied(key, encoded, now_ms)
                codes.append(_NONE)
        except Exception as error:
            shard.fail(error, later)
            return
        self.commits += len(codes)
        shard.answer(later, codes)

    def _takes_metadata(self, metadata: str) -> bool:
        return takes_metadata(metadata, self._runtime.config.now.offset_metadata_max_bytes)

    def fetch(
        self,
        group_id: str,
        chosen: Callable[[OffsetTable], Any],
        later: PendingReply,
        *,
        require_stable: bool = False,
    ) -> None:
        """Fills `later` with what `chosen` takes from the group's offsets as they are now, once all is committed.

        `require_stable`: those that an open transaction may change are `UNSTABLE`.
        """
        shard = self._shard(group_id, later)
        if shard is None:
            return
        group = shard.state.groups.get(group_id)
        if group is not None and group.state is DEAD:
            # Half of them are gone: who asks again is told that there are none.
            shard.answer_refused(later, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return
        offsets = shard.state.offsets.get(group_id, NOTHING)
        if shard.unheard is not None or self._hides_some(offsets):
            offsets = LiveOffsets(offsets, self._runtime.known_topic)
        if require_stable and (waiting := shard.state.pending.of_group(group_id)):
            offsets = StableOffsets(offsets, unstable_partitions(waiting))
        shard.answer(later, chosen(offsets))

    def _hides_some(self, offsets: OffsetTable) -> bool:
        """Whether some may be of partitions that were removed: they are kept, and not listed (`KnownTopic`)."""
        known = map(self._runtime.known_topic, offsets.topics)
        return any(topic is not None and topic.removed for topic in known)

    def have_more_than(self, most: int, groups: Iterable[str]) -> bool:
        """Whether these groups, as far as they are here, have more than so many offsets."""
        found = 0
        for group_id in groups:
            try:
                shard = self._runtime.shard_of(group_id)
            except ApiError:
                continue
            found += shard.state.offset_count(group_id)
            if found > most:
                return True
        return False

    def delete(self, group_id: str, wanted: Iterable[tuple[str, int]], later: PendingReply) -> None:
        """Forget offsets of topics that no member reads; fills `later` with a code for each."""
        if not group_id:
            later.refuse(ErrorCode.INVALID_GROUP_ID)
            return
        shard = self._shard(group_id, later)
        if shard is None:
            return
        group = shard.state.groups.get(group_id)
        if group is None or group.state is DEAD:
            shard.answer_refused(later, ErrorCode.GROUP_ID_NOT_FOUND)
            return
        if group.state is not EMPTY and not group.uses_consumer_protocol:
            shard.answer_refused(later, ErrorCode.NON_EMPTY_GROUP)
            return
        offsets, waiting = shard.state.offsets.get(group_id, NOTHING), shard.state.pending.of_group(group_id)
        codes, gone = [], []
        for topic, partition in wanted:
            if group.state is not EMPTY and group.is_subscribed_to(topic):
                codes.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
                continue
            if offsets.get(topic, partition) is not None or (topic, partition) in waiting:
                gone.append(offset_tombstone(group_id, topic, partition))
            codes.append(ErrorCode.NONE)
        if gone and not shard.may_store():
            later.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        shard.store(gone)
        shard.answer(later, codes)

    async def run(self) -> None:
        """Until cancelled: offsets are given up when their time has come."""
        while True:
            await asyncio.sleep(self._runtime.config.now.offsets_retention_check_interval_ms / 1000)
            await self.expire()

    async def expire(self) -> None:
        """Drop what nobody has used for as long as it is kept."""
        retention_ms = self._runtime.config.now.offsets_retention_minutes * 60_000
        for shard in self._runtime.begun():
            if shard.status is Status.ACTIVE and shard.may_store():
                rule = partial(_expired, shard, shard.state, retention_ms)
                for _ in shard.store_in_turns(shard.state, rule):
                    await asyncio.sleep(0)

    def _shard(self, group_id: str, later: PendingReply) -> GroupShard | None:
        try:
            return self._runtime.shard_of(group_id)
        except ApiError as error:
            later.refuse(error.code)
            return None


def _expired(shard: GroupShard, state: CoordinatorState, retention_ms: int) -> Portions:
    for group_id in list(state.groups):
        yield []  # looking at it takes its time, too
        yield from state.expire_group(group_id, retention_ms, shard.wall_ms())


def is_storable(text: str) -> bool:
    """Whether its bytes fit the field; those that were no UTF-8 have grown when they were read."""
    return len(text) <= _NAME_BYTES_MAX // 4 or len(text.encode()) <= _NAME_BYTES_MAX


def takes_metadata(metadata: str, size_max: int) -> bool:
    return len(metadata) <= size_max and is_storable(metadata)
