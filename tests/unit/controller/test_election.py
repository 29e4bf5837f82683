"""Who leads, and who may: what becomes of a partition when brokers come, go, crash and leave."""

from dataclasses import replace

import pytest

from penstock.controller.election import (
    NOBODY,
    ReplicaEnd,
    Rules,
    World,
    lead_by_log_end,
    needs_log_ends,
    react,
    with_isr,
)
from penstock.controller.moves import elect_unclean
from penstock.coordination.nodes import PartitionState

THREE = PartitionState(replicas=(1, 2, 3), isr=(1, 2, 3), leader=1, leader_epoch=5, partition_epoch=9)
ALL = World(live=(1, 2, 3))
TWO = Rules(min_isr=2)


def test_nothing_changes_while_all_is_well() -> None:
    assert react(THREE, ALL, TWO) is THREE


def test_a_dead_leader_is_replaced_by_the_next_in_sync() -> None:
    after = react(replace(THREE, isr=(1, 3)), World(live=(2, 3)), Rules())
    assert (after.leader, after.leader_epoch, after.isr) == (3, 6, (3,))


def test_a_dead_follower_leaves_and_the_epoch_stays() -> None:
    after = react(THREE, World(live=(1, 2)), TWO)
    assert (after.leader, after.leader_epoch, after.isr, after.eligible) == (1, 5, (1, 2), ())


def test_who_leaves_below_the_minimum_stays_eligible() -> None:
    after = react(replace(THREE, isr=(1, 2)), World(live=(1, 3)), TWO)
    assert (after.leader, after.isr, after.eligible) == (1, (1,), (2,))
    after = react(after, World(live=(3,)), TWO)
    assert (after.leader, after.isr, after.eligible) == (NOBODY, (), (2, 1))
    assert react(after, World(live=(3,)), TWO) is after
    back = react(after, World(live=(2, 3)), TWO)
    assert (back.leader, back.isr, back.eligible, back.leader_epoch) == (2, (2,), (1,), 7)


def test_nobody_outside_leads_unless_the_topic_allows_it() -> None:
    state = replace(THREE, isr=(1,))
    assert react(state, World(live=(2, 3)), Rules()).leader == NOBODY
    gone = replace(state, leader=NOBODY, isr=(), eligible=())
    assert react(gone, World(live=(2, 3)), Rules(unclean=True)).leader == 2


def test_where_the_topic_allows_it_another_leads_when_all_that_were_in_sync_are_dead() -> None:
    unclean = Rules(min_isr=2, unclean=True)
    after = react(replace(THREE, isr=(1,), eligible=(2,)), World(live=(3,)), unclean)
    assert (after.leader, after.leader_epoch) == (3, 6)
    assert (after.isr, after.eligible, after.suspects) == ((3,), (), ())
    back = react(after, World(live=(1, 2, 3)), unclean)
    assert (back.leader, back.isr, back.eligible) == (3, (3,), ())  # they have lost their claim


def test_an_unclean_election_takes_who_has_everything_where_it_can() -> None:
    unclean = Rules(min_isr=2, unclean=True)
    eligible = react(replace(THREE, isr=(1,), eligible=(3,)), World(live=(2, 3)), unclean)
    assert eligible.leader == 3
    crashed = react(THREE, World(live=(1, 2, 3), unsettled=(1, 2, 3)), unclean)
    assert crashed.leader == NOBODY
    assert needs_log_ends(crashed, ALL, unclean)
    two = World(live=(2, 3))  # one of them does not come back
    assert react(crashed, two, unclean).leader == NOBODY
    assert needs_log_ends(crashed, two, unclean)
    assert not needs_log_ends(crashed, two, TWO)


def test_a_suspect_has_more_than_who_fell_behind_before() -> None:
    """2 led alone, and crashed; 3 has lagged for days."""
    state = replace(THREE, replicas=(3, 1, 2), isr=(2,), leader=2, eligible=(1,))
    after = react(state, World(live=(2, 3), unsettled=(2,)), Rules(min_isr=2, unclean=True))
    assert (after.leader, after.suspects) == (NOBODY, (2,))
    ends = {2: ReplicaEnd(5, 9), 3: ReplicaEnd(6, 99)}
    led = lead_by_log_end(after, ends, unclean=True)
    assert led is not None
    assert (led.leader, led.isr, led.leader_epoch) == (2, (2,), after.leader_epoch + 1)


def test_who_crashed_may_not_lead_and_is_suspect_until_a_leader_speaks() -> None:
    after = react(THREE, World(live=(1, 2, 3), unsettled=(1,)), TWO)
    assert (after.leader, after.isr, after.suspects, after.leader_epoch) == (2, (2, 3), (1,), 6)
    assert with_isr(after, (2, 3), TWO).suspects == ()


@pytest.mark.parametrize("world", [World(live=(1, 2)), World(live=(1, 2, 3), stopping=(3,))])
def test_whoever_leaves_without_the_leaders_word_is_suspect_until_that_speaks(world: World) -> None:
    """Those that stay are only registered: 3 may be the one that has everything."""
    after = react(THREE, world, TWO)
    assert (after.leader, after.isr, after.eligible, after.suspects) == (1, (1, 2), (), (3,))
    assert with_isr(after, (1, 2), TWO).suspects == ()
    lost = react(after, World(live=(1, 2, 3), unsettled=(1, 2)), TWO)
    assert (lost.leader, lost.isr, set(lost.suspects)) == (NOBODY, (), {1, 2, 3})
    assert needs_log_ends(lost, ALL, TWO)


def test_an_heir_that_is_dead_already_does_not_inherit_alone() -> None:
    """With a minimum of one: the follower lost its power, and the leader is killed before anybody heard of it."""
    two = PartitionState(replicas=(1, 2), isr=(1, 2), leader=1)
    after = react(two, World(live=(2,)), Rules())
    assert (after.leader, after.isr, after.suspects) == (2, (2,), (1,))
    back = react(after, World(live=(2,), unsettled=(2,)), Rules())
    assert (back.leader, back.suspects) == (NOBODY, (1, 2))
    assert needs_log_ends(back, World(live=(1, 2)), Rules())


def test_who_was_eligible_is_suspect_when_fewer_have_to_be_in_sync() -> None:
    state = replace(THREE, isr=(1,), eligible=(2, 3))
    after = react(state, ALL, Rules())
    assert (after.leader, after.isr, after.eligible, after.suspects) == (1, (1,), (), (2, 3))
    gone = replace(state, isr=(), leader=NOBODY)
    elected = react(gone, ALL, Rules())
    assert (elected.leader, elected.isr, elected.eligible, elected.suspects) == (2, (2,), (), (3,))


def test_an_eligible_replica_that_crashed_is_no_longer() -> None:
    state = replace(THREE, isr=(1,), eligible=(2,))
    after = react(state, World(live=(1, 2), unsettled=(2,)), TWO)
    assert (after.leader, after.isr, after.eligible) == (1, (1,), ())


def test_the_only_replica_leads_again_after_its_crash_in_a_new_epoch() -> None:
    alone = PartitionState(replicas=(1,), isr=(1,), leader=1)
    after = react(alone, World(live=(1,), unsettled=(1,)), Rules())
    assert (after.leader, after.isr, after.leader_epoch, after.suspects) == (1, (1,), 1, ())
    assert react(after, World(live=(1,)), Rules()) is after


GONE = ReplicaEnd(-1, 0, is_complete=False)


@pytest.mark.parametrize(
    ("ends", "leader"),
    [
        ({1: ReplicaEnd(5, 70)}, 1),
        ({1: ReplicaEnd(5, 70, is_complete=False)}, None),
        ({1: GONE, 2: ReplicaEnd(5, 70)}, None),
        ({1: GONE, 2: ReplicaEnd(5, 70), 3: ReplicaEnd(5, 60)}, 2),
        ({1: GONE, 2: GONE, 3: ReplicaEnd(5, 60)}, 3),
        # It ends where 3 does, and nobody knows what it lacks before.
        ({1: ReplicaEnd(5, 70, is_complete=False), 2: ReplicaEnd(5, 60), 3: ReplicaEnd(5, 70)}, 3),
        # 2 and 3 fell behind long ago, and may lack more than it lost.
        ({1: ReplicaEnd(5, 70, is_complete=False), 2: ReplicaEnd(5, 10), 3: ReplicaEnd(-1, 0)}, 1),
        ({1: GONE, 2: GONE, 3: GONE}, 1),
    ],
)
def test_the_last_in_sync_leads_unless_its_files_are_gone_and_then_who_has_the_most(
    ends: dict[int, ReplicaEnd], leader: int | None
) -> None:
    """2 and 3 stopped before 1, and may be whole: led by an empty log they would be cut."""
    crashed = react(replace(THREE, isr=(1,)), World(live=(1,), unsettled=(1,)), Rules())
    assert (crashed.leader, crashed.isr, crashed.suspects) == (NOBODY, (), (1,))
    assert needs_log_ends(crashed, World(live=(1,)), Rules())
    after = lead_by_log_end(crashed, ends)
    assert (after and after.leader) == leader
    if after is not None:
        assert (after.isr, after.suspects) == ((leader,), () if leader == 1 else (1,))


def test_a_suspect_that_is_complete_comes_before_all_that_are_not() -> None:
    """1 has more, perhaps of what was never committed; where it has a hole, the others would get one."""
    state = replace(THREE, isr=(), suspects=(1, 2), leader=NOBODY)
    ends = {1: ReplicaEnd(6, 99, is_complete=False), 3: ReplicaEnd(9, 99)}
    assert lead_by_log_end(state, ends) is None, "2 may be complete"
    after = lead_by_log_end(state, {**ends, 2: ReplicaEnd(5, 70)})
    assert after is not None
    assert after.leader == 2
    both = {**ends, 2: GONE}
    after = lead_by_log_end(state, both)
    assert after is not None
    assert after.leader == 3


def test_nor_does_an_unclean_election_prefer_a_log_that_is_gone() -> None:
    state = replace(THREE, isr=(), suspects=(1, 2, 3), leader=NOBODY)
    world, rules = World(live=(1, 2)), Rules(unclean=True)
    ends = {1: GONE, 2: ReplicaEnd(5, 70)}
    assert react(state, world, rules) is state
    assert needs_log_ends(state, world, rules)
    assert lead_by_log_end(state, ends) is None
    for unclean in (lead_by_log_end(state, ends, unclean=True), elect_unclean(state, world, ends)):
        assert unclean is not None
        assert unclean.leader == 2
    assert elect_unclean(state, World(live=(1,)), ends).leader == 1


def test_nor_does_it_give_up_who_is_eligible_for_one_that_only_told() -> None:
    """3 lost its session and has everything; 1 tells what a power cut left it, and may be dead by now."""
    state = replace(THREE, isr=(), eligible=(3,), suspects=(1,), leader=NOBODY)
    after = lead_by_log_end(state, {1: ReplicaEnd(5, 10)}, unclean=True)
    assert after is not None
    assert (after.leader, after.isr, after.eligible, after.suspects) == (1, (1,), (), (3,))
    assert with_isr(after, (1,), Rules()).suspects == ()


def test_the_only_replica_is_not_asked() -> None:
    alone = PartitionState(replicas=(1,), isr=(1,), leader=1)
    after = react(alone, World(live=(1,), unsettled=(1,)), Rules())
    assert (after.leader, after.suspects) == (1, ())
    assert not needs_log_ends(replace(alone, isr=(), leader=NOBODY, suspects=(1,)), ALL, Rules())


def test_of_the_only_replica_nothing_changes_after_a_clean_restart() -> None:
    alone = PartitionState(replicas=(1,), isr=(1,), leader=1)
    assert react(alone, World(live=(1,)), Rules()) is alone


def test_when_all_crashed_the_longest_log_leads_once_all_are_back() -> None:
    state = THREE
    for broker in (2, 3, 1):  # registered all the time, and dead: each is elected in its turn
        state = react(state, World(live=(1, 2, 3), unsettled=(broker,)), TWO)
    assert (state.leader, state.isr, state.suspects) == (NOBODY, (), (2, 3, 1))
    assert not needs_log_ends(state, World(live=(1, 2)), TWO)
    assert not needs_log_ends(state, World(live=(1, 2, 3), unsettled=(3,)), TWO)
    assert needs_log_ends(state, ALL, TWO)
    ends = {1: ReplicaEnd(4, 90), 2: ReplicaEnd(5, 70), 3: ReplicaEnd(5, 70)}
    after = lead_by_log_end(state, ends)
    assert after is not None
    # It may have died since it told: the others are given up when it speaks.
    assert (after.leader, after.isr, after.suspects) == (2, (2,), (3, 1))
    assert with_isr(after, (2,), Rules()).suspects == ()
    assert after.leader_epoch == state.leader_epoch + 1


def test_a_leaving_leader_hands_over_and_need_not_be_waited_for() -> None:
    after = react(THREE, World(live=(1, 2, 3), stopping=(1,)), TWO)
    assert (after.leader, after.isr) == (2, (2, 3))
    few = react(replace(THREE, isr=(1, 2)), World(live=(1, 2), stopping=(1,)), TWO)
    assert (few.leader, few.isr) == (2, (1, 2))
    last = replace(THREE, isr=(1,), eligible=(2,))
    assert react(last, World(live=(1,), stopping=(1,)), TWO).leader == 1


@pytest.mark.parametrize(("isr", "eligible"), [((1, 2), ()), ((1,), (2, 3))])
def test_a_leaders_wish_keeps_who_leaves_eligible_only_below_the_minimum(
    isr: tuple[int, ...], eligible: tuple[int, ...]
) -> None:
    after = with_isr(THREE, isr, TWO)
    assert (after.isr, after.eligible) == (isr, eligible)


def test_more_in_sync_than_replicas_cannot_be_required() -> None:
    after = react(replace(THREE, replicas=(1,), isr=(1,)), World(live=(1,)), Rules(min_isr=3))
    assert after.eligible == ()
