"""OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.clients.oracle.groups import INSTANCE
from tests.clients.oracle.model import OFFSET_COMMIT, OFFSET_DELETE, OFFSET_FETCH, Case, Context, variant
from tests.clients.oracle.variants.common import ILLEGAL_NAMES, UNKNOWN_PARTITIONS, unknown_id

from penstock.wire.kafka.generated import offset_commit, offset_delete, offset_fetch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.clients.oracle.sides import Side

Place = tuple[str, int, int]
IDS_SINCE = 10
STATIC = (7, 99)
MANY_GROUPS_SINCE = 8
OWN_RETENTION = (2, 4)
METADATA_MAX = 4096
PLACES: tuple[Place, ...] = (("plain", 0, 3), ("plain", 1, 0), ("timed", 0, 12))


# OffsetCommit


def _commit(
    ctx: Context,
    group: str,
    *places: Place,
    as_member: bool = False,
    metadata: str | None = "",
    epoch: int = -1,
    topic_id: bytes | None = None,
    **fields: Any,
) -> Any:
    """The request, and a look at what became of it. Topics are named by id where the version does so."""
    version = ctx.version

    def build(side: Side) -> Any:
        topics: dict[str, list[Any]] = {}
        for name, number, offset in places:
            part = offset_commit.OffsetCommitRequestPartition(
                partition_index=number,
                committed_offset=offset,
                committed_leader_epoch=epoch,
                committed_metadata=metadata,
            )
            topics.setdefault(name, []).append(part)
        listed = [
            offset_commit.OffsetCommitRequestTopic(
                name=name,
                topic_id=(topic_id or side.topic_ids.get(name, bytes(16)))
                if version >= IDS_SINCE
                else bytes(16),
                partitions=parts,
            )
            for name, parts in topics.items()
        ]
        who: dict[str, Any] = {}
        if as_member:
            who = {
                "member_id": side.members[group],
                "generation_id_or_member_epoch": side.generations[group],
            }
        return offset_commit.OffsetCommitRequest(group_id=group, topics=listed, **who | fields)

    look = Case(
        OFFSET_FETCH, 7, "what was committed", valid=True, build=_fetch_single(group, [("plain", [0, 1])])
    )
    return build, {"follow_ups": (look,) if group else ()}


def _fetch_single(group: str, wanted: Sequence[tuple[str, Sequence[int]]] | None) -> Any:
    topics = None
    if wanted is not None:
        topics = [
            offset_fetch.OffsetFetchRequestTopic(name=name, partition_indexes=list(parts))
            for name, parts in wanted
        ]
    return lambda _: offset_fetch.OffsetFetchRequest(group_id=group, topics=topics)


@variant(OFFSET_COMMIT, "without a group's members", valid=True)
def _(ctx: Context) -> Any:
    groups = ctx.world.groups
    group = ctx.rng.choice([groups.unknown, lambda: groups.simple(PLACES[0]), groups.empty])()
    return _commit(ctx, group, *ctx.rng.sample(PLACES, 2))


@variant(OFFSET_COMMIT, "a member", valid=True)
def _(ctx: Context) -> Any:
    metadata = ctx.rng.choice(["", None, "note", "é" * 100, "m" * METADATA_MAX])
    return _commit(ctx, ctx.world.groups.stable(), *PLACES, as_member=True, metadata=metadata)


@variant(OFFSET_COMMIT, "with a leader epoch", valid=True, versions=(6, 99))
def _(ctx: Context) -> Any:
    epoch = ctx.rng.choice([0, 5, 2**31 - 1])
    return _commit(ctx, ctx.world.groups.stable(), *PLACES, as_member=True, epoch=epoch)


@variant(OFFSET_COMMIT, "with a retention of its own", valid=True, versions=OWN_RETENTION)
def _(ctx: Context) -> Any:
    retention = ctx.rng.choice([-1, 60_000, 2**40])
    return _commit(ctx, ctx.world.groups.unknown(), *PLACES, retention_time_ms=retention)


@variant(OFFSET_COMMIT, "a static member", valid=True, versions=STATIC)
def _(ctx: Context) -> Any:
    group = ctx.world.groups.stable(INSTANCE)
    return _commit(ctx, group, *PLACES, as_member=True, group_instance_id=INSTANCE)


@variant(OFFSET_COMMIT, "while the group rebalances", valid=True)
def _(ctx: Context) -> Any:
    return _commit(ctx, ctx.world.groups.preparing(), *PLACES, as_member=True)


@variant(OFFSET_COMMIT, "nothing", valid=True)
def _(ctx: Context) -> Any:
    return _commit(ctx, ctx.rng.choice([ctx.world.groups.stable, ctx.world.groups.unknown])())


@variant(OFFSET_COMMIT, "a partition twice", valid=True)
def _(ctx: Context) -> Any:
    return _commit(ctx, ctx.world.groups.unknown(), ("plain", 0, 3), ("plain", 0, 5))


@variant(OFFSET_COMMIT, "unknown topic or partition", valid=False)
def _(ctx: Context) -> Any:
    bad: list[Place] = [("plain", number, 1) for number in UNKNOWN_PARTITIONS]
    if ctx.version < IDS_SINCE:
        bad += [(name, 0, 1) for name in ("unknown", *ILLEGAL_NAMES)]
    return _commit(ctx, ctx.world.groups.stable(), ctx.rng.choice(bad), PLACES[0], as_member=True)


@variant(OFFSET_COMMIT, "unknown topic id", valid=False, versions=(IDS_SINCE, 99))
def _(ctx: Context) -> Any:
    topic_id = ctx.rng.choice([unknown_id(ctx.rng), bytes(16)])
    return _commit(ctx, ctx.world.groups.unknown(), PLACES[0], topic_id=topic_id)


@variant(OFFSET_COMMIT, "another generation", valid=False)
def _(ctx: Context) -> Any:
    groups = ctx.world.groups
    group = ctx.rng.choice([groups.stable, groups.completing, groups.preparing])()
    odd = ctx.rng.choice([0, 2, 7, -1, -2, 2**31 - 1])
    return _commit(ctx, group, *PLACES, as_member=True, generation_id_or_member_epoch=odd)


@variant(OFFSET_COMMIT, "before the plan is there", valid=False)
def _(ctx: Context) -> Any:
    return _commit(ctx, ctx.world.groups.completing(), *PLACES, as_member=True)


@variant(OFFSET_COMMIT, "unknown member", valid=False)
def _(ctx: Context) -> Any:
    groups = ctx.world.groups
    group = ctx.rng.choice([groups.stable, groups.unknown, groups.empty, groups.completing])()
    member = ctx.rng.choice(["", "nobody"])
    return _commit(
        ctx, group, *PLACES, member_id=member, generation_id_or_member_epoch=ctx.rng.choice([0, 1])
    )


@variant(OFFSET_COMMIT, "without members where there are some", valid=False)
def _(ctx: Context) -> Any:
    return _commit(ctx, ctx.world.groups.stable(), *PLACES)


@variant(OFFSET_COMMIT, "metadata too long", valid=False)
def _(ctx: Context) -> Any:
    metadata = ctx.rng.choice(["m" * (METADATA_MAX + 1), "é" * METADATA_MAX])
    return _commit(ctx, ctx.world.groups.unknown(), *PLACES, metadata=metadata)


@variant(OFFSET_COMMIT, "odd offsets", valid=False)
def _(ctx: Context) -> Any:
    offset = ctx.rng.choice([-1, -2, 10**6, 2**63 - 1, -(2**63)])
    return _commit(ctx, ctx.world.groups.unknown(), ("plain", 0, offset))


@variant(OFFSET_COMMIT, "an instance that is another member", valid=False, versions=STATIC)
def _(ctx: Context) -> Any:
    group = ctx.world.groups.stable(INSTANCE)
    odd = ctx.rng.choice(
        [{"member_id": "nobody", "group_instance_id": INSTANCE}, {"group_instance_id": "another"}]
    )
    return _commit(ctx, group, *PLACES, as_member=True, **odd)


@variant(OFFSET_COMMIT, "no group name", valid=False)
def _(ctx: Context) -> Any:
    return _commit(ctx, "", *PLACES)


# OffsetFetch


def _fetch(
    ctx: Context,
    wanted: Sequence[tuple[str, Sequence[int]]] | None,
    *groups: str,
    stable: bool = False,
    topic_id: bytes | None = None,
    **fields: Any,
) -> Any:
    """Of each group the same; before version 8 of the first alone."""
    version = ctx.version

    def build(side: Side) -> Any:
        if version < MANY_GROUPS_SINCE:
            request = _fetch_single(groups[0], wanted)(side)
            request.require_stable = stable
            return request
        topics = None
        if wanted is not None:
            topics = [
                offset_fetch.OffsetFetchRequestTopics(
                    name=name,
                    topic_id=(topic_id or side.topic_ids.get(name, bytes(16)))
                    if version >= IDS_SINCE
                    else bytes(16),
                    partition_indexes=list(parts),
                )
                for name, parts in wanted
            ]
        listed = [
            offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=topics, **fields) for group in groups
        ]
        return offset_fetch.OffsetFetchRequest(groups=listed, require_stable=stable)

    return build


def _with_offsets(ctx: Context) -> str:
    groups = ctx.world.groups
    return str(ctx.rng.choice([groups.simple, groups.empty])(*ctx.rng.sample(PLACES, 2)))


@variant(OFFSET_FETCH, "some partitions", valid=True)
def _(ctx: Context) -> Any:
    stable = ctx.version >= 7 and ctx.rng.random() < 0.5
    return _fetch(ctx, [("plain", [0, 1, 2]), ("timed", [0])], _with_offsets(ctx), stable=stable)


@variant(OFFSET_FETCH, "all partitions", valid=True, versions=(2, 99))
def _(ctx: Context) -> Any:
    return _fetch(ctx, None, _with_offsets(ctx))


@variant(OFFSET_FETCH, "several groups", valid=True, versions=(MANY_GROUPS_SINCE, 99))
def _(ctx: Context) -> Any:
    wanted = ctx.rng.choice([None, [("plain", [0, 1])]])
    return _fetch(ctx, wanted, _with_offsets(ctx), ctx.world.groups.unknown(), ctx.world.groups.stable())


@variant(OFFSET_FETCH, "of a group with members", valid=True)
def _(ctx: Context) -> Any:
    return _fetch(ctx, [("plain", [0])], ctx.world.groups.stable())


@variant(OFFSET_FETCH, "nothing", valid=True)
def _(ctx: Context) -> Any:
    return _fetch(ctx, ctx.rng.choice([[], [("plain", [])]]), _with_offsets(ctx))


@variant(OFFSET_FETCH, "a partition twice", valid=True)
def _(ctx: Context) -> Any:
    return _fetch(ctx, [("plain", [0, 0, 1])], _with_offsets(ctx))


@variant(OFFSET_FETCH, "unknown group", valid=False)
def _(ctx: Context) -> Any:
    wanted = ctx.rng.choice([None, [("plain", [0, 1])]]) if ctx.version >= 2 else [("plain", [0])]
    return _fetch(ctx, wanted, ctx.world.groups.unknown())


@variant(OFFSET_FETCH, "unknown topic or partition", valid=False)
def _(ctx: Context) -> Any:
    bad: list[tuple[str, list[int]]] = [("plain", [number]) for number in UNKNOWN_PARTITIONS]
    if ctx.version < IDS_SINCE:
        bad += [(name, [0]) for name in ("unknown", *ILLEGAL_NAMES)]
    return _fetch(ctx, [ctx.rng.choice(bad), ("timed", [0])], _with_offsets(ctx))


@variant(OFFSET_FETCH, "unknown topic id", valid=False, versions=(IDS_SINCE, 99))
def _(ctx: Context) -> Any:
    topic_id = ctx.rng.choice([unknown_id(ctx.rng), bytes(16)])
    return _fetch(ctx, [("plain", [0, 1])], _with_offsets(ctx), topic_id=topic_id)


@variant(OFFSET_FETCH, "no group name", valid=False)
def _(ctx: Context) -> Any:
    return _fetch(ctx, [("plain", [0])], "")


@variant(OFFSET_FETCH, "no group", valid=False, versions=(MANY_GROUPS_SINCE, 99))
def _(ctx: Context) -> Any:
    return _fetch(ctx, None)


@variant(OFFSET_FETCH, "a group twice", valid=False, versions=(MANY_GROUPS_SINCE, 99))
def _(ctx: Context) -> Any:
    group = _with_offsets(ctx)
    return _fetch(ctx, [("plain", [0])], group, group)


@variant(OFFSET_FETCH, "as a member it does not have", valid=False, versions=(9, 99))
def _(ctx: Context) -> Any:
    group = ctx.rng.choice([ctx.world.groups.stable(), ctx.world.groups.unknown(), _with_offsets(ctx)])
    epoch = ctx.rng.choice([-1, 0, 1, 7])
    return _fetch(ctx, [("plain", [0])], group, member_id="nobody", member_epoch=epoch)


# OffsetDelete


def _delete(group: str, *places: tuple[str, Sequence[int]]) -> Any:
    topics = [
        offset_delete.OffsetDeleteRequestTopic(
            name=name,
            partitions=[offset_delete.OffsetDeleteRequestPartition(partition_index=part) for part in parts],
        )
        for name, parts in places
    ]
    look = Case(OFFSET_FETCH, 7, "what is left", valid=True, build=_fetch_single(group, None))
    options = {"follow_ups": (look,)} if group else {}
    return lambda _: offset_delete.OffsetDeleteRequest(group_id=group, topics=topics), options


@variant(OFFSET_DELETE, "of a group without members", valid=True)
def _(ctx: Context) -> Any:
    groups = ctx.world.groups
    group = ctx.rng.choice([groups.simple, groups.empty])(*PLACES)
    return _delete(group, ctx.rng.choice([("plain", [0]), ("plain", [0, 1, 2]), ("timed", [0])]))


@variant(OFFSET_DELETE, "a topic that no member reads", valid=True)
def _(ctx: Context) -> Any:
    return _delete(ctx.world.groups.stable(), ("timed", [0]))


@variant(OFFSET_DELETE, "nothing", valid=True)
def _(ctx: Context) -> Any:
    group = ctx.world.groups.simple(*PLACES)
    return _delete(group, *ctx.rng.choice([(), (("plain", []),)]))


@variant(OFFSET_DELETE, "a topic that a member reads", valid=False)
def _(ctx: Context) -> Any:
    groups = ctx.world.groups
    group = ctx.rng.choice([groups.stable, groups.completing, groups.preparing])()
    return _delete(group, ("plain", [0, 1]), ("timed", [0]))


@variant(OFFSET_DELETE, "of a group that is not of consumers", valid=False)
def _(ctx: Context) -> Any:
    return _delete(ctx.world.groups.stable(protocol_type="connect"), ("plain", [0]))


@variant(OFFSET_DELETE, "unknown group", valid=False)
def _(ctx: Context) -> Any:
    places = ctx.rng.choice([[("plain", [0])], [("unknown", [0])], [("plain", [7]), ("plain", [0])], []])
    return _delete(ctx.world.groups.unknown(), *places)


@variant(OFFSET_DELETE, "unknown topic or partition", valid=False)
def _(ctx: Context) -> Any:
    group = ctx.world.groups.simple(*PLACES)
    odd = [("plain", [partition]) for partition in UNKNOWN_PARTITIONS] + [
        (name, [0]) for name in ("unknown", *ILLEGAL_NAMES)
    ]
    return _delete(group, ctx.rng.choice(odd), ("plain", [0]))


@variant(OFFSET_DELETE, "no group name", valid=False)
def _(ctx: Context) -> Any:
    return _delete("", ctx.rng.choice([("plain", [0]), ("unknown", [0])]))
