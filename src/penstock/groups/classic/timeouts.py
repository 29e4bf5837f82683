"""What happens when nothing happens: sessions that end, rebalances nobody completes, members that never sync."""

from penstock.groups.classic.group import ClassicGroup
from penstock.groups.classic.rebalance import (
    drop,
    extend_session,
    join_deadline_passed,
    prepare,
    rebalance_or_complete,
)
from penstock.groups.classic.requests import ClassicSettings
from penstock.groups.classic.states import COMPLETING, EMPTY, PREPARING, STABLE
from penstock.groups.decision import NEVER, Decision, Now


def expire(group: ClassicGroup, settings: ClassicSettings, now: Now) -> Decision:
    """Everything that is due. Afterwards `group.earliest` says when to look again."""
    out = Decision()
    group.earliest = NEVER
    if group.join_deadline <= now.seconds:
        join_deadline_passed(group, settings, now, out)
    if group.sync_deadline <= now.seconds:
        _sync_deadline_passed(group, settings, now, out)
    for member_id, at in list(group.session_deadlines.items()):
        if at <= now.seconds and group.session_deadlines.get(member_id) == at:
            _session_ended(group, member_id, settings, now, out)
    group.earliest = min(
        group.join_deadline, group.sync_deadline, min(group.session_deadlines.values(), default=NEVER)
    )
    return out


def _sync_deadline_passed(group: ClassicGroup, settings: ClassicSettings, now: Now, out: Decision) -> None:
    """Members that joined a generation and never asked for their part of it hold up the others."""
    group.sync_deadline = NEVER
    if group.sync_generation != group.generation or group.state not in (COMPLETING, STABLE):
        return
    silent = list(group.pending_sync)
    if silent:
        for member_id in silent:
            drop(group, member_id, out)
        prepare(group, settings, now, out)


def _session_ended(
    group: ClassicGroup, member_id: str, settings: ClassicSettings, now: Now, out: Decision
) -> None:
    del group.session_deadlines[member_id]
    member = group.members.get(member_id)
    if member is None:
        drop(group, member_id, out)  # it was given an id and never came back with it
    elif not member.is_new and (member.awaiting_join is not None or member.awaiting_sync is not None):
        return  # whoever waits for us is alive; its session goes on with the answer
    else:
        drop(group, member_id, out)
    if group.state is PREPARING or (group.state is not EMPTY and member is not None):
        rebalance_or_complete(group, settings, now, out)


def begin_sessions(group: ClassicGroup, settings: ClassicSettings, now: Now) -> Decision:
    """A group that was read back from its log: its members have a whole session to show up again.

    Some may have shown up already, or joined: their sessions are under way.
    """
    out = Decision()
    for member in group.members.values():
        if member.id not in group.session_deadlines:
            extend_session(group, member, now)
    if len(group.members) > settings.members_max and group.state is STABLE:
        prepare(group, settings, now, out)  # the limit was lowered meanwhile
    return out
