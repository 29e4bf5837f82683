"""ListGroups, DescribeGroups and DeleteGroups on the shards."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.limits import TURN_ITEMS_MAX
from penstock.core.turns import give_way
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.classic.states import DEAD, STABLE, GroupState
from penstock.groups.state import CoordinatorState
from penstock.services.coordinator.group_kind import GroupCoordinator, GroupShard
from penstock.services.coordinator.pending_reply import PendingReply

CLASSIC = "classic"


@dataclass(frozen=True, slots=True)
class GroupListing:
    id: str
    protocol_type: str
    state: str
    type: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupDescription:
    state: str
    protocol_type: str
    protocol: str
    members: tuple[MemberDescription, ...]


class GroupAdminService:
    def __init__(self, runtime: GroupCoordinator) -> None:
        self._runtime = runtime

    async def list(self) -> list[GroupListing]:
        """Every group here; ApiError while some are not known yet. Others have their turn in between."""
        found: list[GroupListing] = []
        for shard in list(self._runtime.shards()):
            shard.check_listed()
            for group in list(shard.state.groups.values()):
                await give_way(len(found))
                if group.state is not DEAD:
                    found.append(
                        GroupListing(group.id, group.protocol_type or "", group.state.value, CLASSIC)
                    )
        return found

    def count(self) -> int:
        return sum(len(shard.state.groups) for shard in self._runtime.shards())

    def members(self, group_ids: Iterable[str]) -> int:
        """Of those of them that are known here."""
        found = 0
        for group_id in group_ids:
            with suppress(ApiError):
                group = self._runtime.shard_of(group_id).state.groups.get(group_id)
                found += len(group.members) if group else 0
        return found

    def states(self) -> dict[str, int]:
        """How many groups are in each state, by its name in snake case; may be asked from a thread."""
        found = {state.name.lower(): 0 for state in GroupState if state is not DEAD}
        for shard in self._runtime.begun():
            for group in list(shard.state.groups.values()):
                if group.state is not DEAD:
                    found[group.state.name.lower()] += 1
        return found

    def describe(self, group_id: str, later: PendingReply) -> None:
        """Fills `later` with a description; refuses with GROUP_ID_NOT_FOUND where there is no such group."""
        try:
            shard = self._runtime.shard_of(group_id)
        except ApiError as error:
            later.refuse(error.code)
            return
        group = shard.state.groups.get(group_id)
        if group is None or group.state is DEAD:
            shard.answer_refused(later, ErrorCode.GROUP_ID_NOT_FOUND)
        else:
            shard.answer(later, _described(group))

    def delete(self, group_id: str, later: PendingReply) -> None:
        """Fills `later` with the outcome's code."""
        try:
            shard = self._runtime.shard_of(group_id)
        except ApiError as error:
            later.refuse(error.code)
            return
        error_code = shard.state.check_deletable(group_id)
        if error_code is not ErrorCode.NONE:
            shard.answer(later, error_code)
            return
        if not shard.may_store():
            later.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        deletion = _delete(shard, shard.state, group_id, later)
        if shard.state.offset_count(group_id) > TURN_ITEMS_MAX:
            shard.state.groups[group_id].state = DEAD  # half of it is nobody's business: it is refused to all
            self._runtime.in_turns(deletion)
        else:
            for _ in deletion:
                pass


def _delete(shard: GroupShard, state: CoordinatorState, group_id: str, later: PendingReply) -> Iterator[None]:
    yield from shard.store_in_turns(state, partial(state.tombstones_of_group, group_id))
    if shard.state is state:
        shard.answer(later, ErrorCode.NONE)
    else:
        later.refuse(ErrorCode.NOT_COORDINATOR)


def _described(group: ClassicGroup) -> GroupDescription:
    # As in Kafka: what members brought is shown once it is settled, and until they get another part what they had.
    settled = group.state is STABLE
    return GroupDescription(
        group.state.value,
        group.protocol_type or "",
        (group.protocol or "") if settled else "",
        tuple(
            MemberDescription(
                member.id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.metadata(group.protocol) if settled else b"",
                member.assignment,
            )
            for member in group.members.values()
        ),
    )
