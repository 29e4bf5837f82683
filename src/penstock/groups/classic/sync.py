"""SyncGroup: the leader brings the plan, everybody gets their part. Heartbeat: a member says that it is there."""

from penstock.core.error_codes import ErrorCode
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.classic.rebalance import extend_session, prepare, reset_plan, set_plan
from penstock.groups.classic.requests import ClassicSettings, Sync, SyncReply
from penstock.groups.classic.states import DEAD, EMPTY, PREPARING, STABLE
from penstock.groups.decision import NEVER, Decision, Now, Ticket


def sync(group: ClassicGroup, request: Sync, ticket: Ticket, settings: ClassicSettings, now: Now) -> Decision:
    out = Decision()
    error = _check(group, request)
    if error is not ErrorCode.NONE:
        out.reply(ticket, SyncReply(error))
        return out
    member = group.members[request.member_id]
    group.pending_sync.pop(member.id, None)
    if not group.pending_sync:
        group.sync_deadline = NEVER
    if group.state is STABLE:
        extend_session(group, member, now)
        out.reply(ticket, SyncReply(ErrorCode.NONE, group.protocol_type, group.protocol, member.assignment))
        return out
    if member.awaiting_sync is not None:  # asks again, on another connection as a rule
        out.reply(member.awaiting_sync, SyncReply(ErrorCode.REBALANCE_IN_PROGRESS))
    member.awaiting_sync = ticket
    if group.leader_id == member.id:
        _plan(group, request, settings, now, out)
    return out


def _check(group: ClassicGroup, request: Sync) -> ErrorCode:
    if group.state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.check_member(request.member_id, request.instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    for named, current in (
        (request.protocol_type, group.protocol_type),
        (request.protocol, group.protocol),
    ):
        if named is not None and named != current:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is PREPARING:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _plan(group: ClassicGroup, request: Sync, settings: ClassicSettings, now: Now, out: Decision) -> None:
    for member in group.members.values():
        member.assignment = request.assignments.get(member.id, b"")
    if _stored_bytes(group) > settings.record_bytes_max:
        # What cannot be stored must not be handed out.
        reset_plan(group, ErrorCode.UNKNOWN_SERVER_ERROR, now, out)
        prepare(group, settings, now, out)
    else:
        set_plan(group, now, out)


def _stored_bytes(group: ClassicGroup) -> int:
    """About as many as its record will have, without building it twice."""
    return sum(
        len(member.id)
        + len(member.client_id)
        + len(member.client_host)
        + len(member.assignment)
        + len(member.metadata(group.protocol))
        + 32
        for member in group.members.values()
    )


def heartbeat(
    group: ClassicGroup, member_id: str, instance_id: str | None, generation: int, now: Now
) -> ErrorCode:
    if group.state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.check_member(member_id, instance_id)
    if error is not ErrorCode.NONE:
        return error
    if generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    extend_session(group, group.members[member_id], now)
    # In the middle of COMPLETING a heartbeat is as good as any: the member waits for the plan.
    return ErrorCode.REBALANCE_IN_PROGRESS if group.state is PREPARING else ErrorCode.NONE
