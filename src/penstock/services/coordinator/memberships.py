"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: finds the group, has it decided, carries it out."""

from collections.abc import Sequence

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.limits import (
    GROUPS_MEMBERS_BYTES_MAX,
    MEMBER_BYTES_SMALL_MAX,
    MEMBER_ID_NAME_CHARS_MAX,
)
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.classic.join import join
from penstock.groups.classic.leave import leave
from penstock.groups.classic.requests import (
    UNKNOWN_MEMBER,
    Join,
    JoinReply,
    Leaver,
    LeaveReply,
    Sync,
    SyncReply,
)
from penstock.groups.classic.sync import heartbeat, sync
from penstock.groups.decision import Now
from penstock.services.coordinator.group_kind import GroupCoordinator, GroupShard
from penstock.services.coordinator.group_room import GroupRoom
from penstock.services.coordinator.pending_reply import PendingReply

# A name that takes more bytes cannot be stored.
_NAME_BYTES_MAX = 0x7FFF
# The two highest bits of a UUID's seventeenth digit are 10.
_VARIANTS = {f"{digit:x}": f"{digit & 3 | 8:x}" for digit in range(16)}


class MembershipService:
    def __init__(self, runtime: GroupCoordinator) -> None:
        self._runtime = runtime
        self._room = GroupRoom(runtime)

    def new_member_id(self, client_id: str, instance_id: str | None) -> str:
        """As Kafka makes them: the client's name and a random UUID (version 4)."""
        digits = f"{self._runtime.rng.getrandbits(128):032x}"
        variant = _VARIANTS[digits[16]]
        unique = f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"
        name = client_id if instance_id is None else instance_id
        return f"{name[:MEMBER_ID_NAME_CHARS_MAX]}-{unique}"

    def join(self, request: Join, later: PendingReply) -> None:
        shard = self._storing(request.group_id, later)
        if shard is None:
            return
        settings = shard.settings
        if (
            not settings.session_timeout_min_ms
            <= request.session_timeout_ms
            <= settings.session_timeout_max_ms
        ):
            later.fill(JoinReply(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id))
            return
        if not _is_storable(request):
            later.fill(JoinReply(ErrorCode.INVALID_REQUEST, request.member_id))
            return
        told = request.size_bytes()
        if told > MEMBER_BYTES_SMALL_MAX and self._runtime.subjects_bytes + told > GROUPS_MEMBERS_BYTES_MAX:
            later.fill(JoinReply(ErrorCode.COORDINATOR_NOT_AVAILABLE, request.member_id))
            return
        now = shard.now()
        error = self._refusal(shard.state.groups.get(request.group_id), request, now)
        if error is not ErrorCode.NONE:
            shard.answer(later, JoinReply(error, request.member_id))
            return
        group = shard.state.get_or_create(request.group_id, now)
        shard.decide(group, lambda: join(group, request, later, settings, now), later)

    def _refusal(self, group: ClassicGroup | None, request: Join, now: Now) -> ErrorCode:
        """Of who is not there yet; whoever is may join again."""
        if request.member_id != UNKNOWN_MEMBER:
            return ErrorCode.UNKNOWN_MEMBER_ID if group is None else ErrorCode.NONE
        if group is None:
            # Nothing that passes soon: clients give up, and say so.
            has_room = self._room.has_for_group(now.seconds)
            return ErrorCode.NONE if has_room else ErrorCode.GROUP_MAX_SIZE_REACHED
        if request.instance_id in group.static_ids or self._room.has_for_member(now.seconds):
            return ErrorCode.NONE
        return ErrorCode.COORDINATOR_NOT_AVAILABLE  # members go, so the next attempt may find room

    def sync(self, request: Sync, later: PendingReply) -> None:
        shard = self._storing(request.group_id, later)
        if shard is None:
            return
        group = shard.state.groups.get(request.group_id)
        if group is None:
            shard.answer(later, SyncReply(ErrorCode.UNKNOWN_MEMBER_ID))
        else:
            shard.decide(group, lambda: sync(group, request, later, shard.settings, shard.now()), later)

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, later: PendingReply
    ) -> None:
        shard = self._shard(group_id, later)
        if shard is None:
            return
        group = shard.state.groups.get(group_id)
        if group is None:
            shard.answer(later, ErrorCode.UNKNOWN_MEMBER_ID)
        else:
            shard.answer(later, heartbeat(group, member_id, instance_id, generation, shard.now()))

    def leave(self, group_id: str, leavers: Sequence[Leaver], later: PendingReply) -> None:
        shard = self._storing(group_id, later)
        if shard is None:
            return
        group = shard.state.groups.get(group_id)
        if group is None:
            unknown = [
                LeaveReply(leaver.member_id, leaver.instance_id, ErrorCode.UNKNOWN_MEMBER_ID)
                for leaver in leavers
            ]
            shard.answer(later, unknown)
        else:
            shard.decide(group, lambda: leave(group, leavers, later, shard.settings, shard.now()), later)

    def _storing(self, group_id: str, later: PendingReply) -> GroupShard | None:
        """For whatever may change the group, at once or together with what others ask for."""
        shard = self._shard(group_id, later)
        if shard is None or shard.may_store():
            return shard
        later.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return None

    def _shard(self, group_id: str, later: PendingReply) -> GroupShard | None:
        if not group_id:
            later.refuse(ErrorCode.INVALID_GROUP_ID)
            return None
        try:
            return self._runtime.shard_of(group_id)
        except ApiError as error:
            later.refuse(error.code)
            return None


def _is_storable(request: Join) -> bool:
    names = [request.group_id, request.new_member_id, request.client_id, request.protocol_type]
    names += [request.instance_id or "", *(name for name, _ in request.protocols)]
    # A character takes four bytes at most: nearly always, counting characters is enough.
    return max(map(len, names)) <= _NAME_BYTES_MAX // 4 or all(
        len(name.encode()) <= _NAME_BYTES_MAX for name in names
    )
