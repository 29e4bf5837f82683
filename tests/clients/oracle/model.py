"""Requests as the oracle sees them: variants, which are drawn into cases, which are sent to both sides."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.clients.oracle.sides import Side
    from tests.clients.oracle.world import World

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS = 0, 1, 2, 3, 18
OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT = 8, 9, 10, 11, 12
LEAVE_GROUP, SYNC_GROUP, DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS, OFFSET_DELETE = 13, 14, 15, 16, 42, 47
CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, INIT_PRODUCER_ID = 19, 20, 21, 22
OFFSET_FOR_LEADER_EPOCH, DESCRIBE_CONFIGS, ALTER_CONFIGS, DESCRIBE_LOG_DIRS = 23, 32, 33, 35
CREATE_PARTITIONS, INCREMENTAL_ALTER_CONFIGS, DESCRIBE_CLUSTER = 37, 44, 60
DESCRIBE_PRODUCERS, DESCRIBE_TOPIC_PARTITIONS = 61, 75
ELECT_LEADERS, ALTER_PARTITION_REASSIGNMENTS, LIST_PARTITION_REASSIGNMENTS, UNREGISTER_BROKER = 43, 45, 46, 64
ALTER_REPLICA_LOG_DIRS, DESCRIBE_QUORUM, LIST_CONFIG_RESOURCES = 34, 55, 74

API_NAMES = {
    PRODUCE: "Produce",
    FETCH: "Fetch",
    LIST_OFFSETS: "ListOffsets",
    METADATA: "Metadata",
    API_VERSIONS: "ApiVersions",
    CREATE_TOPICS: "CreateTopics",
    DELETE_TOPICS: "DeleteTopics",
    DELETE_RECORDS: "DeleteRecords",
    INIT_PRODUCER_ID: "InitProducerId",
    OFFSET_FOR_LEADER_EPOCH: "OffsetForLeaderEpoch",
    DESCRIBE_CONFIGS: "DescribeConfigs",
    ALTER_CONFIGS: "AlterConfigs",
    LIST_CONFIG_RESOURCES: "ListConfigResources",
    DESCRIBE_LOG_DIRS: "DescribeLogDirs",
    ALTER_REPLICA_LOG_DIRS: "AlterReplicaLogDirs",
    CREATE_PARTITIONS: "CreatePartitions",
    INCREMENTAL_ALTER_CONFIGS: "IncrementalAlterConfigs",
    DESCRIBE_CLUSTER: "DescribeCluster",
    DESCRIBE_QUORUM: "DescribeQuorum",
    DESCRIBE_PRODUCERS: "DescribeProducers",
    DESCRIBE_TOPIC_PARTITIONS: "DescribeTopicPartitions",
    ALTER_PARTITION_REASSIGNMENTS: "AlterPartitionReassignments",
    LIST_PARTITION_REASSIGNMENTS: "ListPartitionReassignments",
    ELECT_LEADERS: "ElectLeaders",
    UNREGISTER_BROKER: "UnregisterBroker",
    # Last, for with the first of them the topic of the groups comes into being; lists while they are short.
    FIND_COORDINATOR: "FindCoordinator",
    LIST_GROUPS: "ListGroups",
    JOIN_GROUP: "JoinGroup",
    SYNC_GROUP: "SyncGroup",
    HEARTBEAT: "Heartbeat",
    LEAVE_GROUP: "LeaveGroup",
    OFFSET_COMMIT: "OffsetCommit",
    OFFSET_FETCH: "OffsetFetch",
    DESCRIBE_GROUPS: "DescribeGroups",
    DELETE_GROUPS: "DeleteGroups",
    OFFSET_DELETE: "OffsetDelete",
}
GROUP_APIS = frozenset(
    {
        FIND_COORDINATOR,
        JOIN_GROUP,
        SYNC_GROUP,
        HEARTBEAT,
        LEAVE_GROUP,
        OFFSET_COMMIT,
        OFFSET_FETCH,
        LIST_GROUPS,
        DESCRIBE_GROUPS,
        DELETE_GROUPS,
        OFFSET_DELETE,
    }
)
ANY_VERSION = (0, 99)


@dataclass
class Context:
    """What a variant draws from. Everything random comes from here, so a seed repeats a run."""

    rng: random.Random
    version: int
    world: World

    def fresh(self, stem: str) -> str:
        """A name that no request has used."""
        return self.world.fresh_name(f"{stem}-v{self.version}")


@dataclass(frozen=True)
class Case:
    """One request. `build` gives the message for a side, whose topic and producer ids are its own."""

    api_key: int
    version: int
    label: str
    valid: bool
    build: Callable[[Side], Any]
    # Wait afterwards until both sides tell the same about their topics.
    changes_topics: bool = False
    # Topics that this request brings into being, sooner or later.
    appears: tuple[str, ...] = ()
    # What is read may lag behind what was decided: repeat until both sides agree, for a while.
    eventually: bool = False
    # The broker does not answer this one (acks=0): what shows is whether the connection lives on.
    silent: bool = False
    mutate: Callable[[bytes], bytes] | None = None
    # The fetch session that the answer opens or goes on with, by its name in this run.
    session: str = ""
    # The group whose member the answer names.
    group: str = ""
    follow_ups: tuple[Case, ...] = ()


@dataclass(frozen=True)
class Variant:
    """One kind of request: a label, whether a broker should accept it, and how to draw one."""

    api_key: int
    label: str
    valid: bool
    draw: Callable[[Context], Any]
    versions: tuple[int, int] = ANY_VERSION
    options: dict[str, Any] = field(default_factory=dict)

    def case(self, context: Context) -> Case:
        drawn = self.draw(context)
        options = dict(self.options)
        if isinstance(drawn, tuple):
            drawn, extra = drawn
            options.update(extra)
        return Case(self.api_key, context.version, self.label, self.valid, drawn, **options)


VARIANTS: list[Variant] = []


def variant(
    api_key: int, label: str, *, valid: bool, versions: tuple[int, int] = ANY_VERSION, **options: Any
) -> Callable[[Callable[[Context], Any]], Callable[[Context], Any]]:
    """Register a way to draw a request: it gives `build`, or `(build, options of the case)`."""

    def register(draw: Callable[[Context], Any]) -> Callable[[Context], Any]:
        VARIANTS.append(Variant(api_key, label, valid, draw, versions, options))
        return draw

    return register


def variants_of(api_key: int, version: int, *, valid: bool) -> list[Variant]:
    return [
        known
        for known in VARIANTS
        if known.api_key == api_key
        and known.valid is valid
        and known.versions[0] <= version <= known.versions[1]
    ]
