"""CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.clients.oracle.model import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    Context,
    variant,
)
from tests.clients.oracle.variants.common import ILLEGAL_NAMES, UNKNOWN_PARTITIONS, ZERO_UUID, unknown_id

from penstock.wire.kafka.generated import create_partitions, create_topics, delete_records, delete_topics

if TYPE_CHECKING:
    from tests.clients.oracle.sides import Side

TIMEOUT_MS = 20_000
# Stands for the broker's own id in assignments: the two sides need not share it.
SELF = -100
UNKNOWN_BROKER = 77
DELETE_BY_ID_SINCE = 6

GOOD_CONFIGS = (
    {"retention.ms": "3600000"},
    {"retention.ms": "-1", "retention.bytes": "1000000"},
    {"cleanup.policy": "compact"},
    {"cleanup.policy": "compact,delete", "delete.retention.ms": "1000"},
    {"max.message.bytes": "12345", "min.insync.replicas": "2"},
    {"compression.type": "zstd", "compression.zstd.level": "5"},
    {"compression.type": "uncompressed", "preallocate": "TRUE"},
    {"message.timestamp.type": "LogAppendTime", "message.timestamp.after.max.ms": "1000"},
    {"segment.bytes": "1048576", "segment.ms": "1000", "segment.jitter.ms": "10"},
    {"flush.messages": "1", "flush.ms": "10"},
    {"min.cleanable.dirty.ratio": "0.25", "min.compaction.lag.ms": "5", "max.compaction.lag.ms": "50"},
    {"index.interval.bytes": "1", "segment.index.bytes": "1024", "file.delete.delay.ms": "1"},
    {"retention.ms": " 77 "},
)
BAD_CONFIGS: tuple[dict[str, str | None], ...] = (
    {"no.such.config": "1"},
    {"": "1"},
    {"retention.ms": "soon"},
    {"retention.ms": ""},
    {"retention.ms": "-2"},
    {"retention.ms": "9223372036854775808"},
    {"retention.ms": "1.5"},
    {"retention.ms": None},
    {"cleanup.policy": "shred"},
    {"cleanup.policy": "compact,shred"},
    {"max.message.bytes": "-1"},
    {"max.message.bytes": "2147483648"},
    {"compression.type": "zip"},
    {"compression.gzip.level": "10"},
    {"compression.lz4.level": "0"},
    {"compression.zstd.level": "99"},
    {"message.timestamp.type": "Whenever"},
    {"message.timestamp.after.max.ms": "-1"},
    {"min.insync.replicas": "0"},
    {"unclean.leader.election.enable": "maybe"},
    {"flush.messages": "0"},
    {"flush.ms": "-1"},
    {"segment.bytes": "13"},
    {"segment.ms": "0"},
    {"segment.index.bytes": "3"},
    {"min.cleanable.dirty.ratio": "2"},
    {"min.cleanable.dirty.ratio": "half"},
    {"index.interval.bytes": "-1"},
    {"file.delete.delay.ms": "-1"},
    {"delete.retention.ms": "-1"},
    {"message.format.version": "2.0"},
    {"min.compaction.lag.ms": "100", "max.compaction.lag.ms": "50"},
)


# CreateTopics


def _topic(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    configs: dict[str, Any] | None = None,
    assignments: list[tuple[int, list[int]]] | None = None,
) -> Any:
    def build(side: Side) -> Any:
        return create_topics.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replicas,
            assignments=[
                create_topics.CreatableReplicaAssignment(
                    partition_index=number, broker_ids=_ids(side, brokers)
                )
                for number, brokers in assignments or ()
            ],
            configs=[
                create_topics.CreatableTopicConfig(name=key, value=value)
                for key, value in (configs or {}).items()
            ],
        )

    return build


def _ids(side: Side, brokers: list[int]) -> list[int]:
    return [side.node_id if broker == SELF else broker for broker in brokers]


def _create(*topics: Any, timeout_ms: int = TIMEOUT_MS, validate_only: bool = False) -> Any:
    return lambda side: create_topics.CreateTopicsRequest(
        topics=[topic(side) for topic in topics], timeout_ms=timeout_ms, validate_only=validate_only
    )


@variant(CREATE_TOPICS, "plain", valid=True, changes_topics=True)
def _(ctx: Context) -> Any:
    return _create(_topic(ctx.fresh("new"), ctx.rng.choice([1, 2, 5, -1]), ctx.rng.choice([1, -1])))


@variant(CREATE_TOPICS, "with configs", valid=True, changes_topics=True)
def _(ctx: Context) -> Any:
    return _create(_topic(ctx.fresh("new"), 1, 1, ctx.rng.choice(GOOD_CONFIGS)))


@variant(CREATE_TOPICS, "several", valid=True, changes_topics=True)
def _(ctx: Context) -> Any:
    return _create(*(_topic(ctx.fresh("new"), ctx.rng.randint(1, 3)) for _ in range(3)))


@variant(CREATE_TOPICS, "assigned by hand", valid=True, changes_topics=True)
def _(ctx: Context) -> Any:
    places = [(number, [SELF]) for number in range(ctx.rng.randint(1, 4))]
    ctx.rng.shuffle(places)
    return _create(_topic(ctx.fresh("new"), -1, -1, None, places))


@variant(CREATE_TOPICS, "validate only", valid=True)
def _(ctx: Context) -> Any:
    return _create(_topic(ctx.fresh("never"), 2, 1, ctx.rng.choice(GOOD_CONFIGS)), validate_only=True)


@variant(CREATE_TOPICS, "none", valid=True)
def _(ctx: Context) -> Any:
    return _create()


@variant(CREATE_TOPICS, "illegal name", valid=False)
def _(ctx: Context) -> Any:
    return _create(_topic(ctx.rng.choice(ILLEGAL_NAMES)))


@variant(CREATE_TOPICS, "exists", valid=False)
def _(ctx: Context) -> Any:
    return _create(_topic(ctx.rng.choice(ctx.world.topics)), validate_only=ctx.rng.random() < 0.5)


@variant(CREATE_TOPICS, "collides", valid=False)
def _(ctx: Context) -> Any:
    return _create(_topic("dotted_name"))


@variant(CREATE_TOPICS, "twice in one request", valid=False, changes_topics=True)
def _(ctx: Context) -> Any:
    twice = ctx.fresh("twice")
    return _create(_topic(twice), _topic(ctx.fresh("once")), _topic(twice))


@variant(CREATE_TOPICS, "partition count", valid=False)
def _(ctx: Context) -> Any:
    return _create(_topic(ctx.fresh("bad"), ctx.rng.choice([0, -2, -(2**31), 10_001, 2**31 - 1])))


@variant(CREATE_TOPICS, "replica count", valid=False)
def _(ctx: Context) -> Any:
    return _create(_topic(ctx.fresh("bad"), 1, ctx.rng.choice([0, -2, 2, 3, 32767])))


@variant(CREATE_TOPICS, "bad config", valid=False)
def _(ctx: Context) -> Any:
    return _create(_topic(ctx.fresh("bad"), 1, 1, ctx.rng.choice(BAD_CONFIGS)))


@variant(CREATE_TOPICS, "one good, one bad", valid=False, changes_topics=True)
def _(ctx: Context) -> Any:
    bad = _topic(ctx.fresh("bad"), 1, 1, ctx.rng.choice(BAD_CONFIGS))
    return _create(_topic(ctx.fresh("good")), bad)


@variant(CREATE_TOPICS, "bad assignment", valid=False)
def _(ctx: Context) -> Any:
    places: list[tuple[int, list[int]]] = ctx.rng.choice(
        [
            [(0, [UNKNOWN_BROKER])],
            [(0, [SELF, SELF])],
            [(0, [])],
            [(0, [SELF]), (2, [SELF])],
            [(0, [SELF]), (0, [SELF])],
            [(-1, [SELF])],
            [(1, [SELF])],
        ]
    )
    return _create(_topic(ctx.fresh("bad"), -1, -1, None, places))


@variant(CREATE_TOPICS, "assignment and counts", valid=False)
def _(ctx: Context) -> Any:
    counts = ctx.rng.choice([(1, 1), (1, -1), (-1, 1)])
    return _create(_topic(ctx.fresh("bad"), *counts, None, [(0, [SELF])]))


# DeleteTopics


def _delete(names: list[str], timeout_ms: int = TIMEOUT_MS) -> Any:
    return lambda _: delete_topics.DeleteTopicsRequest(
        topic_names=names,
        topics=[delete_topics.DeleteTopicState(name=name) for name in names],
        timeout_ms=timeout_ms,
    )


@variant(DELETE_TOPICS, "by name", valid=True, changes_topics=True)
def _(ctx: Context) -> Any:
    return _delete([ctx.world.spare_topic() for _ in range(ctx.rng.choice([1, 1, 2]))])


@variant(DELETE_TOPICS, "by id", valid=True, versions=(DELETE_BY_ID_SINCE, 99), changes_topics=True)
def _(ctx: Context) -> Any:
    name = ctx.world.spare_topic()
    return lambda side: delete_topics.DeleteTopicsRequest(
        topics=[delete_topics.DeleteTopicState(name=None, topic_id=side.topic_id(name))],
        timeout_ms=TIMEOUT_MS,
    )


@variant(DELETE_TOPICS, "none", valid=True)
def _(ctx: Context) -> Any:
    return _delete([])


@variant(DELETE_TOPICS, "unknown or illegal name", valid=False)
def _(ctx: Context) -> Any:
    return _delete([ctx.rng.choice([*ILLEGAL_NAMES, "unknown", "__cluster_metadata"])])


@variant(DELETE_TOPICS, "twice in one request", valid=False)
def _(ctx: Context) -> Any:
    return _delete(["plain", "plain"])


@variant(DELETE_TOPICS, "known and unknown", valid=False, changes_topics=True)
def _(ctx: Context) -> Any:
    return _delete([ctx.world.spare_topic(), "unknown"])


@variant(DELETE_TOPICS, "odd ids", valid=False, versions=(DELETE_BY_ID_SINCE, 99))
def _(ctx: Context) -> Any:
    stranger = unknown_id(ctx.rng)
    pick = ctx.rng.randrange(4)

    def build(side: Side) -> Any:
        plain = side.topic_id("plain")
        choices: list[list[tuple[str | None, bytes]]] = [
            [(None, stranger)],
            [(None, ZERO_UUID)],
            [("plain", plain)],
            [("plain", ZERO_UUID), (None, plain)],
        ]
        return delete_topics.DeleteTopicsRequest(
            topics=[delete_topics.DeleteTopicState(name=name, topic_id=uuid) for name, uuid in choices[pick]],
            timeout_ms=TIMEOUT_MS,
        )

    return build


# CreatePartitions


def _grow(
    name: str, count: int, places: list[list[int]] | None = None, *, validate_only: bool = False
) -> Any:
    def build(side: Side) -> Any:
        assignments = None
        if places is not None:
            assignments = [
                create_partitions.CreatePartitionsAssignment(broker_ids=_ids(side, brokers))
                for brokers in places
            ]
        topic = create_partitions.CreatePartitionsTopic(name=name, count=count, assignments=assignments)
        return create_partitions.CreatePartitionsRequest(
            topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=validate_only
        )

    return build


@variant(CREATE_PARTITIONS, "more", valid=True, changes_topics=True)
def _(ctx: Context) -> Any:
    return _grow(ctx.world.spare_topic(), ctx.rng.randint(3, 6))


@variant(CREATE_PARTITIONS, "assigned by hand", valid=True, changes_topics=True)
def _(ctx: Context) -> Any:
    return _grow(ctx.world.spare_topic(), 4, [[SELF], [SELF]])


@variant(CREATE_PARTITIONS, "validate only", valid=True)
def _(ctx: Context) -> Any:
    return _grow("empty", ctx.rng.randint(3, 9), validate_only=True)


@variant(CREATE_PARTITIONS, "not more", valid=False)
def _(ctx: Context) -> Any:
    return _grow("plain", ctx.rng.choice([3, 2, 1, 0, -1, -(2**31)]))


@variant(CREATE_PARTITIONS, "unknown or illegal topic", valid=False)
def _(ctx: Context) -> Any:
    return _grow(ctx.rng.choice([*ILLEGAL_NAMES, "unknown"]), 3)


@variant(CREATE_PARTITIONS, "bad assignment", valid=False)
def _(ctx: Context) -> Any:
    places = ctx.rng.choice(
        [[[SELF]], [[UNKNOWN_BROKER], [SELF]], [[SELF, SELF], [SELF]], [[], [SELF]], [], [[SELF]] * 5]
    )
    return _grow("plain", 5, places)


@variant(CREATE_PARTITIONS, "twice in one request", valid=False)
def _(ctx: Context) -> Any:
    topics = [
        create_partitions.CreatePartitionsTopic(name="plain", count=count, assignments=None)
        for count in (8, 9)
    ]
    return lambda _: create_partitions.CreatePartitionsRequest(topics=topics, timeout_ms=TIMEOUT_MS)


# DeleteRecords


def _trim(*wanted: tuple[str, int, int]) -> Any:
    topics = [
        delete_records.DeleteRecordsTopic(
            name=name,
            partitions=[delete_records.DeleteRecordsPartition(partition_index=number, offset=offset)],
        )
        for name, number, offset in wanted
    ]
    return lambda _: delete_records.DeleteRecordsRequest(topics=topics, timeout_ms=TIMEOUT_MS)


@variant(DELETE_RECORDS, "up to an offset", valid=True)
def _(ctx: Context) -> Any:
    topic = ctx.world.shrinking(ctx.version)
    return _trim((topic, 0, ctx.world.next_start(topic)))


@variant(DELETE_RECORDS, "below the start", valid=True)
def _(ctx: Context) -> Any:
    return _trim(("trimmed", 0, ctx.rng.randrange(8)))


@variant(DELETE_RECORDS, "empty partition", valid=True)
def _(ctx: Context) -> Any:
    return _trim(("empty", 0, ctx.rng.choice([0, -1])), ("empty", 1, 0))


@variant(DELETE_RECORDS, "out of range", valid=False)
def _(ctx: Context) -> Any:
    return _trim(
        (ctx.rng.choice(["plain", "trimmed", "empty"]), 0, ctx.rng.choice([10**6, -2, -99, 2**63 - 1]))
    )


@variant(DELETE_RECORDS, "unknown or illegal topic", valid=False)
def _(ctx: Context) -> Any:
    return _trim((ctx.rng.choice([*ILLEGAL_NAMES, "unknown"]), 0, 0), ("trimmed", 0, 1))


@variant(DELETE_RECORDS, "unknown partition", valid=False)
def _(ctx: Context) -> Any:
    return _trim(("plain", ctx.rng.choice(UNKNOWN_PARTITIONS), 0))


@variant(DELETE_RECORDS, "compacted topic", valid=False)
def _(ctx: Context) -> Any:
    return _trim(("compact", 0, ctx.rng.choice([0, 1, -1])))


@variant(DELETE_RECORDS, "partition twice", valid=False)
def _(ctx: Context) -> Any:
    return _trim(("trimmed", 0, 3), ("trimmed", 0, 5))
