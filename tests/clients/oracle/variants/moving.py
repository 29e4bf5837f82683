"""AlterPartitionReassignments, ListPartitionReassignments, ElectLeaders, UnregisterBroker: what one broker shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.clients.oracle.model import (
    ALTER_PARTITION_REASSIGNMENTS,
    ELECT_LEADERS,
    LIST_PARTITION_REASSIGNMENTS,
    UNREGISTER_BROKER,
    Context,
    variant,
)
from tests.clients.oracle.variants.common import ILLEGAL_NAMES, UNKNOWN_PARTITIONS, some

from penstock.wire.kafka.generated import (
    alter_partition_reassignments,
    elect_leaders,
    list_partition_reassignments,
    unregister_broker,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.clients.oracle.sides import Side

TIMEOUT_MS = 20_000
# Stands for the broker's own id: the two sides need not share it.
SELF = -100
UNKNOWN_BROKER = 77
PREFERRED, UNCLEAN = 0, 1
KINDS_SINCE = 1

Wanted = tuple[str, int, "Sequence[int] | None"]


# AlterPartitionReassignments


def _alter(ctx: Context, *wanted: Wanted, may_change: bool = True) -> Any:
    options = {"allow_replication_factor_change": may_change} if ctx.version >= 1 else {}

    def build(side: Side) -> Any:
        topics: dict[str, list[Any]] = {}
        for name, number, replicas in wanted:
            ids = (
                None
                if replicas is None
                else [side.node_id if replica == SELF else replica for replica in replicas]
            )
            part = alter_partition_reassignments.ReassignablePartition(partition_index=number, replicas=ids)
            topics.setdefault(name, []).append(part)
        return alter_partition_reassignments.AlterPartitionReassignmentsRequest(
            timeout_ms=TIMEOUT_MS,
            topics=[
                alter_partition_reassignments.ReassignableTopic(name=name, partitions=parts)
                for name, parts in topics.items()
            ],
            **options,
        )

    return build


@variant(ALTER_PARTITION_REASSIGNMENTS, "where it is", valid=True)
def _(ctx: Context) -> Any:
    names = some(ctx.rng, ctx.world.topics)
    return _alter(ctx, *((name, 0, [SELF]) for name in names), may_change=ctx.rng.random() < 0.5)


@variant(ALTER_PARTITION_REASSIGNMENTS, "nothing", valid=True)
def _(ctx: Context) -> Any:
    return _alter(ctx, may_change=ctx.rng.random() < 0.5)


@variant(ALTER_PARTITION_REASSIGNMENTS, "nothing to take back", valid=False)
def _(ctx: Context) -> Any:
    return _alter(ctx, ("plain", ctx.rng.randrange(3), None), ("timed", 0, ctx.rng.choice([None, [SELF]])))


@variant(ALTER_PARTITION_REASSIGNMENTS, "impossible replicas", valid=False)
def _(ctx: Context) -> Any:
    odd = [[], [SELF, SELF], [UNKNOWN_BROKER], [SELF, UNKNOWN_BROKER], [-1], [UNKNOWN_BROKER, UNKNOWN_BROKER]]
    return _alter(ctx, ("plain", 0, ctx.rng.choice(odd)), ("plain", 1, [SELF]))


@variant(ALTER_PARTITION_REASSIGNMENTS, "another factor, not allowed", valid=False, versions=(1, 99))
def _(ctx: Context) -> Any:
    odd = [[], [SELF, UNKNOWN_BROKER], [SELF, SELF]]
    return _alter(ctx, ("plain", 0, ctx.rng.choice(odd)), ("plain", 1, [SELF]), may_change=False)


@variant(ALTER_PARTITION_REASSIGNMENTS, "unknown place", valid=False)
def _(ctx: Context) -> Any:
    place = ctx.rng.choice(
        [("plain", number) for number in UNKNOWN_PARTITIONS]
        + [(name, 0) for name in (*ILLEGAL_NAMES, "unknown")]
    )
    return _alter(ctx, (*place, ctx.rng.choice([[SELF], None])), ("plain", 0, [SELF]))


@variant(ALTER_PARTITION_REASSIGNMENTS, "partition twice", valid=False)
def _(ctx: Context) -> Any:
    again = ctx.rng.choice([[SELF], [UNKNOWN_BROKER], None])
    return _alter(ctx, ("plain", 0, [SELF]), ("plain", 0, again))


# ListPartitionReassignments


def _list(*wanted: tuple[str, Sequence[int]]) -> Any:
    return lambda _: list_partition_reassignments.ListPartitionReassignmentsRequest(
        timeout_ms=TIMEOUT_MS,
        topics=[
            list_partition_reassignments.ListPartitionReassignmentsTopics(
                name=name, partition_indexes=list(numbers)
            )
            for name, numbers in wanted
        ],
    )


@variant(LIST_PARTITION_REASSIGNMENTS, "all", valid=True)
def _(_: Context) -> Any:
    return lambda _: list_partition_reassignments.ListPartitionReassignmentsRequest(
        timeout_ms=TIMEOUT_MS, topics=None
    )


@variant(LIST_PARTITION_REASSIGNMENTS, "known partitions", valid=True)
def _(ctx: Context) -> Any:
    return _list(*((name, [0]) for name in some(ctx.rng, ctx.world.topics)))


@variant(LIST_PARTITION_REASSIGNMENTS, "nothing", valid=True)
def _(ctx: Context) -> Any:
    return ctx.rng.choice([_list(), _list(("plain", []))])


@variant(LIST_PARTITION_REASSIGNMENTS, "unknown place", valid=False)
def _(ctx: Context) -> Any:
    name = ctx.rng.choice([*ILLEGAL_NAMES, "unknown"])
    return _list((name, [0]), ("plain", [ctx.rng.choice(UNKNOWN_PARTITIONS), 0, 0]))


# ElectLeaders


def _elect(ctx: Context, wanted: Sequence[tuple[str, Sequence[int]]] | None, kind: int = PREFERRED) -> Any:
    options = {"election_type": kind} if ctx.version >= KINDS_SINCE else {}
    topics = None
    if wanted is not None:
        topics = [
            elect_leaders.TopicPartitions(topic=name, partitions=list(numbers)) for name, numbers in wanted
        ]
    return lambda _: elect_leaders.ElectLeadersRequest(
        topic_partitions=topics, timeout_ms=TIMEOUT_MS, **options
    )


@variant(ELECT_LEADERS, "all", valid=True)
def _(ctx: Context) -> Any:
    return _elect(ctx, None, ctx.rng.choice([PREFERRED, UNCLEAN]))


@variant(ELECT_LEADERS, "not needed", valid=True)
def _(ctx: Context) -> Any:
    names = some(ctx.rng, ctx.world.topics)
    return _elect(ctx, [(name, [0]) for name in names], ctx.rng.choice([PREFERRED, UNCLEAN]))


@variant(ELECT_LEADERS, "nothing", valid=True)
def _(ctx: Context) -> Any:
    return _elect(ctx, ctx.rng.choice([[], [("plain", [])]]))


@variant(ELECT_LEADERS, "unknown place", valid=False)
def _(ctx: Context) -> Any:
    name = ctx.rng.choice([*ILLEGAL_NAMES, "unknown"])
    wanted = [(name, [0]), ("plain", [ctx.rng.choice(UNKNOWN_PARTITIONS), 0])]
    return _elect(ctx, wanted, ctx.rng.choice([PREFERRED, UNCLEAN]))


@variant(ELECT_LEADERS, "partition twice", valid=False)
def _(ctx: Context) -> Any:
    return _elect(ctx, ctx.rng.choice([[("plain", [0, 0])], [("plain", [0]), ("plain", [1, 0])]]))


@variant(ELECT_LEADERS, "no such kind", valid=False, versions=(KINDS_SINCE, 99))
def _(ctx: Context) -> Any:
    return _elect(ctx, ctx.rng.choice([None, [("plain", [0])]]), ctx.rng.choice([2, 7, -1, 127]))


# UnregisterBroker. One that runs is left alone here: Kafka would forget it.


@variant(UNREGISTER_BROKER, "unknown broker", valid=False)
def _(ctx: Context) -> Any:
    broker = ctx.rng.choice([UNKNOWN_BROKER, 0, -1, -7, 2**31 - 1])
    return lambda _: unregister_broker.UnregisterBrokerRequest(broker_id=broker)
