"""Three brokers beside three of Apache Kafka: what is asked of the wrong one, and replicas that move."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.clients.oracle.accepted import load
from tests.clients.oracle.batches import Batch
from tests.clients.oracle.clusters import BYSTANDER, FOLLOWER, LEADER, ClusterSide, compare, compared_clusters
from tests.clients.oracle.model import (
    ALTER_PARTITION_REASSIGNMENTS,
    DELETE_RECORDS,
    DESCRIBE_CLUSTER,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TOPIC_PARTITIONS,
    ELECT_LEADERS,
    FETCH,
    LIST_OFFSETS,
    LIST_PARTITION_REASSIGNMENTS,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    UNREGISTER_BROKER,
)
from tests.clients.oracle.report import split, text
from tests.clients.oracle.world import EPOCH_MS

from penstock.wire.kafka.generated import (
    alter_partition_reassignments,
    delete_records,
    describe_cluster,
    describe_producers,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_for_leader_epoch,
    produce,
    unregister_broker,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.clients.oracle.run import Finding
    from tests.clients.oracle.sides import Side

pytestmark = pytest.mark.clients
Sides = tuple[ClusterSide, ClusterSide]
ACCEPTED = Path(__file__).parent / "oracle" / "accepted_clusters.toml"
BATCH = Batch((b"c",), timestamp_ms=EPOCH_MS).encode()
BROKERS = (LEADER, FOLLOWER, BYSTANDER)


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    with compared_clusters(tmp_path_factory.mktemp("clusters")) as both:
        yield both


def _produce(side: Side) -> Any:
    parts = [produce.PartitionProduceData(index=0, records=BATCH)]
    topic = produce.TopicProduceData(name="led", topic_id=side.topic_id("led"), partition_data=parts)
    return produce.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic])


def _fetch(epoch: int = -1, offset: int = 0, topic: str = "led") -> Callable[[Side], Any]:
    def build(side: Side) -> Any:
        parts = [
            fetch.FetchPartition(
                partition=number,
                fetch_offset=offset,
                current_leader_epoch=epoch,
                partition_max_bytes=1 << 20,
            )
            for number in (0, 1)
        ]
        return fetch.FetchRequest(
            max_wait_ms=5,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[fetch.FetchTopic(topic=topic, topic_id=side.topic_id(topic), partitions=parts)],
        )

    return build


def _offsets(timestamp: int, epoch: int = -1, topic: str = "led") -> Callable[[Side], Any]:
    part = list_offsets.ListOffsetsPartition(
        partition_index=0, current_leader_epoch=epoch, timestamp=timestamp
    )
    wanted = list_offsets.ListOffsetsTopic(name=topic, partitions=[part])
    return lambda _: list_offsets.ListOffsetsRequest(replica_id=-1, topics=[wanted], timeout_ms=1000)


def _epochs(current: int) -> Callable[[Side], Any]:
    part = offset_for_leader_epoch.OffsetForLeaderPartition(
        partition=0, current_leader_epoch=current, leader_epoch=0
    )
    topic = offset_for_leader_epoch.OffsetForLeaderTopic(topic="led", partitions=[part])
    return lambda _: offset_for_leader_epoch.OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic])


def _delete(_: Side) -> Any:
    part = delete_records.DeleteRecordsPartition(partition_index=0, offset=0)
    topic = delete_records.DeleteRecordsTopic(name="led", partitions=[part])
    return delete_records.DeleteRecordsRequest(topics=[topic], timeout_ms=5000)


def _producers(_: Side) -> Any:
    topic = describe_producers.TopicRequest(name="led", partition_indexes=[0, 1])
    return describe_producers.DescribeProducersRequest(topics=[topic])


def _metadata(*names: str) -> Callable[[Side], Any]:
    topics = [metadata.MetadataRequestTopic(name=name) for name in names]
    return lambda _: metadata.MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def _partitions(_: Side) -> Any:
    topics = [describe_topic_partitions.TopicRequest(name="led")]
    return describe_topic_partitions.DescribeTopicPartitionsRequest(topics=topics)


def _unregister(broker: int) -> Callable[[Side], Any]:
    return lambda _: unregister_broker.UnregisterBrokerRequest(broker_id=broker)


def _check(found: list[Finding]) -> None:
    left_over, _ = split(found, load(ACCEPTED))
    assert not left_over, text(left_over)


@pytest.mark.parametrize("broker", [FOLLOWER, BYSTANDER])
def test_what_is_asked_of_another_than_the_leader(sides: Sides, broker: int) -> None:
    found = compare(sides, "a record", broker, PRODUCE, _produce, range(3, 14))
    for epoch in (-1, 0, 5):
        versions = range(4 if epoch < 0 else 9, 19)
        found += compare(sides, f"read in epoch {epoch}", broker, FETCH, _fetch(epoch), versions)
        versions = range(1 if epoch < 0 else 4, 12)
        for time in (-1, -2, EPOCH_MS):
            ask = _offsets(time, epoch)
            found += compare(sides, f"offsets at {time}, epoch {epoch}", broker, LIST_OFFSETS, ask, versions)
        found += compare(sides, f"epoch {epoch}", broker, OFFSET_FOR_LEADER_EPOCH, _epochs(epoch))
    found += compare(sides, "beyond the end", broker, FETCH, _fetch(offset=99), range(4, 19))
    found += compare(sides, "delete", broker, DELETE_RECORDS, _delete)
    found += compare(sides, "producers", broker, DESCRIBE_PRODUCERS, _producers)
    _check(found)


def test_what_is_asked_of_the_leader_in_another_epoch(sides: Sides) -> None:
    found = []
    for epoch in (0, 5):
        found += compare(sides, f"read in epoch {epoch}", LEADER, FETCH, _fetch(epoch), range(9, 19))
        found += compare(sides, f"epoch {epoch}", LEADER, OFFSET_FOR_LEADER_EPOCH, _epochs(epoch))
    _check(found)


@pytest.mark.parametrize("broker", BROKERS)
def test_what_is_known_of_the_cluster(sides: Sides, broker: int) -> None:
    found = compare(sides, "led", broker, METADATA, _metadata("led"), range(1, 14))
    found += compare(
        sides, "brokers", broker, DESCRIBE_CLUSTER, lambda _: describe_cluster.DescribeClusterRequest()
    )
    found += compare(sides, "partitions", broker, DESCRIBE_TOPIC_PARTITIONS, _partitions)
    found += compare(sides, "no such broker", broker, UNREGISTER_BROKER, _unregister(77))
    _check(found)


def _alter(
    topic: str, replicas: list[int] | None, *, may_change: bool = True, partition: int = 0
) -> Callable[[Side], Any]:
    part = alter_partition_reassignments.ReassignablePartition(partition_index=partition, replicas=replicas)
    wanted = alter_partition_reassignments.ReassignableTopic(name=topic, partitions=[part])
    return lambda _: alter_partition_reassignments.AlterPartitionReassignmentsRequest(
        topics=[wanted], timeout_ms=20_000, allow_replication_factor_change=may_change
    )


def _moving(_: Side) -> Any:
    return list_partition_reassignments.ListPartitionReassignmentsRequest(topics=None, timeout_ms=20_000)


def _elect(topic: str, kind: int = 0) -> Callable[[Side], Any]:
    partitions = elect_leaders.TopicPartitions(topic=topic, partitions=[0])
    return lambda _: elect_leaders.ElectLeadersRequest(
        topic_partitions=[partitions], timeout_ms=20_000, election_type=kind
    )


def _is_still(side: ClusterSide) -> bool:
    answer = side.ask(BYSTANDER, LIST_PARTITION_REASSIGNMENTS, 0, _moving)
    return answer.message is not None and not answer.message.topics


def _partition(side: ClusterSide, topic: str) -> Any:
    (described,) = side.ask(BYSTANDER, METADATA, 12, _metadata(topic)).message.topics
    return described.partitions[0]


def _has(side: ClusterSide, topic: str, replicas: list[int]) -> bool:
    """These replicas in this order, all of them in sync."""
    found = _partition(side, topic)
    return list(found.replica_nodes) == replicas and sorted(found.isr_nodes) == sorted(replicas)


def _leads(side: ClusterSide, topic: str, broker: int) -> bool:
    return bool(_partition(side, topic).leader_id == broker)


def test_moves_that_cannot_be(sides: Sides) -> None:
    found = []
    for label, wanted in {
        "unknown broker": [LEADER, 77],
        "twice": [LEADER, LEADER],
        "nobody": [],
        "nothing to take back": None,
    }.items():
        for broker in (LEADER, BYSTANDER):
            found += compare(sides, label, broker, ALTER_PARTITION_REASSIGNMENTS, _alter("led", wanted))
    for wanted in ([LEADER], [LEADER, FOLLOWER, BYSTANDER]):
        ask = _alter("led", wanted, may_change=False)
        found += compare(sides, "other factor", LEADER, ALTER_PARTITION_REASSIGNMENTS, ask, range(1, 2))
    _check(found)


@pytest.mark.parametrize(
    "wanted", [[FOLLOWER, BYSTANDER], [BYSTANDER, LEADER, FOLLOWER], [BYSTANDER], [LEADER, FOLLOWER]]
)
def test_replicas_are_where_they_were_sent(sides: Sides, wanted: list[int]) -> None:
    found = compare(
        sides, "move", FOLLOWER, ALTER_PARTITION_REASSIGNMENTS, _alter("moved", wanted), range(1, 2)
    )
    for side in sides:
        side.until(partial(_is_still, side), "nothing to move")
        side.until(partial(_has, side, "moved", wanted), f"replicas {wanted}")
    found += compare(sides, "elect", LEADER, ELECT_LEADERS, _elect("moved"), range(2, 3))
    for side in sides:
        side.until(partial(_leads, side, "moved", wanted[0]), f"{wanted[0]} to lead")
    _check(found)


def test_the_preferred_leader_is_elected_when_asked_for(sides: Sides) -> None:
    """Another order of the same replicas moves nothing; the leader changes with the election."""
    found = compare(
        sides,
        "turn",
        LEADER,
        ALTER_PARTITION_REASSIGNMENTS,
        _alter("turned", [FOLLOWER, LEADER]),
        range(1, 2),
    )
    for side in sides:
        side.until(partial(_has, side, "turned", [FOLLOWER, LEADER]), "the new order")
    for kind in (1, 0, 0):  # not needed, done, not needed any more
        found += compare(sides, f"kind {kind}", BYSTANDER, ELECT_LEADERS, _elect("turned", kind), range(2, 3))
    for side in sides:
        side.until(partial(_leads, side, "turned", FOLLOWER), "the new leader")
    for broker in BROKERS:
        found += compare(sides, "an old epoch", broker, FETCH, _fetch(0, topic="turned"), range(9, 19))
        ask = _offsets(-1, 0, topic="turned")
        found += compare(sides, "an old epoch", broker, LIST_OFFSETS, ask, range(4, 12))
    _check(found)
