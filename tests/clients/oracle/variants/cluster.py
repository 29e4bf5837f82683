"""ApiVersions, Metadata, DescribeCluster, DescribeQuorum, DescribeTopicPartitions, and the log directories."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.clients.oracle.model import (
    ALTER_REPLICA_LOG_DIRS,
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_QUORUM,
    DESCRIBE_TOPIC_PARTITIONS,
    METADATA,
    Context,
    variant,
)
from tests.clients.oracle.variants.common import ILLEGAL_NAMES, ZERO_UUID, some, unknown_id

from penstock.wire.kafka.generated import (
    alter_replica_log_dirs,
    api_versions,
    describe_cluster,
    describe_log_dirs,
    describe_quorum,
    describe_topic_partitions,
    metadata,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.clients.oracle.sides import Side

ALL = (0, 99)
# Before version 4 a Metadata request could not ask the broker to leave unknown topics alone.
NO_AUTO_CREATE_SINCE = 4
IDS_SINCE = 12


# ApiVersions


@variant(API_VERSIONS, "names a client", valid=True)
def _(ctx: Context) -> Any:
    name = ctx.rng.choice(["kafka-python", "librdkafka", "a", "A-b.c", "x1"])
    version = ctx.rng.choice(["1.0", "2.3.4-rc1", "9", "v1"])
    return lambda _: api_versions.ApiVersionsRequest(
        client_software_name=name, client_software_version=version
    )


@variant(API_VERSIONS, "names no valid client", valid=False, versions=(3, 99))
def _(ctx: Context) -> Any:
    bad = ctx.rng.choice(["", " ", "a b", "-a", "a-", ".", "é", "a/b"])
    names = ctx.rng.choice([(bad, "1.0"), ("client", bad), (bad, bad)])
    return lambda _: api_versions.ApiVersionsRequest(
        client_software_name=names[0], client_software_version=names[1]
    )


# Metadata


def _metadata(ctx: Context, names: Sequence[str | None] | None, **options: Any) -> Any:
    if ctx.version >= NO_AUTO_CREATE_SINCE:
        options.setdefault("allow_auto_topic_creation", False)
    topics = None if names is None else [metadata.MetadataRequestTopic(name=name) for name in names]
    return lambda _: metadata.MetadataRequest(topics=topics, **options)


@variant(METADATA, "known topics", valid=True)
def _(ctx: Context) -> Any:
    return _metadata(ctx, some(ctx.rng, ctx.world.topics))


@variant(METADATA, "all topics", valid=True, eventually=True)
def _(ctx: Context) -> Any:
    return _metadata(ctx, None if ctx.version >= 1 else [])


@variant(METADATA, "no topics", valid=True, versions=(1, 99))
def _(ctx: Context) -> Any:
    return _metadata(ctx, [])


@variant(METADATA, "a topic twice", valid=True)
def _(ctx: Context) -> Any:
    name = ctx.rng.choice(ctx.world.topics)
    return _metadata(ctx, [name, "plain", name])


@variant(METADATA, "authorized operations", valid=True, versions=(8, 99))
def _(ctx: Context) -> Any:
    options = {"include_topic_authorized_operations": True}
    if ctx.version <= 10:
        options["include_cluster_authorized_operations"] = ctx.rng.random() < 0.5
    return _metadata(ctx, some(ctx.rng, ctx.world.topics), **options)


@variant(METADATA, "by id", valid=True, versions=(IDS_SINCE, 99))
def _(ctx: Context) -> Any:
    names = some(ctx.rng, ctx.world.topics)
    return lambda side: metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(topic_id=side.topic_id(name), name=None) for name in names],
        allow_auto_topic_creation=False,
    )


@variant(METADATA, "auto-creation", valid=True, changes_topics=True)
def _(ctx: Context) -> Any:
    options = {"allow_auto_topic_creation": True} if ctx.version >= NO_AUTO_CREATE_SINCE else {}
    name = ctx.fresh("auto")
    return _metadata(ctx, [name], **options), {"appears": (name,)}


@variant(METADATA, "unknown topics", valid=False, versions=(NO_AUTO_CREATE_SINCE, 99))
def _(ctx: Context) -> Any:
    return _metadata(ctx, [f"unknown-{ctx.rng.randrange(10**6)}", "plain"])


@variant(METADATA, "illegal name", valid=False)
def _(ctx: Context) -> Any:
    return _metadata(ctx, [ctx.rng.choice(ILLEGAL_NAMES), "plain"])


@variant(METADATA, "illegal name, auto-creation", valid=False)
def _(ctx: Context) -> Any:
    options = {"allow_auto_topic_creation": True} if ctx.version >= NO_AUTO_CREATE_SINCE else {}
    return _metadata(ctx, [ctx.rng.choice(ILLEGAL_NAMES)], **options)


@variant(METADATA, "colliding name, auto-creation", valid=False, changes_topics=True)
def _(ctx: Context) -> Any:
    options = {"allow_auto_topic_creation": True} if ctx.version >= NO_AUTO_CREATE_SINCE else {}
    return _metadata(ctx, ["dotted_name"], **options)


@variant(METADATA, "internal name", valid=False, versions=(NO_AUTO_CREATE_SINCE, 99))
def _(ctx: Context) -> Any:
    return _metadata(
        ctx, [ctx.rng.choice(["__transaction_state", "__consumer_offsets", "__cluster_metadata"])]
    )


@variant(METADATA, "unknown id", valid=False, versions=(IDS_SINCE, 99))
def _(ctx: Context) -> Any:
    topic_id = unknown_id(ctx.rng)
    return lambda side: metadata.MetadataRequest(
        topics=[
            metadata.MetadataRequestTopic(topic_id=topic_id, name=None),
            metadata.MetadataRequestTopic(topic_id=side.topic_id("plain"), name=None),
        ]
    )


@variant(METADATA, "id and name", valid=False, versions=(10, 99))
def _(ctx: Context) -> Any:
    name = ctx.rng.choice(["plain", "another", "timed"])
    return lambda side: metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(topic_id=side.topic_id("plain"), name=name)]
    )


@variant(METADATA, "neither id nor name", valid=False, versions=(10, 99))
def _(ctx: Context) -> Any:
    return lambda _: metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(topic_id=ZERO_UUID, name=None)]
    )


# DescribeCluster


@variant(DESCRIBE_CLUSTER, "brokers", valid=True)
def _(ctx: Context) -> Any:
    options: dict[str, Any] = {"include_cluster_authorized_operations": ctx.rng.random() < 0.5}
    if ctx.version >= 2:
        options["include_fenced_brokers"] = ctx.rng.random() < 0.5
    return lambda _: describe_cluster.DescribeClusterRequest(**options)


@variant(DESCRIBE_CLUSTER, "other endpoint type", valid=False, versions=(1, 99))
def _(ctx: Context) -> Any:
    kind = ctx.rng.choice([0, 2, 3, -1, 127])
    return lambda _: describe_cluster.DescribeClusterRequest(endpoint_type=kind)


# DescribeQuorum

METADATA_LOG = "__cluster_metadata"


def _quorum(*topics: tuple[str, Sequence[int]]) -> Any:
    return lambda _: describe_quorum.DescribeQuorumRequest(
        topics=[
            describe_quorum.RequestTopicData(
                topic_name=name,
                partitions=[
                    describe_quorum.RequestPartitionData(partition_index=partition)
                    for partition in partitions
                ],
            )
            for name, partitions in topics
        ]
    )


@variant(DESCRIBE_QUORUM, "of the metadata", valid=True)
def _(ctx: Context) -> Any:
    return _quorum((METADATA_LOG, [0]))


@variant(DESCRIBE_QUORUM, "nothing", valid=True)
def _(ctx: Context) -> Any:
    return ctx.rng.choice([_quorum(), _quorum((METADATA_LOG, []))])


@variant(DESCRIBE_QUORUM, "of something else", valid=False)
def _(ctx: Context) -> Any:
    both = ((METADATA_LOG, [0]), ("plain", [0]))
    odd = ctx.rng.choice([("plain", [0]), ("unknown", [0]), (METADATA_LOG, [1]), (METADATA_LOG, [0, 1])])
    return ctx.rng.choice([_quorum(odd), _quorum(*both)])


# DescribeTopicPartitions


def _partitions(names: list[str], limit: int = 2000, cursor: tuple[str, int] | None = None) -> Any:
    at = None
    if cursor is not None:
        at = describe_topic_partitions.Cursor(topic_name=cursor[0], partition_index=cursor[1])
    return lambda _: describe_topic_partitions.DescribeTopicPartitionsRequest(
        topics=[describe_topic_partitions.TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=at,
    )


@variant(DESCRIBE_TOPIC_PARTITIONS, "known topics", valid=True)
def _(ctx: Context) -> Any:
    return _partitions(some(ctx.rng, ctx.world.topics), ctx.rng.choice([1, 2, 3, 2000]))


@variant(DESCRIBE_TOPIC_PARTITIONS, "from a cursor", valid=True)
def _(ctx: Context) -> Any:
    names = sorted(some(ctx.rng, ctx.world.topics))
    cursor = (ctx.rng.choice(names), ctx.rng.randrange(3))
    return _partitions(names, ctx.rng.choice([1, 2, 2000]), cursor)


@variant(DESCRIBE_TOPIC_PARTITIONS, "a topic twice", valid=True)
def _(ctx: Context) -> Any:
    return _partitions(["plain", "timed", "plain"])


@variant(DESCRIBE_TOPIC_PARTITIONS, "all topics", valid=True, eventually=True)
def _(ctx: Context) -> Any:
    return _partitions([])


@variant(DESCRIBE_TOPIC_PARTITIONS, "limit not positive", valid=False)
def _(ctx: Context) -> Any:
    return _partitions(["plain"], ctx.rng.choice([0, -1, -(2**31)]))


@variant(DESCRIBE_TOPIC_PARTITIONS, "unknown or illegal topic", valid=False)
def _(ctx: Context) -> Any:
    bad = ctx.rng.choice([*ILLEGAL_NAMES, "unknown", "zzz"])
    return _partitions(ctx.rng.choice([[bad], [bad, "plain"]]), ctx.rng.choice([1, 2000]))


@variant(DESCRIBE_TOPIC_PARTITIONS, "odd cursor", valid=False)
def _(ctx: Context) -> Any:
    cursor = ctx.rng.choice([("plain", -1), ("plain", 9), ("zzz", 0), ("aaa", 0), ("plain", 3), ("", 0)])
    return _partitions(["plain", "timed"], 2, cursor)


# DescribeLogDirs


def _log_dirs(topics: Sequence[tuple[str, Sequence[int]]] | None) -> Any:
    asked = None
    if topics is not None:
        asked = [
            describe_log_dirs.DescribableLogDirTopic(topic=name, partitions=list(partitions))
            for name, partitions in topics
        ]
    return lambda _: describe_log_dirs.DescribeLogDirsRequest(topics=asked)


@variant(DESCRIBE_LOG_DIRS, "known partitions", valid=True)
def _(ctx: Context) -> Any:
    return _log_dirs([(name, [0]) for name in some(ctx.rng, [*ctx.world.topics], 5)])


@variant(DESCRIBE_LOG_DIRS, "all partitions of a topic", valid=True)
def _(ctx: Context) -> Any:
    return _log_dirs([("plain", ctx.rng.sample([0, 1, 2], ctx.rng.randint(1, 3)))])


@variant(DESCRIBE_LOG_DIRS, "everything", valid=True, eventually=True)
def _(ctx: Context) -> Any:
    return _log_dirs(None)


@variant(DESCRIBE_LOG_DIRS, "nothing", valid=True)
def _(ctx: Context) -> Any:
    return _log_dirs(ctx.rng.choice([[], [("plain", [])]]))


@variant(DESCRIBE_LOG_DIRS, "unknown", valid=False)
def _(ctx: Context) -> Any:
    odd = [("plain", [9]), ("plain", [-1]), ("unknown", [0]), ("a/b", [0]), ("", [0]), ("plain", [0, 0])]
    return _log_dirs(ctx.rng.sample(odd, ctx.rng.randint(1, 3)))


# AlterReplicaLogDirs

OWN_DIR = "<own>"


def _alter_dirs(*wanted: tuple[str, Sequence[tuple[str, Sequence[int]]]]) -> Any:
    """OWN_DIR stands for the side's own directory."""

    def build(side: Side) -> Any:
        return alter_replica_log_dirs.AlterReplicaLogDirsRequest(
            dirs=[
                alter_replica_log_dirs.AlterReplicaLogDir(
                    path=path.replace(OWN_DIR, side.data_dir),
                    topics=[
                        alter_replica_log_dirs.AlterReplicaLogDirTopic(name=name, partitions=list(partitions))
                        for name, partitions in topics
                    ],
                )
                for path, topics in wanted
            ]
        )

    return build


@variant(ALTER_REPLICA_LOG_DIRS, "where it is", valid=True)
def _(ctx: Context) -> Any:
    return _alter_dirs((OWN_DIR, [("plain", ctx.rng.sample([0, 1, 2], ctx.rng.randint(1, 3)))]))


@variant(ALTER_REPLICA_LOG_DIRS, "nothing", valid=True)
def _(ctx: Context) -> Any:
    return ctx.rng.choice(
        [_alter_dirs(), _alter_dirs((OWN_DIR, [])), _alter_dirs((OWN_DIR, [("plain", [])]))]
    )


@variant(ALTER_REPLICA_LOG_DIRS, "no such directory", valid=False)
def _(ctx: Context) -> Any:
    path = ctx.rng.choice(["/nowhere", "relative", "", OWN_DIR + "/", OWN_DIR + "/."])
    return _alter_dirs((path, [("plain", [0, 1]), ("unknown", [0])]))


@variant(ALTER_REPLICA_LOG_DIRS, "unknown partitions", valid=False)
def _(ctx: Context) -> Any:
    odd = [("plain", [9, 0]), ("plain", [-1]), ("unknown", [0]), ("a/b", [0]), ("", [0]), (METADATA_LOG, [0])]
    return _alter_dirs((OWN_DIR, ctx.rng.sample(odd, ctx.rng.randint(1, 4))))


@variant(ALTER_REPLICA_LOG_DIRS, "a partition twice", valid=False)
def _(ctx: Context) -> Any:
    wanted: list[tuple[str, list[tuple[str, list[int]]]]] = [
        (OWN_DIR, [("plain", [0])]),
        ("/nowhere", [("plain", [0, 1])]),
        (OWN_DIR, [("plain", [2, 2]), ("plain", [2])]),
    ]
    ctx.rng.shuffle(wanted)
    return _alter_dirs(*wanted)
