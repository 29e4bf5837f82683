"""JoinGroup: who may become a member, under which id, and whether that moves the group.

A dynamic member that has no id is given one first and must come back with it (from version 4 on), so that clients
which time out and ask again do not leave one defunct member behind for every try. A static member is known by its
instance id: the same one again takes over the place, the assignment and (while nothing else changes) the generation
of the one before, which is fenced.
"""

from penstock.core.error_codes import ErrorCode
from penstock.core.limits import GROUP_MEMBER_BYTES
from penstock.groups.classic.group import ClassicGroup, Member
from penstock.groups.classic.rebalance import (
    complete_join_if_all_came,
    drop,
    extend_session,
    group_record,
    joined,
    prepare,
    rebalance_or_complete,
    roll_call,
)
from penstock.groups.classic.requests import UNKNOWN_MEMBER, ClassicSettings, Join, JoinReply, SyncReply
from penstock.groups.classic.states import COMPLETING, DEAD, EMPTY, PREPARING, STABLE
from penstock.groups.decision import Decision, Now, Ticket

# A new member cannot send heartbeats while it waits, and we do not see it disconnect: after this long it is given up,
# and if it is still there it asks again.
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000
# Ids given out that nobody came back with: a client in a loop must not fill the memory.
PENDING_MEMBERS_MAX = 10_000


def join(group: ClassicGroup, request: Join, ticket: Ticket, settings: ClassicSettings, now: Now) -> Decision:
    out = Decision()
    if group.state is DEAD:
        out.reply(ticket, _refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, request))
    elif not _has_room(group, request, settings):
        members = len(group.members)
        drop(group, request.member_id, out)
        out.reply(ticket, JoinReply(ErrorCode.GROUP_MAX_SIZE_REACHED))
        if len(group.members) < members or group.state is PREPARING:
            rebalance_or_complete(group, settings, now, out)  # what it read is somebody else's now
    elif not group.supports(request.protocol_type, request.protocols):
        out.reply(ticket, _refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request))
    elif request.member_id == UNKNOWN_MEMBER:
        _join_new(group, request, ticket, settings, now, out)
    else:
        _join_known(group, request, ticket, settings, now, out)
    return out


def _refused(error: ErrorCode, request: Join) -> JoinReply:
    return JoinReply(error, request.member_id)


def _has_room(group: ClassicGroup, request: Join, settings: ClassicSettings) -> bool:
    # A static member that comes back under a new id takes no more room than it has.
    member = group.members.get(request.member_id or group.static_ids.get(request.instance_id or "", ""))
    told = request.size_bytes() - (member.size_bytes() if member is not None else 0)
    size = group.told_bytes + told
    if member is None:  # else it takes this already
        size += (len(group.members) + 1) * GROUP_MEMBER_BYTES
    if told > 0 and size > settings.members_bytes_max:
        return False
    if group.state is EMPTY:
        return True
    if group.state is PREPARING:
        # By those who wait, not by all: so the last to rejoin a group that has become too large are turned away.
        waits = member is not None and member.awaiting_join is not None
        return waits or group.awaiting_join < settings.members_max
    return member is not None or len(group.members) < settings.members_max


def _join_new(
    group: ClassicGroup, request: Join, ticket: Ticket, settings: ClassicSettings, now: Now, out: Decision
) -> None:
    member_id = request.new_member_id
    if request.instance_id is None:
        if request.id_required:
            if len(group.pending) >= PENDING_MEMBERS_MAX:
                out.reply(ticket, _refused(ErrorCode.GROUP_MAX_SIZE_REACHED, request))
                return
            group.pending[member_id] = None
            group.set_session(member_id, now.after_ms(request.session_timeout_ms))
            out.reply(ticket, JoinReply(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            _add(group, member_id, request, ticket, settings, now, out)
        return
    before = group.static_ids.get(request.instance_id)
    if before is None:
        _add(group, member_id, request, ticket, settings, now, out)
    else:
        _take_over(group, before, request, ticket, settings, now, out)


def _join_known(
    group: ClassicGroup, request: Join, ticket: Ticket, settings: ClassicSettings, now: Now, out: Decision
) -> None:
    member_id = request.member_id
    if member_id in group.pending and request.instance_id is None:
        _add(group, member_id, request, ticket, settings, now, out)
        return
    error = group.check_member(member_id, request.instance_id)
    if error is not ErrorCode.NONE or group.state is EMPTY:
        out.reply(ticket, _refused(error or ErrorCode.UNKNOWN_MEMBER_ID, request))
        return
    member = group.members[member_id]
    unchanged = member.protocols == request.protocols
    if group.state is COMPLETING and unchanged:
        out.reply(ticket, joined(group, member))  # it may not have got the first answer
    elif group.state is STABLE and unchanged and group.leader_id != member_id:
        out.reply(ticket, joined(group, member))
    else:
        _update(group, member, request, ticket, out)
        rebalance_or_complete(group, settings, now, out)


def _add(
    group: ClassicGroup,
    member_id: str,
    request: Join,
    ticket: Ticket,
    settings: ClassicSettings,
    now: Now,
    out: Decision,
) -> None:
    member = Member(
        member_id,
        request.instance_id,
        request.client_id,
        request.client_host,
        request.rebalance_timeout_ms,
        request.session_timeout_ms,
        request.protocols,
        is_new=True,
        awaiting_join=ticket,
    )
    if group.state is PREPARING and group.previous_state is EMPTY:
        group.new_member_added = True
    group.add(member, request.protocol_type)
    group.set_session(member_id, now.after_ms(NEW_MEMBER_JOIN_TIMEOUT_MS))
    rebalance_or_complete(group, settings, now, out)


def _update(group: ClassicGroup, member: Member, request: Join, ticket: Ticket, out: Decision) -> None:
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.session_timeout_ms = request.session_timeout_ms
    group.replace_protocols(member, request.protocols)
    earlier = member.awaiting_join
    group.await_join(member, ticket)
    if earlier is not None:
        # The same member asks again, on another connection as a rule: it is answered there.
        out.reply(earlier, JoinReply(ErrorCode.REBALANCE_IN_PROGRESS, member.id))


def _take_over(
    group: ClassicGroup,
    before: str,
    request: Join,
    ticket: Ticket,
    settings: ClassicSettings,
    now: Now,
    out: Decision,
) -> None:
    """A static member is back under a new id: the old one is fenced, its place goes on."""
    leader_before = group.leader_id
    member = _replaced(group, before, request.new_member_id, out)
    _update(group, member, request, ticket, out)
    extend_session(group, member, now)
    if group.state is COMPLETING:
        # The leader may already be at work on a plan for the old id, in which the new one would get nothing.
        prepare(group, settings, now, out)
    elif group.state is not STABLE:
        complete_join_if_all_came(group, settings, now, out)
    elif group.select_protocol() != group.protocol:
        rebalance_or_complete(group, settings, now, out)
    else:
        group.take_join_ticket(member)
        group.learn_subscriptions()
        out.records.append(group_record(group))
        reply = joined(group, member)
        if not request.may_skip_assignment:
            # An older client that reads its own id as the leader's would make a plan; the old id keeps it from that.
            reply.members, reply.leader = None, leader_before or ""
        elif group.leader_id == member.id:
            reply.skip_assignment, reply.members = True, roll_call(group)
        out.reply(ticket, reply)


def _replaced(group: ClassicGroup, before: str, member_id: str, out: Decision) -> Member:
    member = group.members[before]
    earlier = group.take_join_ticket(member)
    if earlier is not None:
        out.reply(earlier, JoinReply(ErrorCode.FENCED_INSTANCE_ID, before))
    if member.awaiting_sync is not None:
        out.reply(member.awaiting_sync, SyncReply(ErrorCode.FENCED_INSTANCE_ID))
        member.awaiting_sync = None
    led = group.leader_id == before
    waits_for_sync = before in group.pending_sync
    group.remove(before)
    member.id = member_id
    group.add(member, group.protocol_type or "")
    if waits_for_sync:
        group.pending_sync[member_id] = None
    if led:
        group.leader_id = member_id
    return member
