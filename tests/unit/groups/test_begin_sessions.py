"""Groups that were read from their log: their sessions begin in turns, where a shard has many."""

from dataclasses import replace

from tests.unit.groups.lab import SESSION_S, Lab

from penstock.groups.classic.states import PREPARING
from penstock.groups.classic.timeouts import begin_sessions


def test_who_shows_up_before_the_sessions_of_its_group_begin_keeps_its_own() -> None:
    lab = Lab()
    first, second = lab.stable(2)
    lab.settings = replace(lab.settings, members_max=1)  # lowered meanwhile
    lab.group.session_deadlines.clear()  # as it was read
    lab.heartbeat(first)
    lab.seconds += 3
    lab.ask(first)  # the leader: a rebalance begins
    assert lab.group.state is PREPARING
    begin_sessions(lab.group, lab.settings, lab.now)
    sessions = lab.group.session_deadlines
    assert [sessions[member] - lab.seconds for member in (first, second)] == [SESSION_S - 3, SESSION_S]
    assert lab.group.state is PREPARING
