"""FindCoordinator, ListGroups, DescribeGroups, DeleteGroups."""

from __future__ import annotations

from typing import Any

from tests.clients.oracle.groups import INSTANCE
from tests.clients.oracle.model import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    LIST_GROUPS,
    Case,
    Context,
    variant,
)
from tests.clients.oracle.variants.common import ILLEGAL_NAMES

from penstock.wire.kafka.generated import delete_groups, describe_groups, find_coordinator, list_groups

MANY_KEYS_SINCE = 4
GROUP, TRANSACTION, SHARE = range(3)
PLACE = ("plain", 0, 3)
STATES = ("Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Dead")


# FindCoordinator


def _find(ctx: Context, *keys: str, kind: int = GROUP) -> Any:
    if ctx.version < MANY_KEYS_SINCE:
        return lambda _: find_coordinator.FindCoordinatorRequest(key=keys[0], key_type=kind)
    return lambda _: find_coordinator.FindCoordinatorRequest(coordinator_keys=list(keys), key_type=kind)


@variant(FIND_COORDINATOR, "of a group", valid=True)
def _(ctx: Context) -> Any:
    return _find(ctx, ctx.world.groups.unknown())


@variant(FIND_COORDINATOR, "of several groups", valid=True, versions=(MANY_KEYS_SINCE, 99))
def _(ctx: Context) -> Any:
    group = ctx.world.groups.unknown()
    return _find(ctx, group, ctx.world.groups.unknown(), *ctx.rng.choice([(), (group,)]))


@variant(FIND_COORDINATOR, "of odd names", valid=True)
def _(ctx: Context) -> Any:
    return _find(ctx, ctx.rng.choice(ILLEGAL_NAMES[1:]))


@variant(FIND_COORDINATOR, "of a transaction", valid=True, versions=(1, 99), eventually=True)
def _(ctx: Context) -> Any:
    return _find(ctx, "transaction", kind=TRANSACTION)


@variant(FIND_COORDINATOR, "of a share partition", valid=True, versions=(6, 99), eventually=True)
def _(ctx: Context) -> Any:
    return _find(ctx, "share:AAAAAAAAAAAAAAAAAAAAAQ:0", kind=SHARE)


@variant(FIND_COORDINATOR, "no name", valid=False)
def _(ctx: Context) -> Any:
    return _find(ctx, "")


@variant(FIND_COORDINATOR, "nothing", valid=False, versions=(MANY_KEYS_SINCE, 99))
def _(ctx: Context) -> Any:
    return _find(ctx)


@variant(FIND_COORDINATOR, "odd key type", valid=False, versions=(1, 99))
def _(ctx: Context) -> Any:
    return _find(ctx, "any", kind=ctx.rng.choice([3, 4, -1, 127, -128]))


@variant(FIND_COORDINATOR, "of a share partition, not named so", valid=False, versions=(1, 99))
def _(ctx: Context) -> Any:
    return _find(ctx, ctx.rng.choice(["any", "a:b", "a:b:c"]), kind=SHARE)


# ListGroups


@variant(LIST_GROUPS, "all", valid=True, eventually=True)
def _(ctx: Context) -> Any:
    groups = ctx.world.groups
    ctx.rng.choice([groups.stable, groups.completing, groups.empty, groups.preparing])()
    return lambda _: list_groups.ListGroupsRequest()


@variant(LIST_GROUPS, "with offsets alone", valid=True, eventually=True)
def _(ctx: Context) -> Any:
    ctx.world.groups.simple(PLACE)
    return lambda _: list_groups.ListGroupsRequest()


@variant(LIST_GROUPS, "by state", valid=True, versions=(4, 99), eventually=True)
def _(ctx: Context) -> Any:
    states = ctx.rng.sample(STATES, ctx.rng.randint(1, 3))
    if ctx.rng.random() < 0.3:
        states = [state.lower() for state in states]
    return lambda _: list_groups.ListGroupsRequest(states_filter=states)


@variant(LIST_GROUPS, "by type", valid=True, versions=(5, 99), eventually=True)
def _(ctx: Context) -> Any:
    types = ctx.rng.sample(["classic", "Consumer", "Classic", "share", "streams"], 2)
    return lambda _: list_groups.ListGroupsRequest(types_filter=types)


@variant(LIST_GROUPS, "unknown state", valid=False, versions=(4, 99), eventually=True)
def _(ctx: Context) -> Any:
    states = ctx.rng.choice([["Unknown"], [""], ["Stable", "nothing"], ["Assigning", "Reconciling"]])
    return lambda _: list_groups.ListGroupsRequest(states_filter=states)


@variant(LIST_GROUPS, "unknown type", valid=False, versions=(5, 99), eventually=True)
def _(ctx: Context) -> Any:
    types = ctx.rng.choice([["unknown"], [""], ["classic", "nothing"]])
    return lambda _: list_groups.ListGroupsRequest(types_filter=types)


# DescribeGroups


def _describe(ctx: Context, *groups: str, operations: bool = False) -> Any:
    operations = operations and ctx.version >= 3
    return lambda _: describe_groups.DescribeGroupsRequest(
        groups=list(groups), include_authorized_operations=operations
    )


@variant(DESCRIBE_GROUPS, "in each state", valid=True)
def _(ctx: Context) -> Any:
    groups = ctx.world.groups
    members = [groups.stable, groups.completing, groups.completing_again, groups.preparing]
    states = [*members, groups.empty, lambda: groups.simple(PLACE)]
    return _describe(ctx, ctx.rng.choice(states)())


@variant(DESCRIBE_GROUPS, "a static member", valid=True)
def _(ctx: Context) -> Any:
    return _describe(ctx, ctx.world.groups.stable(INSTANCE))


@variant(DESCRIBE_GROUPS, "several, with operations", valid=True, versions=(3, 99))
def _(ctx: Context) -> Any:
    return _describe(ctx, ctx.world.groups.stable(), ctx.world.groups.empty(), operations=True)


@variant(DESCRIBE_GROUPS, "not of consumers", valid=True)
def _(ctx: Context) -> Any:
    return _describe(ctx, ctx.world.groups.stable(protocol_type="connect"))


@variant(DESCRIBE_GROUPS, "nothing", valid=True)
def _(ctx: Context) -> Any:
    return _describe(ctx)


@variant(DESCRIBE_GROUPS, "unknown group", valid=False)
def _(ctx: Context) -> Any:
    return _describe(ctx, ctx.world.groups.unknown(), operations=ctx.rng.random() < 0.5)


@variant(DESCRIBE_GROUPS, "known and unknown", valid=False)
def _(ctx: Context) -> Any:
    return _describe(ctx, ctx.world.groups.unknown(), ctx.world.groups.stable())


@variant(DESCRIBE_GROUPS, "a group twice", valid=False)
def _(ctx: Context) -> Any:
    group = ctx.rng.choice([ctx.world.groups.unknown, ctx.world.groups.stable])()
    return _describe(ctx, group, group)


@variant(DESCRIBE_GROUPS, "no name", valid=False)
def _(ctx: Context) -> Any:
    return _describe(ctx, "")


# DeleteGroups


def _delete(*groups: str) -> Any:
    look = Case(
        DESCRIBE_GROUPS,
        5,
        "what is left",
        valid=True,
        build=lambda _: describe_groups.DescribeGroupsRequest(groups=list(groups)),
    )
    return lambda _: delete_groups.DeleteGroupsRequest(groups_names=list(groups)), {"follow_ups": (look,)}


@variant(DELETE_GROUPS, "without members", valid=True)
def _(ctx: Context) -> Any:
    return _delete(ctx.rng.choice([ctx.world.groups.simple, ctx.world.groups.empty])(PLACE))


@variant(DELETE_GROUPS, "several", valid=True)
def _(ctx: Context) -> Any:
    return _delete(ctx.world.groups.empty(), ctx.world.groups.simple(PLACE))


@variant(DELETE_GROUPS, "nothing", valid=True)
def _(ctx: Context) -> Any:
    del ctx
    return _delete()


@variant(DELETE_GROUPS, "with members", valid=False)
def _(ctx: Context) -> Any:
    groups = ctx.world.groups
    return _delete(ctx.rng.choice([groups.stable, groups.completing, groups.preparing])(), groups.empty())


@variant(DELETE_GROUPS, "unknown group", valid=False)
def _(ctx: Context) -> Any:
    return _delete(ctx.world.groups.unknown(), ctx.world.groups.empty())


@variant(DELETE_GROUPS, "a group twice", valid=False)
def _(ctx: Context) -> Any:
    group = ctx.world.groups.empty()
    return _delete(group, group)


@variant(DELETE_GROUPS, "no name", valid=False)
def _(ctx: Context) -> Any:
    del ctx
    return _delete("")
