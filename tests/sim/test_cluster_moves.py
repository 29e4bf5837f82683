"""Replicas on the move, while clients write and read: a broker dies, one joins, one is drained, and by hand."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.sim.cluster_moving import MovingStory
from tests.sim.cluster_story import watched

from penstock.core.error_codes import ErrorCode
from penstock.core.internal_topics import OFFSETS_TOPIC
from penstock.services.reassignments import PREFERRED, UNCLEAN
from penstock.testing.sim_broker import SESSION_SECONDS
from penstock.testing.sim_loop import SimLoop


@contextmanager
def telling(seed: int, settings: dict[str, str] | None = None) -> Iterator[MovingStory]:
    with SimLoop(seed) as loop:
        story = MovingStory(loop, settings)
        with watched(story.history):
            yield story


@pytest.fixture(params=range(3))
def story(request: pytest.FixtureRequest) -> Iterator[MovingStory]:
    with telling(request.param) as story:
        yield story


SEEDS = pytest.mark.parametrize("seed", range(3))
STORIES = int(os.environ.get("PENSTOCK_SIM_MOVING_SEEDS", "20"))
FIRST_SEED = int(os.environ.get("PENSTOCK_SIM_FIRST_SEED", "0"))
RATE = "follower.replication.throttled.rate"
# So slow that a move is seen, and never ends by itself while clients write.
SLOW = {RATE: "50"}
FAST = str(10**9)
BY_HAND = {"penstock.fill.empty.brokers": "false"}


def test_one_of_four_dies_and_its_replicas_are_rebuilt_on_the_other_three(story: MovingStory) -> None:
    story.begin_with(4, replicas=3)
    dead = story.state(0).leader
    before = story.loads()[dead]
    story.machines[dead - 1].kill()
    story.let_pass(SESSION_SECONDS + 1)
    assert story.loads()[dead] == before, "it might still come back"
    story.until(lambda: story.loads()[dead] == 0 and story.is_quiet(3))
    story.let_pass(1)
    story.check_data()
    story.machines[dead - 1].start()
    story.until(lambda: story.machines[dead - 1].ready)


@SEEDS
def test_a_fourth_joins_three_and_extra_replicas_go_only_after_catch_up(seed: int) -> None:
    with telling(seed, SLOW) as story:
        story.begin_with(3, replicas=2)
        assert story.loads()[4] == 0
        story.machines[3].start()
        story.until(lambda: story.loads()[4] > 0)
        story.let_pass(3)
        moving = story.moves()
        assert moving
        assert all(len(replicas) == 3 and added == [4] for replicas, added, _ in moving.values()), moving
        story.configure(4, RATE, FAST)
        story.until(lambda: story.is_quiet(2))
        assert story.moves() == {}
        assert sorted(story.loads().values()) == [1, 1, 1, 1]
        story.until(lambda: all(story.hosted(number) == story.assigned(number) for number in range(1, 5)))
        story.check_data()


def test_a_drained_broker_is_emptied_under_load_and_gets_its_share_back(story: MovingStory) -> None:
    story.begin_with(4, replicas=3)
    leaving = story.state(0).leader
    story.drain(leaving)
    most = 0

    def is_empty() -> bool:
        nonlocal most
        most = max(most, *(len(state.replicas) for state in story.states()))
        return story.loads()[leaving] == 0 and story.is_quiet(3)

    story.until(is_empty, step_s=0.002)
    assert most == 4, "more replicas than configured, until the new ones had caught up"
    story.until(lambda: story.hosted(leaving) == [])
    story.let_pass(1)
    story.drain(leaving, value="false")
    story.until(lambda: story.loads()[leaving] > 0 and story.is_quiet(3))
    story.check_data()


@SEEDS
def test_a_move_by_hand_is_shown_cancelled_and_finished(seed: int) -> None:
    with telling(seed, SLOW | BY_HAND) as story:
        story.begin_with(4, replicas=2)
        before = story.state(0).replicas
        target = [broker for broker in range(1, 5) if broker not in before]
        assert story.move(0, target) is ErrorCode.NONE
        story.let_pass(1)
        assert story.moves() == {0: ([*target, *before], target, list(before))}
        assert story.move(0, None) is ErrorCode.NONE
        assert (story.state(0).replicas, story.moves()) == (before, {})
        assert story.move(0, None) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        assert story.move(0, [1, 9]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert story.move(7, [1]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert story.move(0, [1], topic="no such") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for broker in target:
            story.configure(broker, RATE, FAST)
        assert story.move(0, target) is ErrorCode.NONE
        story.until(lambda: story.state(0).replicas == tuple(target) and story.is_quiet(2))
        story.check_data()


def test_a_single_replica_moves_without_a_pause(story: MovingStory) -> None:
    story.begin_with(4, replicas=1)
    (before,) = story.state(0).replicas
    target = before % 4 + 1
    assert story.move(0, [target]) is ErrorCode.NONE
    story.until(lambda: story.state(0).replicas == (target,) and story.is_quiet(1))
    acknowledged = len(story.history.acknowledged)
    story.until(lambda: len(story.history.acknowledged) > acknowledged + 5)
    story.check_data()


def test_the_preferred_replica_leads_again_when_asked_or_after_a_while(story: MovingStory) -> None:
    story.begin_with(4, replicas=3)
    first = story.state(0).replicas[0]
    assert story.elect(0, PREFERRED) is ErrorCode.ELECTION_NOT_NEEDED
    assert story.elect(0, UNCLEAN) is ErrorCode.ELECTION_NOT_NEEDED
    assert story.elect(9, PREFERRED) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    machine = story.machines[first - 1]
    machine.kill()
    story.until(lambda: story.state(0).leader != first)
    assert story.elect(0, PREFERRED) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    machine.start()
    story.until(lambda: story.state(0).leader == first)
    story.check_data()


@SEEDS
def test_an_unclean_election_is_carried_out_when_asked_for(seed: int) -> None:
    with telling(seed, BY_HAND) as story:
        story.begin_with(4, replicas=2, clients=False)
        first, second = story.state(0).replicas
        story.machines[second - 1].kill()
        story.until(lambda: second not in story.state(0).isr)
        story.machines[first - 1].kill()
        story.machines[second - 1].start()
        story.until(lambda: story.machines[second - 1].ready and story.state(0).leader < 0)
        story.let_pass(0.5)
        assert story.state(0).leader < 0
        assert story.elect(0, UNCLEAN) is ErrorCode.NONE
        assert story.state(0).leader == second


def test_healing_stops_and_says_so_when_too_many_are_gone(story: MovingStory) -> None:
    story.begin_with(4, replicas=3, clients=False)
    for machine in story.machines[:2]:
        machine.kill()
    story.let_pass(SESSION_SECONDS + 4)
    assert "2 of 4 brokers are gone" in story.outlook().stopped
    assert not any(state.adding for state in story.states())
    story.machines[0].start()
    story.until(lambda: not story.outlook().stopped and story.loads()[2] == 0)


def test_healing_stops_and_says_so_when_disks_are_full(story: MovingStory) -> None:
    story.begin_with(4, replicas=3, clients=False)
    dead = story.state(0).leader
    for machine in story.machines:
        machine.files.fill_up(10)
    story.machines[dead - 1].kill()
    story.until(lambda: "too full" in story.outlook().stopped)
    assert not any(state.adding for state in story.states())
    for machine in story.machines:
        machine.files.make_room()
    story.until(lambda: story.loads()[dead] == 0 and not story.outlook().stopped, seconds=90)


def test_a_drain_that_has_nowhere_to_go_says_so_and_goes_on_when_it_can(story: MovingStory) -> None:
    story.begin_with(3, replicas=3, clients=False)
    story.drain(1)
    story.until(lambda: story.outlook().stranded > 0)
    assert story.outlook().stranded == len(list(story.states()))
    assert "every other broker or machine has one already" in story.outlook().trouble
    story.machines[3].start()
    story.until(lambda: story.loads()[1] == 0 and story.is_quiet(3))
    story.until(lambda: story.outlook().trouble == "")


@SEEDS
def test_an_unregistered_broker_is_replaced_at_once(seed: int) -> None:
    with telling(seed, {"penstock.heal.grace.ms": "600000"}) as story:
        story.begin_with(4, replicas=3)
        gone = story.state(0).replicas[-1]
        story.drain(gone, value="false")
        assert story.unregister(9) is ErrorCode.BROKER_ID_NOT_REGISTERED
        assert story.unregister(gone) is ErrorCode.INVALID_REQUEST, "it runs"
        story.machines[gone - 1].stop()
        # It leaves the in-sync replicas while it still runs.
        story.until(lambda: all(gone not in image.brokers for image in story.images()))
        assert all(gone not in state.isr for state in story.states())
        assert story.unregister(gone) is ErrorCode.NONE
        story.until(lambda: story.loads()[gone] == 0 and story.is_quiet(3))
        story.check_data()


@SEEDS
def test_the_topic_for_groups_gets_the_replicas_that_could_not_be_made(seed: int) -> None:
    """Somebody asks for a group while a broker is missing."""
    with telling(seed, BY_HAND) as story:
        story.begin_with(2, replicas=2, clients=False)
        groups = story.groups_topic()
        assert {len(state.replicas) for state in groups()} == {2}
        story.let_pass(3)
        assert not any(state.adding for state in groups()), "there is nobody to take one"
        story.machines[2].start()
        story.until(lambda: all(len(state.isr) == 3 and not state.adding for state in groups()))
        assert {frozenset(state.replicas) for state in groups()} == {frozenset((1, 2, 3))}
        story.until(lambda: not story.wishes())
        story.machines[3].start()
        story.let_pass(3)
        assert {len(state.replicas) for state in groups()} == {3}, "as many as it should have"
        others = [state for state in story.states() if state not in groups()]
        assert {len(state.replicas) for state in others} == {2}, "as many as somebody asked for"


@SEEDS
def test_replicas_that_were_moved_by_hand_are_left_there(seed: int) -> None:
    with telling(seed, BY_HAND) as story:
        story.begin_with(2, replicas=2, clients=False)
        groups = story.groups_topic()
        assert story.wishes() == {OFFSETS_TOPIC: "3"}
        for index in range(len(groups())):
            assert story.move(index, [1], topic=OFFSETS_TOPIC) is ErrorCode.NONE
        story.until(lambda: all(state.replicas == (1,) for state in groups()))
        story.machines[2].start()
        story.let_pass(5)
        assert {state.replicas for state in groups()} == {(1,)}
        assert story.wishes() == {}


@SEEDS
def test_one_partition_that_was_moved_by_hand_keeps_the_others_from_nothing(seed: int) -> None:
    with telling(seed, BY_HAND) as story:
        story.begin_with(2, replicas=2, clients=False)
        groups = story.groups_topic()
        assert story.move(0, [1], topic=OFFSETS_TOPIC) is ErrorCode.NONE
        story.until(lambda: groups()[0].replicas == (1,))
        assert story.wishes() == {OFFSETS_TOPIC: "3"}
        story.machines[2].start()
        story.until(lambda: not story.wishes())
        assert [len(state.replicas) for state in groups()] == [1, 3]


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + STORIES))
def test_nothing_acknowledged_is_lost_whoever_dies_while_replicas_move(seed: int) -> None:
    with telling(seed) as story:
        story.loop.executor.step_by_seed()
        story.begin_with(4, replicas=3)
        for _ in range(story.rng.randint(3, 7)):
            story.disturb()
            story.let_pass(story.rng.uniform(0.01, 0.5))
            story.misfortune()
        story.heal()
        story.stop_draining()
        story.check_progress()
        story.check_data()
