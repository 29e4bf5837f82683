"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.clients.oracle.groups import INSTANCE, join_request, protocols, sync_request
from tests.clients.oracle.model import (
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    SYNC_GROUP,
    Case,
    Context,
    variant,
)

from penstock.wire.kafka.generated import heartbeat, leave_group

if TYPE_CHECKING:
    from tests.clients.oracle.sides import Side

ID_REQUIRED_SINCE = 4
JOIN_STATIC = (5, 99)
STATIC = (3, 99)
PROTOCOL_SINCE = (5, 99)
SHORT_MS = 400  # time enough for its plan, and not long to wait for
ODD_GENERATIONS = (0, 2, 7, -1, -2, 2**31 - 1, -(2**31))
ODD_MEMBERS = ("", "nobody", "é", "m" * 300)


# JoinGroup


def _join(group: str, **fields: Any) -> tuple[Any, dict[str, Any]]:
    """A request that is known to be answered by the group's member from here on."""
    return lambda _: join_request(group, **fields), {"group": group}


def _join_again(ctx: Context, group: str, **fields: Any) -> Case:
    return Case(
        JOIN_GROUP,
        ctx.version,
        "with the id it was given",
        valid=True,
        build=lambda side: join_request(group, member_id=side.members[group], **fields),
        group=group,
    )


def _new(ctx: Context, **fields: Any) -> Any:
    """A first member: since version 4 it is given an id, and has to come back with it."""
    group = ctx.world.groups.unknown()
    build, options = _join(group, **fields)
    if ctx.version >= ID_REQUIRED_SINCE and not fields.get("group_instance_id"):
        options["follow_ups"] = (_join_again(ctx, group, **fields),)
    return build, options


@variant(JOIN_GROUP, "a new member", valid=True)
def _(ctx: Context) -> Any:
    return _new(ctx, session_timeout_ms=ctx.rng.choice([6000, 30_000, 1_800_000]))


@variant(JOIN_GROUP, "several protocols", valid=True)
def _(ctx: Context) -> Any:
    names = ctx.rng.sample(["range", "roundrobin", "sticky", "own"], 3)
    return _new(ctx, protocols=protocols(*names))


@variant(JOIN_GROUP, "not of consumers", valid=True)
def _(ctx: Context) -> Any:
    return _new(ctx, protocol_type=ctx.rng.choice(["connect", "own", "sr"]))


@variant(JOIN_GROUP, "a member again", valid=True)
def _(ctx: Context) -> Any:
    group = ctx.rng.choice([ctx.world.groups.stable, ctx.world.groups.completing])()
    return lambda side: join_request(group, member_id=side.members[group]), {"group": group}


@variant(JOIN_GROUP, "a member again, with other protocols", valid=True)
def _(ctx: Context) -> Any:
    group = ctx.world.groups.stable()
    other = protocols("roundrobin", "range", topics=("timed",))
    return lambda side: join_request(group, member_id=side.members[group], protocols=other), {"group": group}


@variant(JOIN_GROUP, "in place of one that does not come back", valid=True)
def _(ctx: Context) -> Any:
    group = ctx.world.groups.impatient(SHORT_MS)
    short = {"rebalance_timeout_ms": SHORT_MS} if ctx.version >= 1 else {"session_timeout_ms": 6000}
    build, options = _join(group, **short)
    if ctx.version >= ID_REQUIRED_SINCE:
        options["follow_ups"] = (_join_again(ctx, group, **short),)
    elif ctx.version == 0:
        return _new(ctx)  # its session timeout is its rebalance timeout: too long to wait for
    return build, options


@variant(JOIN_GROUP, "a static member", valid=True, versions=JOIN_STATIC)
def _(ctx: Context) -> Any:
    return _new(ctx, group_instance_id=ctx.rng.choice([INSTANCE, "é", "a.b_c-d"]))


@variant(JOIN_GROUP, "a static member returns", valid=True, versions=JOIN_STATIC)
def _(ctx: Context) -> Any:
    group = ctx.rng.choice([ctx.world.groups.stable, ctx.world.groups.completing])(INSTANCE)
    return _join(group, group_instance_id=INSTANCE)


@variant(JOIN_GROUP, "a static member returns with other topics", valid=True, versions=JOIN_STATIC)
def _(ctx: Context) -> Any:
    group = ctx.world.groups.stable(INSTANCE)
    return _join(group, group_instance_id=INSTANCE, protocols=protocols("range", topics=("timed",)))


@variant(JOIN_GROUP, "a group without members", valid=True)
def _(ctx: Context) -> Any:
    group = ctx.rng.choice([ctx.world.groups.empty, ctx.world.groups.simple])(("plain", 0, 3))
    build, options = _join(group)
    if ctx.version >= ID_REQUIRED_SINCE:
        options["follow_ups"] = (_join_again(ctx, group),)
    return build, options


@variant(JOIN_GROUP, "no group name", valid=False)
def _(ctx: Context) -> Any:
    del ctx
    return lambda _: join_request("")


@variant(JOIN_GROUP, "session timeout out of bounds", valid=False)
def _(ctx: Context) -> Any:
    group = ctx.world.groups.unknown()
    odd = ctx.rng.choice([0, 1, 5999, 1_800_001, -1, 2**31 - 1, -(2**31)])
    return lambda _: join_request(group, session_timeout_ms=odd)


@variant(JOIN_GROUP, "no protocols", valid=False)
def _(ctx: Context) -> Any:
    group = ctx.rng.choice([ctx.world.groups.unknown, ctx.world.groups.stable])()
    odd = ctx.rng.choice([{"protocols": []}, {"protocol_type": ""}])
    return lambda _: join_request(group, **odd)


@variant(JOIN_GROUP, "unknown member", valid=False)
def _(ctx: Context) -> Any:
    group = ctx.rng.choice([ctx.world.groups.unknown, ctx.world.groups.stable, ctx.world.groups.empty])()
    member = ctx.rng.choice(ODD_MEMBERS[1:])
    return lambda _: join_request(group, member_id=member)


@variant(JOIN_GROUP, "protocols that the others do not have", valid=False)
def _(ctx: Context) -> Any:
    group = ctx.rng.choice([ctx.world.groups.stable, ctx.world.groups.completing])()
    odd = ctx.rng.choice([{"protocols": protocols("own")}, {"protocol_type": "connect"}])
    return lambda _: join_request(group, **odd)


@variant(JOIN_GROUP, "an instance that is another member", valid=False, versions=JOIN_STATIC)
def _(ctx: Context) -> Any:
    group = ctx.world.groups.stable(INSTANCE)
    return lambda _: join_request(group, member_id="nobody", group_instance_id=INSTANCE)


@variant(JOIN_GROUP, "an unknown instance with a member's id", valid=False, versions=JOIN_STATIC)
def _(ctx: Context) -> Any:
    group = ctx.rng.choice([ctx.world.groups.stable, ctx.world.groups.unknown])()
    return lambda side: join_request(
        group, member_id=side.members.get(group, "nobody"), group_instance_id="another"
    )


# SyncGroup


@variant(SYNC_GROUP, "the leader's plan", valid=True)
def _(ctx: Context) -> Any:
    group = ctx.world.groups.completing()
    again = Case(SYNC_GROUP, ctx.version, "again", valid=True, build=lambda side: sync_request(side, group))
    return lambda side: sync_request(side, group), {"follow_ups": (again,)}


@variant(SYNC_GROUP, "a plan without its leader", valid=True)
def _(ctx: Context) -> Any:
    group = ctx.world.groups.completing()
    return lambda side: sync_request(side, group, assignments=[])


@variant(SYNC_GROUP, "in a stable group", valid=True)
def _(ctx: Context) -> Any:
    group = ctx.world.groups.stable()
    return lambda side: sync_request(side, group, assignments=[])


@variant(SYNC_GROUP, "a static member", valid=True, versions=STATIC)
def _(ctx: Context) -> Any:
    group = ctx.rng.choice([ctx.world.groups.stable, ctx.world.groups.completing])(INSTANCE)
    return lambda side: sync_request(side, group, group_instance_id=INSTANCE)


def _some_group(ctx: Context) -> str:
    groups = ctx.world.groups
    return str(ctx.rng.choice([groups.unknown, groups.stable, groups.completing, groups.empty])())


@variant(SYNC_GROUP, "unknown member", valid=False)
def _(ctx: Context) -> Any:
    group, member = _some_group(ctx), ctx.rng.choice(ODD_MEMBERS)
    return lambda side: sync_request(side, group, member_id=member)


@variant(SYNC_GROUP, "another generation", valid=False)
def _(ctx: Context) -> Any:
    group = ctx.rng.choice([ctx.world.groups.stable, ctx.world.groups.completing])()
    odd = ctx.rng.choice(ODD_GENERATIONS)
    return lambda side: sync_request(side, group, generation_id=odd)


@variant(SYNC_GROUP, "another protocol", valid=False, versions=PROTOCOL_SINCE)
def _(ctx: Context) -> Any:
    group = ctx.rng.choice([ctx.world.groups.stable, ctx.world.groups.completing])()
    odd = ctx.rng.choice(
        [
            {"protocol_name": "own"},
            {"protocol_type": "connect"},
            {"protocol_name": None},
            {"protocol_type": None},
        ]
    )
    return lambda side: sync_request(side, group, **odd)


@variant(SYNC_GROUP, "while the group rebalances", valid=False)
def _(ctx: Context) -> Any:
    group = ctx.world.groups.preparing()
    return lambda side: sync_request(side, group)


@variant(SYNC_GROUP, "a member that left", valid=False)
def _(ctx: Context) -> Any:
    group = ctx.world.groups.empty()
    return lambda side: sync_request(side, group)


@variant(SYNC_GROUP, "an instance that is another member", valid=False, versions=STATIC)
def _(ctx: Context) -> Any:
    group = ctx.world.groups.stable(INSTANCE)
    odd = ctx.rng.choice(
        [{"member_id": "nobody", "group_instance_id": INSTANCE}, {"group_instance_id": "another"}]
    )
    return lambda side: sync_request(side, group, **odd)


@variant(SYNC_GROUP, "no group name", valid=False)
def _(ctx: Context) -> Any:
    del ctx
    return lambda side: sync_request(side, "", member_id="nobody", generation_id=1)


# Heartbeat


def _beat(side: Side, group: str, **fields: Any) -> Any:
    wanted: dict[str, Any] = {
        "generation_id": side.generations.get(group, -1),
        "member_id": side.members.get(group, ""),
    }
    return heartbeat.HeartbeatRequest(group_id=group, **wanted | fields)


@variant(HEARTBEAT, "a member", valid=True)
def _(ctx: Context) -> Any:
    group = ctx.rng.choice([ctx.world.groups.stable, ctx.world.groups.completing])()
    return lambda side: _beat(side, group)


@variant(HEARTBEAT, "a static member", valid=True, versions=STATIC)
def _(ctx: Context) -> Any:
    group = ctx.world.groups.stable(INSTANCE)
    instance = ctx.rng.choice([INSTANCE, None])
    return lambda side: _beat(side, group, group_instance_id=instance)


@variant(HEARTBEAT, "while the group rebalances", valid=True)
def _(ctx: Context) -> Any:
    group = ctx.world.groups.preparing()
    return lambda side: _beat(side, group)


@variant(HEARTBEAT, "unknown member", valid=False)
def _(ctx: Context) -> Any:
    group, member = _some_group(ctx), ctx.rng.choice(ODD_MEMBERS)
    return lambda side: _beat(side, group, member_id=member)


@variant(HEARTBEAT, "another generation", valid=False)
def _(ctx: Context) -> Any:
    groups = ctx.world.groups
    group = ctx.rng.choice([groups.stable, groups.completing, groups.preparing])()
    odd = ctx.rng.choice(ODD_GENERATIONS)
    return lambda side: _beat(side, group, generation_id=odd)


@variant(HEARTBEAT, "a member that left", valid=False)
def _(ctx: Context) -> Any:
    group = ctx.world.groups.empty()
    return lambda side: _beat(side, group)


@variant(HEARTBEAT, "an instance that is another member", valid=False, versions=STATIC)
def _(ctx: Context) -> Any:
    group = ctx.world.groups.stable(INSTANCE)
    odd = ctx.rng.choice(
        [{"member_id": "nobody", "group_instance_id": INSTANCE}, {"group_instance_id": "another"}]
    )
    return lambda side: _beat(side, group, **odd)


@variant(HEARTBEAT, "no group name", valid=False)
def _(ctx: Context) -> Any:
    generation = ctx.rng.choice([-1, 0, 1])
    return lambda side: _beat(side, "", member_id="nobody", generation_id=generation)


# LeaveGroup


def _leave(ctx: Context, group: str, *members: tuple[str | None, str | None]) -> Any:
    """Each by member id (None for the group's member) and instance id; before version 3 one, by member id."""
    version = ctx.version

    def build(side: Side) -> Any:
        known = [
            (side.members.get(group, "") if member is None else member, instance)
            for member, instance in members
        ]
        if version < STATIC[0]:
            return leave_group.LeaveGroupRequest(group_id=group, member_id=known[0][0])
        listed = [
            leave_group.MemberIdentity(
                member_id=member, group_instance_id=instance, reason="done" if version >= 5 else None
            )
            for member, instance in known
        ]
        return leave_group.LeaveGroupRequest(group_id=group, members=listed)

    return build


@variant(LEAVE_GROUP, "a member", valid=True)
def _(ctx: Context) -> Any:
    groups = ctx.world.groups
    group = ctx.rng.choice([groups.stable, groups.completing])()
    return _leave(ctx, group, (None, None))


@variant(LEAVE_GROUP, "a static member", valid=True, versions=STATIC)
def _(ctx: Context) -> Any:
    group = ctx.world.groups.stable(INSTANCE)
    return _leave(ctx, group, ctx.rng.choice([("", INSTANCE), (None, INSTANCE), (None, None)]))


@variant(LEAVE_GROUP, "a member and nobody", valid=True, versions=STATIC)
def _(ctx: Context) -> Any:
    group = ctx.world.groups.stable(INSTANCE)
    return _leave(ctx, group, ("", INSTANCE), ("nobody", None), ("", "another"))


@variant(LEAVE_GROUP, "unknown member", valid=False)
def _(ctx: Context) -> Any:
    return _leave(ctx, _some_group(ctx), (ctx.rng.choice(ODD_MEMBERS), None))


@variant(LEAVE_GROUP, "a member that left", valid=False)
def _(ctx: Context) -> Any:
    return _leave(ctx, ctx.world.groups.empty(), (None, None))


@variant(LEAVE_GROUP, "an instance that is another member", valid=False, versions=STATIC)
def _(ctx: Context) -> Any:
    group = ctx.world.groups.stable(INSTANCE)
    return _leave(ctx, group, ctx.rng.choice([("nobody", INSTANCE), (None, "another"), ("", "another")]))


@variant(LEAVE_GROUP, "nobody", valid=False, versions=STATIC)
def _(ctx: Context) -> Any:
    return _leave(ctx, _some_group(ctx))


@variant(LEAVE_GROUP, "a member twice", valid=False, versions=STATIC)
def _(ctx: Context) -> Any:
    return _leave(ctx, ctx.world.groups.stable(), (None, None), (None, None))


@variant(LEAVE_GROUP, "no group name", valid=False)
def _(ctx: Context) -> Any:
    return _leave(ctx, "", ("nobody", None))
