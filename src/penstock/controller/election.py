"""Who leads a partition, and who may: one pure function from what is to what should be.

A replica is *in sync* (`isr`), or *eligible*: it left the in-sync set when that fell below `min.insync.replicas`, and
since a leader commits nothing while the set is that small, it still holds everything committed (as KIP-966). Whoever
is in one of the two has all committed records, unless it crashed since: a process that began without a clean shutdown
may have lost the end of its log. Such a broker is *unsettled* until it was taken out of both sets here, which happens
before anybody is elected.

Whoever leaves both sets by a decision of the controller (it crashed, its session ended, it stops, or fewer are asked
for) becomes a *suspect*, until a leader has shown that it lives and has everything: it asks for its in-sync replicas,
changed or not (`with_isr`). For those that stay are only registered, and may be dead already. When all replicas lose
their power, each is elected in turn after it died, and the last to come back would lead with what it has left; the one
that has everything may be just the one that was stopped. When nobody in sync or eligible is left, because all crashed,
the suspects decide: each may have lost its end, but hardly all the same one. When every one of them is back, the one
with the most, by (last epoch, log end), leads: `needs_log_ends`. A suspect holds up no commit: what was committed since
it left is in a later epoch or further on, so its log is not the longest. A partition's only replica is asked nothing.

Files may have gone behind a broker's back: then its log is *incomplete*, and may lack any record, also if it ends where
the others do. A suspect that is complete comes before all that are not. Where none is, the others are asked as well:
one that fell behind, or stopped before, may have more. Of all replicas the one with the most leads then; of two with
the same end, one that is complete. An unclean election asks those that are there.

    leader alive and in sync            it stays
    else, of the live in replica order  in sync, then eligible
    none of these                       where the topic allows it (`unclean.leader.election.enable`) a suspect, then any
                                        other: it alone is in sync from then on, and what only the others had is lost
    nobody                              -1, until one comes back
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from penstock.coordination.nodes import PartitionState

NOBODY = -1


@dataclass(frozen=True, slots=True)
class World:
    """The brokers as the controller sees them."""

    live: Collection[int]
    # Live or not: brokers whose crash is not yet dealt with.
    unsettled: Collection[int] = ()
    # Live, but about to leave.
    stopping: Collection[int] = ()


class ReplicaEnd(NamedTuple):
    """What a replica says of its log, in the order in which it counts."""

    epoch: int  # of its last record
    offset: int  # where it ends
    is_complete: bool = True  # False: it may lack any of the records before (`storage.incomplete`)


@dataclass(frozen=True, slots=True)
class Rules:
    """What the topic says."""

    min_isr: int = 1
    unclean: bool = False

    def least(self, state: PartitionState) -> int:
        """How many must be in sync before anything is committed; no more than there are replicas."""
        return min(self.min_isr, state.assured)


def react(state: PartitionState, world: World, rules: Rules) -> PartitionState:
    """The partition's next state; the very same object when nothing has to change."""
    least = rules.least(state)
    trusted = _without(state.isr, world.unsettled)
    isr = tuple(broker for broker in trusted if broker in world.live)
    isr = _without_stopping(isr, world, least)
    eligible = _without(state.eligible, world.unsettled)
    eligible = _joined(eligible, _without(trusted, isr)) if len(isr) < least else ()
    held = (*state.isr, *state.eligible)
    suspects = _joined(state.suspects, _without(held, (*isr, *eligible)))
    leader = _elect(state, isr, eligible, world)
    if leader == NOBODY and len(state.replicas) == 1:
        leader = next((broker for broker in suspects if broker in world.live), NOBODY)
    if leader == NOBODY and rules.unclean and not any(broker in world.live for broker in suspects):
        leader = least_loss(state, suspects, world)  # else their logs decide
    if leader != NOBODY and leader not in isr:
        isr, others = (leader,), _without(eligible, (leader,))
        if leader not in eligible:
            eligible = suspects = ()  # what they have and it has not is given up
        elif len(isr) < least:
            eligible = others
        else:
            eligible, suspects = (), _joined(suspects, others)
    crashed = leader in held and leader in world.unsettled
    fresh = leader != state.leader or crashed
    after = replace(
        state,
        isr=isr,
        eligible=eligible,
        suspects=suspects,
        leader=leader,
        leader_epoch=state.leader_epoch + fresh,
    )
    return state if after == state else after


def needs_log_ends(state: PartitionState, world: World, rules: Rules) -> bool:
    """Whether the ends of logs decide: everybody who had all of it crashed, and all of those are back."""
    if state.leader != NOBODY or state.isr or len(state.replicas) == 1:
        return False
    are_back = [broker in world.live and broker not in world.unsettled for broker in state.suspects]
    return any(are_back) if rules.unclean else not state.eligible and bool(are_back) and all(are_back)


def lead_by_log_end(
    state: PartitionState, ends: Mapping[int, ReplicaEnd], *, unclean: bool = False
) -> PartitionState | None:
    """Led by who has the most of those that could tell. None: one that has more may still come (but for `unclean`)."""
    has_complete = any(broker in ends and ends[broker].is_complete for broker in state.suspects)
    awaited = state.suspects if has_complete else state.replicas
    if not ends or not (unclean or all(broker in ends for broker in awaited)):
        return None
    best = has_most(state, ends)
    # It may have died since it told: the others are given up when it speaks as the leader (`with_isr`), not before.
    others = _without(_joined(state.eligible, state.suspects), (best,))
    return replace(state.with_leader(best), isr=(best,), eligible=(), suspects=others)


def has_most(state: PartitionState, ends: Mapping[int, ReplicaEnd]) -> int:
    """Whose log it is best to go on with, of these."""
    trusted = [
        broker for broker in (*state.eligible, *state.suspects) if broker in ends and ends[broker].is_complete
    ]
    return max(trusted or ends, key=lambda broker: (*ends[broker], -state.replicas.index(broker)))


def with_isr(state: PartitionState, isr: tuple[int, ...], rules: Rules) -> PartitionState:
    """What the leader asked for: who leaves stays eligible while too few are left to commit anything."""
    left = tuple(broker for broker in state.isr if broker not in isr)
    if len(isr) >= rules.least(state):
        return replace(state, isr=isr, eligible=(), suspects=())
    return replace(state, isr=isr, eligible=_without(_joined(state.eligible, left), isr), suspects=())


def _elect(state: PartitionState, isr: tuple[int, ...], eligible: tuple[int, ...], world: World) -> int:
    if state.leader in isr and not (state.leader in world.stopping and len(isr) > 1):
        return state.leader
    for candidates in (_without(isr, world.stopping), isr, eligible):
        for replica in state.replicas:
            if replica in candidates and replica in world.live:
                return replica
    return NOBODY


def _without_stopping(isr: tuple[int, ...], world: World, least: int) -> tuple[int, ...]:
    """Who is about to leave need not be waited for, where enough others are."""
    staying = _without(isr, world.stopping)
    return staying if len(staying) >= max(least, 1) else isr


def least_loss(state: PartitionState, suspects: tuple[int, ...], world: World) -> int:
    """A suspect may have lost its end, the others lack what was committed since they fell behind."""
    live = [replica for replica in state.replicas if replica in world.live]
    lagging = [broker for broker in live if broker not in world.unsettled]
    suspected = [broker for broker in live if broker in suspects]
    return next(iter((*suspected, *lagging, *live)), NOBODY)


def _without(members: tuple[int, ...], gone: Collection[int]) -> tuple[int, ...]:
    return tuple(member for member in members if member not in gone)


def _joined(members: tuple[int, ...], more: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(dict.fromkeys((*members, *more)))
