"""ListOffsets: which offset a partition has at a point in time. One request per leader, all sent before any is read."""

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.client.raw.cluster import Cluster
from penstock.client.raw.errors import BrokerError, ConnectionLostError, RawError
from penstock.client.raw.model import MAX_TIMESTAMP, OffsetAt
from penstock.client.raw.retry_budget import RetryBudget
from penstock.client.topic_partition import TopicPartition
from penstock.core.error_codes import ErrorCode
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from penstock.client.raw.link import Link

# v2 asks for committed records, v4 names the leader epoch, v7 knows MAX_TIMESTAMP.
_VERSION_MIN = 2
_MAX_TIMESTAMP_SINCE = 7
# An election is over by then, unless there is nobody to elect.
_PARTIAL_TRIES = 6
Found = dict[TopicPartition, OffsetAt]
Asked = dict[TopicPartition, int]


def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, committed: bool, partial: bool = False
) -> Found:
    """`partial`: without those whose leaders do not answer after some tries, where others do."""
    found: Found = {}
    budget = cluster.budget("asking for offsets")
    while missing := {at: time for at, time in wanted.items() if at not in found}:
        try:
            trouble = _round(cluster, missing, found, budget, committed=committed)
        except RawError as error:
            trouble = error
        if trouble is not None:
            if partial and found and trouble.retriable and budget.retries >= _PARTIAL_TRIES:
                break
            cluster.doubt(at for at in missing if at not in found)
            budget.pause(trouble)
    return {at: found[at] for at in wanted if at in found}


def _round(
    cluster: Cluster, missing: Asked, found: Found, budget: RetryBudget, *, committed: bool
) -> RawError | None:
    """Ask every leader once. What can be tried again is returned, the rest raised."""
    trouble: RawError | None = None
    by_link: defaultdict[Link, dict[TopicPartition, ListOffsetsPartition]] = defaultdict(dict)
    for at, time in missing.items():
        try:
            route = cluster.route(at, budget)
        except RawError as error:
            if not error.retriable or not cluster.knows(at.topic):
                raise
            # Nobody leads it, or nobody answers there: that holds up no other.
            trouble = error
            continue
        by_link[route.link][at] = ListOffsetsPartition(
            partition_index=at.partition, current_leader_epoch=route.leader_epoch, timestamp=time
        )
    at_least = _MAX_TIMESTAMP_SINCE if MAX_TIMESTAMP in missing.values() else _VERSION_MIN
    tickets = []
    try:
        for link, partitions in by_link.items():
            version = link.version(ApiKey.LIST_OFFSETS, at_least=at_least)
            request = _request(partitions, cluster.options.request_timeout_ms, committed=committed)
            tickets.append((link, link.send(ApiKey.LIST_OFFSETS, version, request)))
        while tickets:
            link, ticket = tickets[0]
            answer: ListOffsetsResponse = link.response(ticket)
            del tickets[0]
            trouble = _take(answer, found) or trouble
    finally:
        for link, ticket in tickets:
            link.forget(ticket)
    if trouble is None and any(at not in found for at in missing):
        return ConnectionLostError("a broker left partitions out of its answer")
    return trouble


def _take(answer: ListOffsetsResponse, found: Found) -> RawError | None:
    trouble = None
    for topic in answer.topics:
        for partition in topic.partitions:
            at = TopicPartition(topic.name, partition.partition_index)
            if partition.error_code == ErrorCode.NONE:
                found[at] = OffsetAt(partition.offset, partition.timestamp)
                continue
            trouble = BrokerError(partition.error_code, str(at))
            if not trouble.retriable:
                raise trouble
    return trouble


def _request(
    partitions: dict[TopicPartition, ListOffsetsPartition], timeout_ms: int, *, committed: bool
) -> ListOffsetsRequest:
    topics: dict[str, ListOffsetsTopic] = {}
    for at, partition in partitions.items():
        topics.setdefault(at.topic, ListOffsetsTopic(name=at.topic, partitions=[])).partitions.append(
            partition
        )
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=int(committed), topics=list(topics.values()), timeout_ms=timeout_ms
    )
