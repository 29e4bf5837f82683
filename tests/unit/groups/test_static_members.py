"""Static members: known by their instance id, back in their place after a restart, fenced when there are two."""

from tests.unit.groups.lab import REBALANCE_S, SESSION_S, Lab

from penstock.core.error_codes import ErrorCode
from penstock.groups.classic.states import COMPLETING, EMPTY, PREPARING, STABLE
from penstock.groups.records.group_value import decode_group_value


def test_a_restart_takes_the_old_place_without_a_rebalance() -> None:
    lab = Lab()
    leader, follower = lab.stable(static=True)
    instance = lab.group.members[follower].instance_id
    reply = lab.joined(lab.ask(instance_id=instance))
    assert (reply.error, reply.generation, lab.group.state) == (ErrorCode.NONE, 1, STABLE)
    assert reply.member_id != follower
    assert lab.synced(lab.sync(reply.member_id, instance_id=instance)).assignment == follower.encode()
    stored = decode_group_value(lab.records[-1].value or b"")
    assert {member.member_id for member in stored.members} == {leader, reply.member_id}


def test_the_one_before_is_fenced() -> None:
    lab = Lab()
    _, follower = lab.stable(static=True)
    instance = lab.group.members[follower].instance_id
    lab.ask(instance_id=instance)
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert lab.heartbeat(follower, instance_id=instance) is fenced
    assert lab.synced(lab.sync(follower, instance_id=instance)).error is fenced
    assert lab.joined(lab.ask(follower, instance_id=instance)).error is fenced
    assert lab.leave((follower, instance)) == [fenced]


def test_one_that_waits_is_fenced_where_it_waits() -> None:
    lab = Lab()
    first = lab.ask(instance_id="i0")
    second = lab.ask(instance_id="i0")
    assert lab.joined(first).error is ErrorCode.FENCED_INSTANCE_ID
    lab.pass_time(3)
    assert lab.joined(second).generation == 1
    assert len(lab.group.members) == 1


def test_a_returning_leader_makes_no_plan() -> None:
    lab = Lab()
    leader, _ = lab.stable(static=True)
    instance = lab.group.members[leader].instance_id
    reply = lab.joined(lab.ask(instance_id=instance))
    assert reply.skip_assignment
    assert (reply.leader, len(reply.members or ())) == (reply.member_id, 2)
    old_client = lab.joined(lab.ask(instance_id=instance, may_skip_assignment=False))
    assert (old_client.leader, old_client.members) == (reply.member_id, None)
    assert not old_client.skip_assignment


def test_a_return_with_another_protocol_starts_a_rebalance() -> None:
    lab = Lab()
    protocols = (("range", b""), ("sticky", b""))
    tickets = [lab.ask(instance_id=f"i{n}", protocols=protocols) for n in range(2)]
    lab.pass_time(9)
    leader = lab.joined(tickets[0]).member_id
    lab.sync(lab.joined(tickets[1]).member_id)
    lab.sync(leader)
    lab.ask(instance_id="i1", protocols=(("sticky", b""),))
    assert lab.group.state is PREPARING


def test_a_return_while_the_plan_is_made_starts_over() -> None:
    lab = Lab()
    tickets = [lab.ask(instance_id=f"i{n}") for n in range(2)]
    lab.pass_time(9)
    assert lab.group.state is COMPLETING
    leader = lab.joined(tickets[0]).member_id
    back = lab.ask(instance_id="i1")
    assert lab.group.state is PREPARING
    lab.ask(leader, instance_id="i0")
    assert lab.joined(back).generation == 2


def test_its_place_is_kept_for_a_session_also_through_a_rebalance() -> None:
    lab = Lab()
    leader, follower = lab.stable(static=True)
    lab.ask(leader, instance_id=lab.group.members[leader].instance_id)
    lab.seconds += REBALANCE_S - SESSION_S + 3
    lab.group.set_session(follower, lab.seconds + SESSION_S)
    lab.pass_time(SESSION_S - 2)
    assert follower in lab.group.members, "not rejoined, and yet not dropped"
    assert lab.group.generation == 2
    lab.pass_time(SESSION_S + 1, alive=(leader,))
    assert follower not in lab.group.members


def test_an_administrator_removes_one_by_its_instance_id() -> None:
    lab = Lab()
    _, follower = lab.stable(static=True)
    instance = lab.group.members[follower].instance_id
    assert lab.leave(("", instance), ("", "stranger"), ("", None)) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert follower not in lab.group.members


def test_a_full_group_has_room_for_a_static_member_that_returns() -> None:
    lab = Lab(members_max=2)
    _, follower = lab.stable(static=True)
    instance = lab.group.members[follower].instance_id
    assert lab.joined(lab.ask(instance_id=instance)).error is ErrorCode.NONE


def test_a_rebalance_that_is_given_no_time_is_not_looked_at_all_the_time() -> None:
    lab = Lab()
    tickets = [lab.ask(instance_id=f"i{n}", rebalance_timeout_ms=n * 60_000) for n in range(2)]
    lab.pass_time(9)
    hasty, other = (lab.joined(ticket).member_id for ticket in tickets)
    for member in (hasty, other):
        lab.sync(member, instance_id=lab.group.members[member].instance_id)
    assert lab.group.state is STABLE
    lab.leave((other, "i1"))
    lab.pass_time(1)
    assert hasty in lab.group.members
    assert lab.group.earliest >= lab.seconds + 1, "the next look"
    lab.pass_time(SESSION_S + 1)
    assert lab.group.state is EMPTY
