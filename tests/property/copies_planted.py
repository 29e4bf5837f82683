"""Decisions that give up whole copies for brokers that are only registered: each was made here once."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from penstock.controller import election, moves
from penstock.controller.election import Rules, World
from penstock.coordination.nodes import PartitionState

React = Callable[[PartitionState, World, Rules], PartitionState]


def _forgetting(forgotten: Callable[[PartitionState, World], Iterable[int]]) -> React:
    honest = election.react

    def react(state: PartitionState, world: World, rules: Rules) -> PartitionState:
        after = honest(state, world, rules)
        gone = {*forgotten(state, world)} - {*world.unsettled, *state.suspects}
        return (
            after
            if after is state
            else replace(after, suspects=tuple(s for s in after.suspects if s not in gone))
        )

    return react


def forget_who_was_in_sync() -> React:
    """Who is not live, or stops, leaves for good, since the others are registered."""
    return _forgetting(lambda state, world: state.isr)


def forget_who_stops() -> React:
    return _forgetting(lambda state, world: world.stopping)


def forget_who_was_eligible() -> React:
    """When fewer have to be in sync than before."""
    return _forgetting(lambda state, world: state.eligible)


def cancel_at_once(state: PartitionState) -> PartitionState:
    """A newcomer is dropped although it is one of the few that are in sync."""
    staying = tuple(replica for replica in state.replicas if replica not in state.adding)
    isr = tuple(replica for replica in state.isr if replica in staying)
    if not isr or {*state.eligible, *state.suspects} & {*state.adding}:
        return state
    leader = state.leader if state.leader in isr else isr[0]
    return replace(state.with_leader(leader), replicas=staying, isr=isr, adding=(), removing=())


def finish_without_a_word(state: PartitionState, world: World) -> PartitionState:
    """The controller drops copies as soon as all that stay are in sync and registered."""
    if not moves.is_moving(state) or not moves._all_have_come(state, world):
        return state
    leader = state.leader if state.leader in state.target else state.target[0]
    isr = tuple(replica for replica in state.isr if replica in state.target)
    return replace(state.with_leader(leader), replicas=state.target, isr=isr, adding=(), removing=())
