"""ListOffsets, OffsetForLeaderEpoch, InitProducerId, DescribeProducers."""

from __future__ import annotations

from typing import Any

from tests.clients.oracle.model import (
    DESCRIBE_PRODUCERS,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    Context,
    variant,
)
from tests.clients.oracle.variants.common import BAD_EPOCHS, ILLEGAL_NAMES, UNKNOWN_PARTITIONS
from tests.clients.oracle.world import EPOCH_MS

from penstock.wire.kafka.generated import (
    describe_producers,
    init_producer_id,
    list_offsets,
    offset_for_leader_epoch,
)

EPOCH_SINCE = 4
SPECIAL_TIMES = (-1, -2, -3, -4, -5, -6)
# Below these versions a special time is refused.
NEWER_TIMES = {-3: 7, -4: 8, -5: 9, -6: 11}


# ListOffsets


def _offsets(
    ctx: Context, *wanted: tuple[str, int, int], epoch: int = -1, replica: int = -1, isolation: int = 0
) -> Any:
    del ctx
    topics: dict[str, list[Any]] = {}
    for name, number, timestamp in wanted:
        part = list_offsets.ListOffsetsPartition(
            partition_index=number, current_leader_epoch=epoch, timestamp=timestamp
        )
        topics.setdefault(name, []).append(part)
    return lambda _: list_offsets.ListOffsetsRequest(
        replica_id=replica,
        isolation_level=isolation,
        topics=[list_offsets.ListOffsetsTopic(name=name, partitions=parts) for name, parts in topics.items()],
        timeout_ms=1000,
    )


@variant(LIST_OFFSETS, "first and last", valid=True)
def _(ctx: Context) -> Any:
    names = ctx.rng.sample(ctx.world.topics, 3)
    return _offsets(ctx, *((name, 0, ctx.rng.choice([-1, -2])) for name in names))


@variant(LIST_OFFSETS, "special times", valid=True)
def _(ctx: Context) -> Any:
    able = [timestamp for timestamp in SPECIAL_TIMES if NEWER_TIMES.get(timestamp, 0) <= ctx.version]
    return _offsets(ctx, (ctx.rng.choice(ctx.world.topics), 0, ctx.rng.choice(able)))


@variant(LIST_OFFSETS, "by time", valid=True)
def _(ctx: Context) -> Any:
    name = ctx.rng.choice(["plain", "timed", "unordered", "trimmed", "codecs", "empty", "append"])
    return _offsets(ctx, (name, 0, ctx.rng.choice([0, EPOCH_MS + ctx.rng.randrange(-2000, 12_000)])))


@variant(LIST_OFFSETS, "leader epoch, read committed", valid=True)
def _(ctx: Context) -> Any:
    epoch = 0 if ctx.version >= EPOCH_SINCE else -1
    isolation = 1 if ctx.version >= 2 else 0
    return _offsets(ctx, ("plain", 0, ctx.rng.choice([-1, -2, EPOCH_MS])), epoch=epoch, isolation=isolation)


@variant(LIST_OFFSETS, "nothing", valid=True)
def _(ctx: Context) -> Any:
    return _offsets(ctx)


@variant(LIST_OFFSETS, "special times too new or unknown", valid=False)
def _(ctx: Context) -> Any:
    unable = [timestamp for timestamp in SPECIAL_TIMES if NEWER_TIMES.get(timestamp, 0) > ctx.version]
    return _offsets(ctx, ("timed", 0, ctx.rng.choice([*unable, -7, -100, -(2**63)])))


@variant(LIST_OFFSETS, "far future", valid=False)
def _(ctx: Context) -> Any:
    return _offsets(ctx, (ctx.rng.choice(["timed", "append"]), 0, 2**62))


@variant(LIST_OFFSETS, "unknown or illegal topic", valid=False)
def _(ctx: Context) -> Any:
    name = ctx.rng.choice([*ILLEGAL_NAMES, "unknown"])
    return _offsets(ctx, (name, 0, -1), ("plain", 0, ctx.rng.choice([-1, -2])))


@variant(LIST_OFFSETS, "unknown partition", valid=False)
def _(ctx: Context) -> Any:
    return _offsets(ctx, ("plain", ctx.rng.choice(UNKNOWN_PARTITIONS), -1), ("plain", 0, -1))


@variant(LIST_OFFSETS, "partition twice", valid=False)
def _(ctx: Context) -> Any:
    return _offsets(ctx, ("plain", 0, -1), ("plain", 0, ctx.rng.choice([-1, -2])), ("plain", 1, -1))


@variant(LIST_OFFSETS, "wrong epoch", valid=False, versions=(EPOCH_SINCE, 99))
def _(ctx: Context) -> Any:
    return _offsets(ctx, ("plain", 0, ctx.rng.choice([-1, -2, EPOCH_MS])), epoch=ctx.rng.choice(BAD_EPOCHS))


@variant(LIST_OFFSETS, "odd isolation level", valid=False, versions=(2, 99))
def _(ctx: Context) -> Any:
    return _offsets(ctx, ("plain", 0, -1), isolation=ctx.rng.choice([2, 7, -1]))


@variant(LIST_OFFSETS, "as a replica", valid=False)
def _(ctx: Context) -> Any:
    return _offsets(ctx, ("plain", 0, ctx.rng.choice([-1, -2])), replica=ctx.rng.choice([-2, -3, 5]))


# OffsetForLeaderEpoch


def _epochs(*wanted: tuple[str, int, int, int], replica: int = -1) -> Any:
    topics = [
        offset_for_leader_epoch.OffsetForLeaderTopic(
            topic=name,
            partitions=[
                offset_for_leader_epoch.OffsetForLeaderPartition(
                    partition=number, current_leader_epoch=current, leader_epoch=epoch
                )
            ],
        )
        for name, number, current, epoch in wanted
    ]
    return lambda _: offset_for_leader_epoch.OffsetForLeaderEpochRequest(replica_id=replica, topics=topics)


@variant(OFFSET_FOR_LEADER_EPOCH, "known epoch", valid=True)
def _(ctx: Context) -> Any:
    return _epochs((ctx.rng.choice(ctx.world.topics), 0, ctx.rng.choice([-1, 0]), 0))


@variant(OFFSET_FOR_LEADER_EPOCH, "several", valid=True)
def _(ctx: Context) -> Any:
    names = ctx.rng.sample(ctx.world.topics, 3)
    return _epochs(*((name, 0, -1, 0) for name in names))


@variant(OFFSET_FOR_LEADER_EPOCH, "nothing", valid=True)
def _(ctx: Context) -> Any:
    return _epochs()


@variant(OFFSET_FOR_LEADER_EPOCH, "unknown epoch", valid=False)
def _(ctx: Context) -> Any:
    return _epochs((ctx.rng.choice(["plain", "empty", "trimmed"]), 0, -1, ctx.rng.choice([1, 9, -1, -2, -9])))


@variant(OFFSET_FOR_LEADER_EPOCH, "wrong current epoch", valid=False)
def _(ctx: Context) -> Any:
    return _epochs(("plain", 0, ctx.rng.choice(BAD_EPOCHS), 0))


@variant(OFFSET_FOR_LEADER_EPOCH, "unknown place", valid=False)
def _(ctx: Context) -> Any:
    place = ctx.rng.choice(
        [("plain", number) for number in UNKNOWN_PARTITIONS]
        + [(name, 0) for name in (*ILLEGAL_NAMES, "unknown")]
    )
    return _epochs((*place, -1, 0), ("plain", 1, -1, 0))


@variant(OFFSET_FOR_LEADER_EPOCH, "as a replica", valid=False, versions=(3, 99))
def _(ctx: Context) -> Any:
    return _epochs(("plain", 0, -1, 0), replica=ctx.rng.choice([5, -2, -9]))


# InitProducerId


def _producer(
    transactional_id: str | None = None, timeout_ms: int = 60_000, producer_id: int = -1, epoch: int = -1
) -> Any:
    return lambda _: init_producer_id.InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
    )


@variant(INIT_PRODUCER_ID, "idempotent", valid=True)
def _(ctx: Context) -> Any:
    return _producer(None, ctx.rng.choice([60_000, 0, -1, 2**31 - 1]))


@variant(INIT_PRODUCER_ID, "id and epoch, no transaction", valid=True)
def _(ctx: Context) -> Any:
    return _producer(None, 60_000, ctx.rng.choice([0, 5, 10**6]), ctx.rng.choice([0, 3]))


@variant(INIT_PRODUCER_ID, "only one of id and epoch", valid=False)
def _(ctx: Context) -> Any:
    return _producer(None, 60_000, *ctx.rng.choice([(5, -1), (-1, 3), (0, -1)]))


@variant(INIT_PRODUCER_ID, "negative id and epoch", valid=False)
def _(ctx: Context) -> Any:
    return _producer(None, 60_000, *ctx.rng.choice([(-2, -2), (-7, 0), (5, -5)]))


@variant(INIT_PRODUCER_ID, "empty transactional id", valid=False)
def _(ctx: Context) -> Any:
    return _producer("", ctx.rng.choice([60_000, 0]))


@variant(INIT_PRODUCER_ID, "transaction timeout", valid=False)
def _(ctx: Context) -> Any:
    return _producer("transaction", ctx.rng.choice([0, -1, 900_001, 2**31 - 1]))


@variant(INIT_PRODUCER_ID, "transaction without a coordinator", valid=False)
def _(ctx: Context) -> Any:
    return _producer(f"transaction-{ctx.rng.randrange(100)}")


# DescribeProducers


def _producers(*wanted: tuple[str, list[int]]) -> Any:
    topics = [describe_producers.TopicRequest(name=name, partition_indexes=parts) for name, parts in wanted]
    return lambda _: describe_producers.DescribeProducersRequest(topics=topics)


@variant(DESCRIBE_PRODUCERS, "known partitions", valid=True)
def _(ctx: Context) -> Any:
    return _producers(("idempotent", [0]), (ctx.rng.choice(["plain", "timed", "empty"]), [0]))


@variant(DESCRIBE_PRODUCERS, "nothing", valid=True)
def _(ctx: Context) -> Any:
    return _producers(*ctx.rng.choice([(), (("plain", []),)]))


@variant(DESCRIBE_PRODUCERS, "partition twice", valid=True)
def _(ctx: Context) -> Any:
    return _producers(("idempotent", [0, 0]))


@variant(DESCRIBE_PRODUCERS, "unknown partition", valid=False)
def _(ctx: Context) -> Any:
    return _producers(("idempotent", [0, ctx.rng.choice(UNKNOWN_PARTITIONS)]))


@variant(DESCRIBE_PRODUCERS, "unknown or illegal topic", valid=False)
def _(ctx: Context) -> Any:
    return _producers((ctx.rng.choice([*ILLEGAL_NAMES, "unknown"]), [0]), ("idempotent", [0]))
