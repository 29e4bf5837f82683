"""The classic group's state machine: transitions, who is answered what, and when."""

import pytest
from tests.unit.groups.lab import RANGE, REBALANCE_S, SESSION_S, Lab

from penstock.core.error_codes import ErrorCode
from penstock.groups.classic.group import ClassicGroup
from penstock.groups.classic.join import NEW_MEMBER_JOIN_TIMEOUT_MS
from penstock.groups.classic.states import (
    COMPLETING,
    DEAD,
    EMPTY,
    PREPARING,
    STABLE,
    TRANSITIONS,
    IllegalTransition,
)
from penstock.groups.records.group_value import decode_group_value


def test_first_members_wait_for_the_initial_delay_and_then_form_a_generation() -> None:
    lab = Lab()
    first = lab.ask()
    assert lab.group.state is PREPARING
    lab.pass_time(2)
    second = lab.ask()
    lab.pass_time(1)
    assert not lab.replies, "somebody came, so the delay goes on"
    lab.pass_time(3)
    assert lab.group.state is COMPLETING
    reply, two = lab.joined(first), lab.joined(second)
    assert (reply.error, reply.generation, reply.leader, reply.protocol) == (
        ErrorCode.NONE,
        1,
        reply.member_id,
        "range",
    )
    assert [member.id for member in reply.members or ()] == [reply.member_id, two.member_id]
    assert (two.leader, two.members) == (reply.member_id, None)


def test_the_initial_delay_ends_with_the_rebalance_timeout_however_many_come() -> None:
    lab = Lab()
    first = lab.ask(rebalance_timeout_ms=7000)
    for _ in range(12):
        lab.pass_time(1)
        if first in lab.replies:
            break
        lab.ask(rebalance_timeout_ms=7000)
    assert lab.joined(first).generation == 1


def test_the_plan_is_handed_out_and_stored() -> None:
    lab = Lab()
    leader, follower = lab.stable()
    assert lab.group.state is STABLE
    replies = [lab.replies[t] for t in lab.replies if t.startswith("sync")]
    assert sorted(reply.assignment for reply in replies) == sorted([leader.encode(), follower.encode()])
    stored = decode_group_value(lab.records[-1].value or b"")
    assert (stored.generation, stored.leader, stored.protocol) == (1, leader, "range")
    assert {member.member_id: member.assignment for member in stored.members} == {
        leader: leader.encode(),
        follower: follower.encode(),
    }


def test_a_follower_waits_for_the_leaders_plan_and_gets_it_again_when_it_asks_again() -> None:
    lab = Lab()
    leader, follower = lab.stable()
    again = lab.sync(follower)
    assert lab.synced(again).assignment == follower.encode()
    assert lab.synced(lab.sync(leader)).assignment == leader.encode()


def test_a_member_without_a_part_in_the_plan_gets_nothing() -> None:
    lab = Lab()
    ticket = lab.ask()
    lab.pass_time(3)
    leader = lab.joined(ticket).member_id
    assert lab.synced(lab.sync(leader, {"stranger": b"x"})).assignment == b""


def test_an_id_is_given_first_where_the_client_can_come_back_with_it() -> None:
    lab = Lab()
    given = lab.joined(lab.ask(id_required=True))
    assert given.error is ErrorCode.MEMBER_ID_REQUIRED
    assert lab.group.state is EMPTY
    ticket = lab.ask(given.member_id, id_required=True)
    lab.pass_time(3)
    assert lab.joined(ticket).member_id == given.member_id


def test_an_id_that_nobody_comes_back_with_is_forgotten_after_a_session() -> None:
    lab = Lab()
    given = lab.joined(lab.ask(id_required=True)).member_id
    lab.pass_time(SESSION_S + 1)
    assert not lab.group.pending
    assert lab.joined(lab.ask(given)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_a_member_that_was_given_an_id() -> None:
    lab = Lab()
    leader, follower = lab.stable()
    given = lab.joined(lab.ask(id_required=True)).member_id
    assert lab.group.state is STABLE
    rejoins = [lab.ask(leader), lab.ask(follower)]
    assert lab.group.state is PREPARING
    assert not any(ticket in lab.replies for ticket in rejoins)
    newcomer = lab.ask(given)
    assert {lab.joined(ticket).generation for ticket in (*rejoins, newcomer)} == {2}


def test_a_new_member_makes_the_others_rejoin() -> None:
    lab = Lab()
    leader, follower = lab.stable()
    newcomer = lab.ask()
    assert lab.group.state is PREPARING
    assert lab.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS
    assert lab.synced(lab.sync(follower)).error is ErrorCode.REBALANCE_IN_PROGRESS
    lab.ask(leader)
    assert newcomer not in lab.replies
    lab.ask(follower)
    assert lab.joined(newcomer).generation == 2
    assert lab.group.state is COMPLETING


def test_members_that_do_not_rejoin_in_time_are_left_behind() -> None:
    lab = Lab()
    leader, follower = lab.stable()
    rejoined = lab.ask(leader)
    lab.pass_time(REBALANCE_S + 1, alive=(follower,))
    assert list(lab.group.members) == [leader]
    assert lab.joined(rejoined).generation == 2
    assert lab.heartbeat(follower) is ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeats_that_stop_end_the_membership() -> None:
    lab = Lab()
    leader, follower = lab.stable()
    lab.pass_time(SESSION_S + 1, alive=(leader,))
    assert list(lab.group.members) == [leader]
    assert lab.group.state is PREPARING
    assert lab.joined(lab.ask(leader)).generation == 2
    assert lab.heartbeat(follower) is ErrorCode.UNKNOWN_MEMBER_ID


def test_whoever_waits_for_an_answer_is_alive() -> None:
    lab = Lab()
    leader, follower = lab.stable()
    waiting = lab.ask(leader)  # the leader asks for a new plan; the follower takes its time
    lab.pass_time(3 * SESSION_S, alive=(follower,))
    assert leader in lab.group.members
    assert waiting not in lab.replies


def test_a_new_member_is_given_up_when_its_rebalance_takes_too_long() -> None:
    lab = Lab()
    leader, _ = lab.stable()
    # The leader keeps the group in its rebalance far beyond what a new member waits.
    lab.group.members[leader].rebalance_timeout_ms = 3 * NEW_MEMBER_JOIN_TIMEOUT_MS
    newcomer = lab.ask()
    lab.pass_time(NEW_MEMBER_JOIN_TIMEOUT_MS / 1000 + 1, alive=(leader,))
    assert lab.joined(newcomer).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_joins_and_never_syncs_is_dropped() -> None:
    lab = Lab()
    tickets = [lab.ask(), lab.ask()]
    lab.pass_time(6)
    leader, silent = (lab.joined(ticket).member_id for ticket in tickets)
    lab.sync(leader, {leader: b"all", silent: b"some"})
    assert lab.group.state is STABLE
    lab.pass_time(REBALANCE_S + 1, alive=(leader, silent))
    assert silent not in lab.group.members
    assert lab.group.state is PREPARING


def test_a_leader_that_never_syncs_is_dropped_and_the_rest_goes_on() -> None:
    lab = Lab()
    tickets = [lab.ask(), lab.ask()]
    lab.pass_time(6)
    leader, follower = (lab.joined(ticket).member_id for ticket in tickets)
    waits = lab.sync(follower)
    lab.pass_time(REBALANCE_S + 1, alive=(leader, follower))
    assert leader not in lab.group.members
    assert lab.synced(waits).error is ErrorCode.REBALANCE_IN_PROGRESS
    again = lab.joined(lab.ask(follower))
    assert (again.generation, again.leader) == (2, follower)


def test_leaving_starts_a_rebalance_and_the_last_one_leaves_an_empty_group() -> None:
    lab = Lab()
    leader, follower = lab.stable()
    assert lab.leave((follower, None)) == [ErrorCode.NONE]
    assert lab.group.state is PREPARING
    assert lab.leave((leader, None)) == [ErrorCode.NONE]
    assert lab.group.state is EMPTY
    stored = decode_group_value(lab.records[-1].value or b"")
    assert (stored.generation, stored.protocol, stored.leader, stored.members) == (2, None, None, [])


def test_whoever_leaves_before_it_joined_disturbs_nobody() -> None:
    lab = Lab()
    lab.stable()
    pending = lab.replies[lab.ask(id_required=True)].member_id
    assert lab.leave((pending, None)) == [ErrorCode.NONE]
    assert lab.group.state is STABLE
    assert not lab.group.pending
    assert lab.group.generation == 1


def test_leaving_while_waiting_to_join_answers_the_join() -> None:
    lab = Lab()
    ticket = lab.ask(id_required=True)
    member_id = lab.joined(ticket).member_id
    waiting = lab.ask(member_id)
    assert lab.leave((member_id, None)) == [ErrorCode.NONE]
    assert lab.joined(waiting).error is ErrorCode.UNKNOWN_MEMBER_ID
    lab.pass_time(3)
    assert lab.group.state is EMPTY


def test_many_leave_at_once_and_each_is_answered() -> None:
    lab = Lab()
    leader, follower = lab.stable()
    pending = lab.joined(lab.ask(id_required=True)).member_id
    codes = lab.leave((leader, None), ("stranger", None), (follower, None), (pending, None))
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE, ErrorCode.NONE]
    assert lab.group.state is EMPTY


@pytest.mark.parametrize(
    ("generation", "member", "expected"),
    [(0, "leader", ErrorCode.ILLEGAL_GENERATION), (None, "stranger", ErrorCode.UNKNOWN_MEMBER_ID)],
)
def test_strangers_and_past_generations_are_told(
    generation: int | None, member: str, expected: ErrorCode
) -> None:
    lab = Lab()
    leader, _ = lab.stable()
    member_id = leader if member == "leader" else member
    assert lab.heartbeat(member_id, generation) is expected
    fields = {} if generation is None else {"generation": generation}
    assert lab.synced(lab.sync(member_id, **fields)).error is expected


@pytest.mark.parametrize(
    "fields",
    [
        {"protocol_type": "connect"},
        {"protocols": (("sticky", b""),)},
        {"protocols": ()},
    ],
)
def test_a_member_that_has_no_protocol_in_common_is_refused(fields: dict[str, object]) -> None:
    lab = Lab()
    lab.stable()
    assert lab.joined(lab.ask(**fields)).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert lab.group.state is STABLE


@pytest.mark.parametrize("fields", [{"protocol_type": ""}, {"protocols": ()}])
def test_a_first_member_must_name_a_protocol(fields: dict[str, object]) -> None:
    lab = Lab()
    assert lab.joined(lab.ask(**fields)).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("fields", [{"protocol": "sticky"}, {"protocol_type": "connect"}])
def test_a_plan_for_another_protocol_is_refused(fields: dict[str, str]) -> None:
    lab = Lab()
    leader, _ = lab.stable()
    assert lab.synced(lab.sync(leader, **fields)).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_protocol_all_support_and_most_prefer_is_chosen() -> None:
    lab = Lab()
    lab.ask(protocols=(("range", b""), ("sticky", b"")))
    lab.ask(protocols=(("sticky", b""), ("range", b"")))
    lab.ask(protocols=(("only-mine", b""), ("sticky", b""), ("range", b"")))
    lab.pass_time(9)
    assert lab.group.protocol == "sticky"


def test_a_group_grows_to_its_largest_size_and_no_further() -> None:
    lab = Lab(members_max=2)
    ids = lab.stable(2)
    assert lab.joined(lab.ask()).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert lab.group.state is STABLE
    assert sorted(lab.group.members) == sorted(ids)
    pending = lab.ask(ids[0])
    assert pending not in lab.replies, "members of the group may rejoin"


def test_a_rejoin_with_nothing_new_changes_nothing_except_for_the_leader() -> None:
    lab = Lab()
    leader, follower = lab.stable()
    reply = lab.joined(lab.ask(follower))
    assert (reply.generation, lab.group.state) == (1, STABLE)
    lab.ask(leader)
    assert lab.group.state is PREPARING


def test_a_rejoin_with_another_subscription_starts_a_rebalance() -> None:
    lab = Lab()
    _, follower = lab.stable()
    lab.ask(follower, protocols=(("range", b"another"),))
    assert lab.group.state is PREPARING


def test_a_lost_join_answer_is_given_again() -> None:
    lab = Lab()
    tickets = [lab.ask(), lab.ask()]
    lab.pass_time(6)
    leader = lab.joined(tickets[0]).member_id
    again = lab.joined(lab.ask(leader))
    assert (again.generation, len(again.members or ())) == (1, 2)
    assert lab.group.state is COMPLETING


def test_the_same_member_that_asks_twice_is_answered_once_with_the_generation() -> None:
    lab = Lab()
    given = lab.joined(lab.ask(id_required=True)).member_id
    first = lab.ask(given)
    second = lab.ask(given)
    assert lab.joined(first).error is ErrorCode.REBALANCE_IN_PROGRESS
    lab.pass_time(3)
    assert lab.joined(second).generation == 1


def test_a_plan_too_large_to_store_is_not_handed_out() -> None:
    lab = Lab(record_bytes_max=1000)
    tickets = [lab.ask(), lab.ask()]
    lab.pass_time(9)
    leader, follower = (lab.joined(ticket).member_id for ticket in tickets)
    waits = lab.sync(follower)
    mine = lab.sync(leader, {follower: bytes(2000)})
    assert {lab.synced(waits).error, lab.synced(mine).error} == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert lab.group.state is PREPARING
    assert not lab.records


def test_five_hundred_members_form_one_generation() -> None:
    lab = Lab(members_max=500)
    ids = lab.stable(500)
    assert len(ids) == 500
    assert lab.group.generation == 1
    assert lab.group.state is STABLE


def test_a_group_is_restored_from_its_record() -> None:
    lab = Lab()
    leader, follower = lab.stable()
    restored = ClassicGroup.restored("g", decode_group_value(lab.records[-1].value or b""))
    assert (restored.state, restored.generation, restored.leader_id) == (STABLE, 1, leader)
    assert restored.members[follower].assignment == follower.encode()
    assert restored.members[follower].protocols == RANGE
    assert restored.subscribed == {"t"}


def test_every_move_is_in_the_table() -> None:
    assert set(TRANSITIONS) == {EMPTY, PREPARING, COMPLETING, STABLE, DEAD}
    lab = Lab()
    with pytest.raises(IllegalTransition):
        lab.group.move_to(STABLE, lab.now)
