"""Moving replicas: grow the set, wait until the new ones have everything, shrink it. Pure functions.

    replicas 1 2 3                                   adding -    removing -
      begin: to 4 2 3     replicas 4 2 3 1           adding 4    removing 1     the old ones go on as if nothing was
      ...                 4 fetches, and is let in to the in-sync replicas as any follower
      hand_over           led by one that stays      all that stay are in sync: under the next epoch
      ...                 its leader has heard from all that stay, and asks for 4 2 3 as its in-sync replicas
      finish              replicas 4 2 3             adding -    removing -     in answer to that request
      cancel              replicas 1 2 3             adding -    removing -     as it was before

Nobody whose copy may count (in sync, eligible, suspect) is ever dropped by the controller alone: those that stay are
only registered, and may have lost their power already, or have what was acknowledged in their page caches only. A copy
goes when the leader that is left, under the state of the move, has asked for its in-sync replicas without it. So a
newcomer that was let in (or any, while nobody leads), and that nobody wants any more because the move was cancelled or
changed, is both adding and removing until then.

Whoever leaves the set takes a new leader epoch with it. A broker that is a replica again later begins with an empty
log, and what it had before must not count for it: under another epoch the leader remembers nothing of it.

A partition is never held to more replicas than it had before, nor to more than it will have (`assured`): growing from
one replica to two must not keep a topic with `min.insync.replicas=2` from being written to until the copy is done.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from penstock.controller.election import NOBODY, ReplicaEnd, World, has_most, least_loss
from penstock.coordination.nodes import PartitionState
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError


def is_moving(state: PartitionState) -> bool:
    return bool(state.adding or state.removing)


def begin(state: PartitionState, target: Sequence[int]) -> PartitionState:
    """On the way to these replicas, in this order; also from the middle of another move."""
    before = tuple(replica for replica in state.replicas if replica not in state.adding)
    wanted = tuple(target)
    # While nobody leads, all may be asked what they have, and any of them may have the most (`lead_by_log_end`).
    counting = state.replicas if state.leader == NOBODY else (*state.isr, *state.eligible, *state.suspects)
    passing = tuple(replica for replica in state.adding if replica not in wanted and replica in counting)
    adding = (*(broker for broker in wanted if broker not in before), *passing)
    removing = (*(broker_info for broker_info in before if broker_info not in wanted), *passing)
    after = _with_replicas(state, (*wanted, *removing))
    return _changed(state, replace(after, adding=adding, removing=removing))


def cancel(state: PartitionState) -> PartitionState:
    """Back to what it was. ApiError where nothing moves."""
    if not is_moving(state):
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    # The order of before is not kept anywhere; those that were to go come last, as they do in `replicas`.
    return begin(state, [replica for replica in state.replicas if replica not in state.adding])


def hand_over(state: PartitionState, world: World) -> PartitionState:
    """Led by one that stays, where all of those are in sync and the leader goes; else the very same object."""
    if state.leader not in state.removing or not _all_have_come(state, world):
        return state
    leader = next((broker for broker in state.target if broker not in world.stopping), NOBODY)
    return state if leader == NOBODY else state.with_leader(leader)


def grown(state: PartitionState, world: World) -> PartitionState:
    """A move that only adds, done where all have everything; else the very same object."""
    if not state.adding or state.removing or not _all_have_come(state, world):
        return state
    return replace(state, adding=())


def finish(asked: PartitionState, world: World) -> PartitionState:
    """Without the replicas that go, where the leader has just asked for the others alone; else the very same object."""
    target = asked.target
    if not asked.removing or {*asked.isr} != {*target} or not _all_have_come(asked, world):
        return asked
    return replace(_with_replicas(asked, target), adding=(), removing=())


def _all_have_come(state: PartitionState, world: World) -> bool:
    if state.suspects or state.eligible:
        return False
    return all(broker in state.isr and _can_lead(broker, world) for broker in state.target)


def _with_replicas(state: PartitionState, replicas: tuple[int, ...]) -> PartitionState:
    """Others are dropped: only those whose copies count for nothing."""
    dropped = any(replica not in replicas for replica in state.replicas)
    return replace(state, replicas=replicas, leader_epoch=state.leader_epoch + dropped)


def _can_lead(broker: int, world: World) -> bool:
    return broker in world.live and broker not in world.unsettled


def _changed(before: PartitionState, after: PartitionState) -> PartitionState:
    return before if after == before else after


# -- who leads, of those who may -----------------------------------------------------------------------------


def prefer(state: PartitionState, world: World) -> PartitionState:
    """Led by its first replica, where that one is in sync and means to stay; else the very same object."""
    first = state.replicas[0]
    if state.leader == first or first not in state.isr or first in state.removing:
        return state
    if not _can_lead(first, world) or first in world.stopping:
        return state
    return state.with_leader(first)


def elect_unclean(
    state: PartitionState, world: World, ends: Mapping[int, ReplicaEnd] = MappingProxyType({})
) -> PartitionState:
    """Led by whoever lives, at the price of what only others have; the very same object where nobody does.

    `ends` of the logs of those that could tell.
    """
    settled = replace(world, live=[broker for broker in world.live if broker not in world.unsettled])
    told = {
        broker: end for broker, end in ends.items() if broker in state.replicas and _can_lead(broker, world)
    }
    leader = has_most(state, told) if told else least_loss(state, (*state.eligible, *state.suspects), settled)
    if state.leader != NOBODY or leader == NOBODY:
        return state
    return replace(state.with_leader(leader), isr=(leader,), eligible=(), suspects=())
