"""LeaveGroup: members that say goodbye, or that somebody else takes out by their instance id."""

from collections.abc import Iterable

from penstock.core.error_codes import ErrorCode
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.classic.rebalance import drop, rebalance_or_complete
from penstock.groups.classic.requests import UNKNOWN_MEMBER, ClassicSettings, Leaver, LeaveReply
from penstock.groups.classic.states import PREPARING
from penstock.groups.decision import Decision, Now, Ticket


def leave(
    group: ClassicGroup, leavers: Iterable[Leaver], ticket: Ticket, settings: ClassicSettings, now: Now
) -> Decision:
    out = Decision()
    members = len(group.members)
    replies = [
        LeaveReply(leaver.member_id, leaver.instance_id, _leave(group, leaver, out)) for leaver in leavers
    ]
    # Who was only given an id has no part in the plan: its going matters only to a rebalance that waits for it.
    if len(group.members) < members or (group.state is PREPARING and _any_left(replies)):
        rebalance_or_complete(group, settings, now, out)
    out.reply(ticket, replies)
    return out


def _any_left(replies: Iterable[LeaveReply]) -> bool:
    return any(reply.error is ErrorCode.NONE for reply in replies)


def _leave(group: ClassicGroup, leaver: Leaver, out: Decision) -> ErrorCode:
    member_id = leaver.member_id
    if member_id == UNKNOWN_MEMBER:
        # An administrator, who knows the instance but not which process it is.
        current = group.static_ids.get(leaver.instance_id or "")
        if leaver.instance_id is None or current is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        drop(group, current, out)
        return ErrorCode.NONE
    if member_id in group.pending:
        drop(group, member_id, out)
        return ErrorCode.NONE
    error = group.check_member(member_id, leaver.instance_id)
    if error is ErrorCode.NONE:
        drop(group, member_id, out)
    return error
