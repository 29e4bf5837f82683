"""Where replicas go and how they get there, for any cluster: spread, even, and never fewer copies than before."""

from collections import Counter
from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.controller.election import NOBODY, Rules, World, react, with_isr
from penstock.controller.healing import Fleet, fill, loads_of, stranded, vacate
from penstock.controller.moves import (
    begin,
    cancel,
    elect_unclean,
    finish,
    grown,
    hand_over,
    is_moving,
    prefer,
)
from penstock.controller.placement import BrokerLocation, place
from penstock.coordination.nodes import PartitionState
from penstock.core.errors import ApiError

BROKERS = range(1, 7)
TOPIC = b"t" * 16

subsets = st.sets(st.sampled_from(BROKERS))
replica_rows = st.lists(st.sampled_from(BROKERS), min_size=1, max_size=4, unique=True).map(tuple)


@st.composite
def racked(draw: st.DrawFn) -> tuple[list[int], dict[int, BrokerLocation]]:
    """Racks of equal size, some with several brokers on one machine."""
    racks, in_each = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    brokers = list(range(1, racks * in_each + 1))
    shuffled = draw(st.permutations(brokers))
    return brokers, {
        broker: BrokerLocation(rack=f"r{number % racks}") for number, broker in enumerate(shuffled)
    }


@given(racked(), st.integers(1, 5), st.integers(0, 20), st.integers(1, 3))
def test_placement_is_as_even_as_kafkas(
    cluster: tuple[list[int], dict[int, BrokerLocation]], factor: int, start: int, rounds: int
) -> None:
    brokers, places = cluster
    assume(factor <= len(brokers))
    placed = place(rounds * len(brokers), factor, brokers, start=start, places=places)
    racks = len({location.rack for location in places.values()})
    for replicas in placed:
        assert len(set(replicas)) == factor
        in_racks = Counter(places[replica].rack for replica in replicas)
        assert len(in_racks) == min(racks, factor)
        assert max(in_racks.values()) - min(in_racks.values()) <= 1
    assert set(Counter(replicas[0] for replicas in placed).values()) == {rounds}
    if (
        start % len(brokers) == 0
    ):  # whole rounds; else followers of the first and the last differ, as in Kafka
        assert set(Counter(replica for replicas in placed for replica in replicas).values()) == {
            rounds * factor
        }


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.integers(1, 5), st.integers(0, 9))
def test_replicas_never_share_a_machine(sizes: list[int], factor: int, start: int) -> None:
    machines = [f"m{number}" for number, size in enumerate(sizes) for _ in range(size)]
    places = {number: BrokerLocation(machine=machine) for number, machine in enumerate(machines, 1)}
    try:
        placed = place(7, factor, sorted(places), start=start, places=places)
    except ApiError:
        assert factor > len(sizes)
        return
    assert all(len({places[replica].machine for replica in replicas}) == factor for replicas in placed)


# -- one partition -------------------------------------------------------------------------------------------


@st.composite
def worlds(draw: st.DrawFn) -> World:
    live = draw(subsets)
    return World(
        live=sorted(live),
        unsettled=sorted(draw(subsets)),
        stopping=sorted(draw(st.sets(st.sampled_from(sorted(live))))) if live else (),
    )


def sound(state: PartitionState) -> None:
    """What holds of every state there is."""
    everybody = set(state.replicas)
    assert len(everybody) == len(state.replicas)
    assert everybody >= {*state.isr, *state.eligible, *state.suspects, *state.adding, *state.removing}
    assert not {*state.isr} & {*state.eligible, *state.suspects}
    assert not {*state.eligible} & {*state.suspects}
    assert state.leader == NOBODY or state.leader in state.isr
    assert 0 < state.assured <= len(state.target)


STEPS = ("begin", "cancel", "hand over", "grown", "world", "isr", "prefer", "unclean")


@given(replica_rows, st.data())
def test_whatever_happens_while_replicas_move_a_whole_copy_is_kept(
    row: tuple[int, ...], data: st.DataObject
) -> None:
    rules = Rules(min_isr=data.draw(st.integers(1, 3)))
    state = PartitionState(replicas=row, isr=row, leader=row[0])
    world = World(live=tuple(BROKERS))
    # Who surely has all that was ever committed: a leader commits with everybody that is in sync.
    for _ in range(12):
        whole = {*state.isr, *state.eligible, *state.suspects}
        step = data.draw(st.sampled_from(STEPS))
        after = state
        try:
            match step:
                case "begin":
                    after = begin(state, data.draw(replica_rows))
                case "cancel":
                    after = cancel(state)
                case "hand over":
                    after = hand_over(state, world)
                case "grown":
                    after = grown(state, world)
                case "world":
                    world = data.draw(worlds())
                    after = react(state, world, rules)
                    world = replace(world, unsettled=())
                case "isr" if state.leader != NOBODY and state.leader in world.live:
                    members = {state.leader, *data.draw(subsets)} & set(state.replicas) & set(world.live)
                    asked = with_isr(
                        state, tuple(replica for replica in state.replicas if replica in members), rules
                    )
                    whole |= set(asked.isr)  # the controller lets in only who has everything
                    after = finish(asked, world)
                    if after is not asked:
                        assert set(after.replicas) == set(after.isr)
                case "prefer":
                    after = prefer(state, world)
                case _:
                    continue
        except ApiError:
            continue
        sound(after)
        holders = {*after.isr, *after.eligible, *after.suspects}
        assert holders & whole, f"{step}: {state} became {after}"
        assert holders <= whole, f"{step}: {state} became {after}"
        if step != "isr":  # only a leader that lives gives up anybody
            assert holders == whole, f"{step}: {state} became {after}"
        if state.leader == NOBODY:  # any of them may be asked what it has, and have the most
            assert set(state.replicas) <= set(after.replicas), f"{step}: {state} became {after}"
        if set(state.replicas) - set(after.replicas) or after.leader != state.leader:
            assert after.leader_epoch > state.leader_epoch or after.leader == NOBODY
        state = after


@given(replica_rows, replica_rows)
def test_a_move_goes_through_more_replicas_to_those_that_were_wanted(
    row: tuple[int, ...], target: tuple[int, ...]
) -> None:
    world = World(live=tuple(BROKERS))
    state = PartitionState(replicas=row, isr=row, leader=row[0], leader_epoch=3)
    moving = begin(state, target)
    assert set(moving.replicas) == {*row, *target}
    assert (moving.isr, moving.leader, moving.leader_epoch) == (row, row[0], 3)
    assert moving.target == target
    assert moving.assured == min(len(row), len(target))
    if set(target) - set(row):
        assert hand_over(moving, world) is grown(moving, world) is moving, "the new ones have nothing yet"
        assert set(cancel(moving).replicas) == set(row)
    come = hand_over(replace(moving, isr=moving.replicas), world)
    assert come.leader in target
    if set(row) - set(target):
        assert grown(come, world) is come, "those that go wait for a word of their leader"
        assert finish(come, world) is come, "it has not asked to be without them"
        done = finish(replace(come, isr=target), world)
    else:
        done = grown(come, world)
    assert done.replicas == target
    assert set(done.isr) == set(target)
    assert done.leader == come.leader
    assert not is_moving(done)


@given(replica_rows, replica_rows)
def test_a_newcomer_that_was_let_in_goes_when_its_leader_can_do_without(
    row: tuple[int, ...], target: tuple[int, ...]
) -> None:
    assume(set(target) - set(row))
    world = World(live=tuple(BROKERS))
    state = PartitionState(replicas=row, isr=row, leader=row[0], leader_epoch=3)
    moving = begin(state, target)
    let_in = replace(moving, isr=moving.replicas)
    back = cancel(let_in)
    assert back.isr == let_in.isr, "it counts until then"
    assert set(back.target) == set(row)
    assert back.assured == len(row)
    assert cancel(back) is back, "asked twice"
    assert finish(back, world) is grown(back, world) is back
    done = finish(replace(back, isr=back.target), world)
    assert set(done.replicas) == set(row)
    assert not is_moving(done)


def test_an_unclean_election_takes_whoever_lives() -> None:
    state = PartitionState(replicas=(1, 2, 3), isr=(), leader=NOBODY, eligible=(1,))
    after = elect_unclean(state, World(live=(2, 3), unsettled=(2,)))
    assert (after.leader, after.isr, after.eligible, after.leader_epoch) == (3, (3,), (), 1)
    assert elect_unclean(state, World(live=())) is state
    assert elect_unclean(replace(state, leader=1), World(live=(1,))).leader == 1
    crashed = PartitionState(replicas=(3, 1, 2), isr=(), leader=NOBODY, suspects=(1, 2))
    assert elect_unclean(crashed, World(live=(1, 3))).leader == 1, "3 fell behind long ago"


# -- all partitions ------------------------------------------------------------------------------------------

partition_rows = st.lists(replica_rows, min_size=1, max_size=20)


def states_of(rows: list[tuple[int, ...]]) -> dict[tuple[bytes, int], PartitionState]:
    return {
        (TOPIC, number): PartitionState(replicas=row, isr=row, leader=row[0])
        for number, row in enumerate(rows)
    }


@given(partition_rows, subsets, st.integers(1, 30))
def test_brokers_that_leave_give_everything_away_that_others_can_take(
    rows: list[tuple[int, ...]], leaving: set[int], limit: int
) -> None:
    states = states_of(rows)
    fleet = Fleet([broker for broker in BROKERS if broker not in leaving], {})
    targets, left = vacate(states, leaving, fleet, limit)
    assert len(targets) <= limit
    assert not left or len(targets) == limit
    for key, target in targets.items():
        before = states[key].replicas
        assert len(set(target)) == len(target) == len(before)
        assert all(new == old for new, old in zip(target, before, strict=True) if old not in leaving)
    for key, state in states.items():
        target = targets.get(key, state.replicas)
        if not left and set(target) & leaving:
            assert set(fleet.takers) <= set(target), "everybody else has one already"


@given(st.integers(1, 30), st.integers(1, 3), st.integers(1, 2))
def test_new_brokers_get_their_share_and_nobody_is_left_with_more(
    partitions: int, factor: int, newcomers: int
) -> None:
    old = [1, 2, 3, 4]
    everybody = [*old, *range(5, 5 + newcomers)]
    states = states_of(place(partitions, factor, old, start=0))
    targets = fill(states, everybody[4:], Fleet(everybody, {}))
    after = {key: replace(state, replicas=targets.get(key, state.replicas)) for key, state in states.items()}
    loads = loads_of(after)
    share = partitions * factor // len(everybody)
    assert all(loads[broker] == min(share, partitions) for broker in everybody[4:])
    assert all(loads[broker] >= share for broker in old)
    assert max(loads.values()) <= max(loads_of(states).values())
    assert max(loads.values()) - min(loads[broker] for broker in everybody) <= 2
    for key, target in targets.items():
        assert len(set(target)) == factor
        assert len(set(target) - set(states[key].replicas)) >= 1
    assert fill(after, [broker for broker in everybody if not loads[broker]], Fleet(everybody, {})) == {}


@given(st.integers(2, 12))
def test_filling_keeps_replicas_in_their_racks(partitions: int) -> None:
    places = {
        1: BrokerLocation("a"),
        2: BrokerLocation("b"),
        3: BrokerLocation("a"),
        4: BrokerLocation("b"),
        5: BrokerLocation("a"),
    }
    states = states_of(place(partitions, 2, [1, 2, 3, 4], start=0, places=places))
    for target in fill(states, [5], Fleet([1, 2, 3, 4, 5], places)).values():
        assert {places[replica].rack for replica in target} == {"a", "b"}


@given(st.lists(replica_rows, max_size=8), subsets, subsets)
def test_what_nobody_can_take_is_counted(
    rows: list[tuple[int, ...]], takers: set[int], leaving: set[int]
) -> None:
    states = {
        (TOPIC, number): PartitionState(replicas, replicas, replicas[0])
        for number, replicas in enumerate(rows)
    }
    fleet = Fleet(sorted(takers - leaving), {})
    targets, _ = vacate(states, leaving, fleet, limit=100)
    after = [targets.get(key, state.target) for key, state in states.items()]
    left = sum(any(replica in leaving for replica in target) for target in after)
    assert stranded(states, leaving, fleet) == left
