"""How a generation comes about: gather the members, form the generation, hand out the plan."""

from penstock.core.error_codes import ErrorCode
from penstock.groups.classic.group import ClassicGroup, Member
from penstock.groups.classic.requests import ClassicSettings, JoinedMember, JoinReply, SyncReply
from penstock.groups.classic.states import COMPLETING, EMPTY, PREPARING, STABLE
from penstock.groups.decision import NEVER, CoordinatorRecord, Decision, Now
from penstock.groups.records.group_value import encode_group_value
from penstock.groups.records.keys import encode_group_key

_LOOK_AGAIN_MS = 1000


def rebalance_or_complete(group: ClassicGroup, settings: ClassicSettings, now: Now, out: Decision) -> None:
    """The membership changed: begin a rebalance, or go on with the one that is under way."""
    if group.state is PREPARING:
        complete_join_if_all_came(group, settings, now, out)
    else:
        prepare(group, settings, now, out)


def prepare(group: ClassicGroup, settings: ClassicSettings, now: Now, out: Decision) -> None:
    if group.state is COMPLETING:
        reset_plan(group, ErrorCode.REBALANCE_IN_PROGRESS, now, out)
    group.sync_deadline = NEVER
    initial = group.state is EMPTY
    group.move_to(PREPARING, now)
    if initial:
        # Give the others time to arrive: one rebalance for all of them instead of one for each.
        group.new_member_added = False
        group.delay_ms = settings.initial_rebalance_delay_ms
        group.delay_left_ms = max(group.rebalance_timeout_ms - group.delay_ms, 0)
        group.set_join_deadline(now.after_ms(group.delay_ms))
    elif group.all_joined:
        complete_join(group, settings, now, out)
    else:
        group.set_join_deadline(now.after_ms(group.rebalance_timeout_ms))


def complete_join_if_all_came(
    group: ClassicGroup, settings: ClassicSettings, now: Now, out: Decision
) -> None:
    # A group that was empty waits out its initial delay, whoever came.
    if group.previous_state is not EMPTY and group.all_joined:
        complete_join(group, settings, now, out)


def join_deadline_passed(group: ClassicGroup, settings: ClassicSettings, now: Now, out: Decision) -> None:
    group.join_deadline = NEVER
    if group.previous_state is EMPTY and group.new_member_added and group.delay_left_ms:
        group.new_member_added = False
        delay_ms = min(settings.initial_rebalance_delay_ms, group.delay_left_ms)
        group.delay_left_ms = max(group.delay_left_ms - group.delay_ms, 0)
        group.delay_ms = delay_ms
        group.set_join_deadline(now.after_ms(delay_ms))
    else:
        complete_join(group, settings, now, out)


def complete_join(group: ClassicGroup, settings: ClassicSettings, now: Now, out: Decision) -> None:
    """Form the next generation of those who came."""
    group.join_deadline = NEVER
    for member in [absentee for absentee in group.members.values() if absentee.awaiting_join is None]:
        if member.instance_id is None:
            drop(group, member.id, out)
    if group.members and not _elect_joined_leader(group):
        # Only static members, none of which has come: their sessions decide how long we wait. Without a pause, a
        # rebalance timeout of nothing would make us look again at once, and again, for as long as they last.
        group.set_join_deadline(now.after_ms(max(group.rebalance_timeout_ms, _LOOK_AGAIN_MS)))
        return
    group.generation += 1
    group.pending_sync.clear()
    if not group.members:
        group.protocol = group.leader_id = None
        group.learn_subscriptions()
        group.move_to(EMPTY, now)
        out.records.append(group_record(group))
        return
    group.protocol = group.select_protocol()
    group.learn_subscriptions()
    group.move_to(COMPLETING, now)
    for member in group.members.values():
        ticket = group.take_join_ticket(member)
        if ticket is not None:
            out.reply(ticket, joined(group, member))
        member.is_new = False
        extend_session(group, member, now)
        group.pending_sync[member.id] = None
    group.set_sync_deadline(now.after_ms(group.rebalance_timeout_ms))


def _elect_joined_leader(group: ClassicGroup) -> bool:
    """The leader must be one who came, since somebody has to make the plan."""
    leader = group.members.get(group.leader_id or "")
    if leader is not None and leader.awaiting_join is not None:
        return True
    for member in group.members.values():
        if member.awaiting_join is not None:
            group.leader_id = member.id
            return True
    return False


def joined(group: ClassicGroup, member: Member) -> JoinReply:
    leads = group.leader_id == member.id
    return JoinReply(
        ErrorCode.NONE,
        member.id,
        group.generation,
        group.protocol_type,
        group.protocol,
        group.leader_id or "",
        members=roll_call(group) if leads else None,
    )


def roll_call(group: ClassicGroup) -> list[JoinedMember]:
    return [
        JoinedMember(member.id, member.instance_id, member.metadata(group.protocol))
        for member in group.members.values()
    ]


def set_plan(group: ClassicGroup, now: Now, out: Decision) -> None:
    """Everybody has their assignment: answer those who wait for it, once the record is committed."""
    out.records.append(group_record(group))
    group.move_to(STABLE, now)
    for member in group.members.values():
        ticket, member.awaiting_sync = member.awaiting_sync, None
        if ticket is not None:
            out.reply(
                ticket,
                SyncReply(ErrorCode.NONE, group.protocol_type, group.protocol, member.assignment),
            )
            extend_session(group, member, now)


def reset_plan(group: ClassicGroup, error: ErrorCode, now: Now, out: Decision) -> None:
    for member in group.members.values():
        member.assignment = b""
        ticket, member.awaiting_sync = member.awaiting_sync, None
        if ticket is not None:
            out.reply(ticket, SyncReply(error))
            extend_session(group, member, now)


def drop(group: ClassicGroup, member_id: str, out: Decision) -> None:
    """Take a member out. Whoever waits in its name learns that it is gone, and joins anew if it is still there."""
    member = group.members.get(member_id)
    if member is not None:
        ticket = group.take_join_ticket(member)
        if ticket is not None:
            out.reply(ticket, JoinReply(ErrorCode.UNKNOWN_MEMBER_ID))
        if member.awaiting_sync is not None:
            out.reply(member.awaiting_sync, SyncReply(ErrorCode.UNKNOWN_MEMBER_ID))
    group.remove(member_id)


def extend_session(group: ClassicGroup, member: Member, now: Now) -> None:
    group.set_session(member.id, now.after_ms(member.session_timeout_ms))


def group_record(group: ClassicGroup) -> CoordinatorRecord:
    return CoordinatorRecord(encode_group_key(group.id), encode_group_value(group.stored()))
