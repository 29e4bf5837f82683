"""Moving replicas: grow the set, wait until the new ones have everything, shrink it. Pure functions.

    replicas 1 2 3                                   adding -    removing -
      begin: to 4 2 3     replicas 4 2 3 1           adding 4    removing 1     the old ones go on as if nothing was
      ...                 4 fetches, and is let in to the in-sync replicas as any follower
      finish              replicas 4 2 3             adding -    removing -     all of them in sync, and only then
      cancel              replicas 1 2 3             adding -    removing -     as it was before

Whoever leaves the set takes a new leader epoch with it. A broker that is a replica again later begins with an empty
log, and what it had before must not count for it: under another epoch the leader remembers nothing of it.

A partition is never held to more replicas than it had before, nor to more than it will have (`assured`): growing from
one replica to two must not keep a topic with `min.insync.replicas=2` from being written to until the copy is done.
"""

from collections.abc import Sequence
from dataclasses import replace

from penstock.controller.election import NOBODY, World
from penstock.coordination.nodes import PartitionState
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError


def is_moving(state: PartitionState) -> bool:
    return bool(state.adding or state.removing)


def begin(state: PartitionState, target: Sequence[int], world: World) -> PartitionState:
    """On the way to these replicas, in this order; also from the middle of another move. ApiError: cannot be."""
    before = tuple(one for one in state.replicas if one not in state.adding)
    wanted = tuple(target)
    adding = tuple(one for one in wanted if one not in before)
    removing = tuple(one for one in before if one not in wanted)
    replicas = (*wanted, *removing)
    after = _with_replicas(state, replicas, world)
    return _changed(state, replace(after, adding=adding, removing=removing))


def cancel(state: PartitionState, world: World) -> PartitionState:
    """Back to what it was. ApiError where nothing moves, or where only the new replicas have everything by now."""
    if not is_moving(state):
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    # The order of before is not kept anywhere; those that were to go come last, as they do in `replicas`.
    before = tuple(one for one in state.replicas if one not in state.adding)
    return replace(_with_replicas(state, before, world), adding=(), removing=())


def finish(state: PartitionState, world: World) -> PartitionState:
    """Without the replicas that go, where all that stay are in sync; else the very same object."""
    if not is_moving(state) or state.suspects or state.eligible:
        return state
    target = state.target
    if not all(one in state.isr and one in world.live and one not in world.unsettled for one in target):
        return state
    return replace(_with_replicas(state, target, world), adding=(), removing=())


def _with_replicas(state: PartitionState, replicas: tuple[int, ...], world: World) -> PartitionState:
    """Others are dropped; nobody may be whose copy might be the only whole one."""
    dropped = [one for one in state.replicas if one not in replicas]
    if not dropped:
        return replace(state, replicas=replicas)
    isr = tuple(one for one in state.isr if one in replicas)
    needed = (*state.eligible, *state.suspects)
    if (state.isr and not isr) or any(one in needed for one in dropped):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Unable to change the replicas now: those that would be left may not have everything, so it would "
            "require an unclean leader election.",
        )
    leader = state.leader
    if leader in dropped:
        # Only the living: until one is back, nobody leads, and the election does the rest.
        leader = next((one for one in replicas if one in isr and _can_lead(one, world)), NOBODY)
    return replace(state, replicas=replicas, isr=isr, leader=leader, leader_epoch=state.leader_epoch + 1)


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


def elect_unclean(state: PartitionState, world: World) -> PartitionState:
    """Led by whoever lives, at the price of what only others have; the very same object where nobody does."""
    live = [one for one in state.replicas if one in world.live]
    leader = next((one for one in live if one not in world.unsettled), NOBODY)
    if state.leader != NOBODY or leader == NOBODY:
        return state
    return replace(state.with_leader(leader), isr=(leader,), eligible=(), suspects=())
