"""The states of a classic group, and the moves between them.

    EMPTY                 no members; may hold committed offsets
    PREPARING_REBALANCE   gathers members: JoinGroup waits here until all have come or their time is up
    COMPLETING_REBALANCE  a generation was formed; waits for the leader's plan, SyncGroup waits here
    STABLE                everybody has their part of the plan
    DEAD                  deleted; whoever still holds the object must look again

A move that is not in the table is a bug, and raises.
"""

from enum import Enum


class GroupState(Enum):
    """Values are Kafka's words, as ListGroups and DescribeGroups give them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState

# from: {to: what brings it there}
TRANSITIONS: dict[GroupState, dict[GroupState, str]] = {
    EMPTY: {
        PREPARING: "the first member joins",
        DEAD: "deleted, or its last offset expired",
    },
    PREPARING: {
        COMPLETING: "all members joined, or the rebalance timeout passed",
        EMPTY: "nobody is left",
    },
    COMPLETING: {
        STABLE: "the leader's SyncGroup brought the plan",
        PREPARING: "a member joined, left, expired or never synced",
    },
    STABLE: {
        PREPARING: "a member joined, left or expired, or the leader asked for a new plan",
    },
    DEAD: {},
}


class IllegalTransition(AssertionError):  # noqa: N818 - never caught: a bug in this package
    pass


def check_transition(group_id: str, before: GroupState, after: GroupState) -> None:
    if after not in TRANSITIONS[before]:
        raise IllegalTransition(f"group {group_id}: {before.value} -> {after.value}")
