"""Retired partitions of a topic, as their leaders tell of them: also of those that metadata no longer shows."""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.client.admin.cluster_info import ClusterInfo
from penstock.client.raw.cluster import Cluster
from penstock.client.raw.link import Link
from penstock.client.raw.retry_budget import RetryBudget
from penstock.client.topic_partition import TopicPartition
from penstock.core.error_codes import ErrorCode
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.wire.kafka.retired_specs import LEFT

_LATEST = -1


@dataclass(frozen=True, slots=True)
class Retired:
    """One that is led; of others nobody can tell."""

    index: int
    limit: int  # what lies below can be read here
    into: int  # what comes behind can be read there
    left: int  # offsets that are not moved yet
    hidden: bool  # metadata no longer shows it


def look_at_retired(
    cluster: Cluster, found: ClusterInfo, topic: str, staying: int, budget: RetryBudget
) -> list[Retired]:
    """Those from number `staying` on, wherever a broker has them. RawError when a broker cannot be asked now."""
    retired = {}
    for broker in found.brokers.values():
        held = {*found.on(broker.id), *found.sizes.get(broker.id, ())}
        numbers = sorted(number for name, number in held if name == topic and number >= staying)
        if not numbers or not broker.is_live:
            continue
        link = cluster.link((broker.host, broker.port), budget)
        limits = _ask(link, topic, numbers, _LATEST)
        for number, left in _ask(link, topic, numbers, LEFT).items():
            if number in limits:
                hidden = TopicPartition(topic, number) not in found.partitions
                retired[number] = Retired(number, limits[number].offset, left.timestamp, left.offset, hidden)
    return [retired[number] for number in sorted(retired)]


def _ask(
    link: Link, topic: str, numbers: Iterable[int], question: int
) -> dict[int, ListOffsetsPartitionResponse]:
    """Of those that the broker leads."""
    wanted = [ListOffsetsPartition(partition_index=number, timestamp=question) for number in numbers]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=wanted)])
    answer = link.call(ApiKey.LIST_OFFSETS, link.version(ApiKey.LIST_OFFSETS), request)
    return {
        partition.partition_index: partition
        for each in answer.topics
        for partition in each.partitions
        if partition.error_code == ErrorCode.NONE
    }
