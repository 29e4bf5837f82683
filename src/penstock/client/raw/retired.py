"""What a cluster tells of partitions that were retired: any broker does, also of those that are removed."""

from collections.abc import Iterable

from penstock.client.raw.cluster import Cluster
from penstock.client.raw.errors import ConnectionLostError, RawError, UnsupportedError
from penstock.client.raw.model import Retirement
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
from penstock.wire.kafka.retired_specs import LIMIT

_VERSION_MIN = 4  # with leader epochs
_NO_EPOCH = -1


def retirements(cluster: Cluster, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, Retirement]:
    """Left out where the broker cannot tell."""
    partitions = sorted(set(wanted))
    budget = cluster.budget("asking for retired partitions")
    while partitions:
        try:
            return _ask(cluster, partitions, budget)
        except RawError as error:
            budget.pause(error)
    return {}


def _ask(
    cluster: Cluster, partitions: list[TopicPartition], budget: RetryBudget
) -> dict[TopicPartition, Retirement]:
    topics: dict[str, ListOffsetsTopic] = {}
    for at in partitions:
        asked = topics.setdefault(at.topic, ListOffsetsTopic(name=at.topic, partitions=[]))
        asked.partitions.append(ListOffsetsPartition(partition_index=at.partition, timestamp=LIMIT))
    link = cluster.any_link(budget)
    try:
        version = link.version(ApiKey.LIST_OFFSETS, at_least=_VERSION_MIN)
    except UnsupportedError:
        return {}
    request = ListOffsetsRequest(replica_id=-1, topics=list(topics.values()))
    answer: ListOffsetsResponse = link.response(link.send(ApiKey.LIST_OFFSETS, version, request))
    found, answered = {}, set()
    for topic in answer.topics:
        for partition in topic.partitions:
            at = TopicPartition(topic.name, partition.partition_index)
            answered.add(at)
            # Other brokers refuse the question, or take it for a time and tell of a record, which has an epoch.
            if (
                partition.error_code == ErrorCode.NONE
                and partition.leader_epoch == _NO_EPOCH
                and partition.timestamp >= 0
            ):
                found[at] = Retirement(
                    None if partition.offset < 0 else partition.offset, partition.timestamp
                )
    if not answered.issuperset(partitions):
        raise ConnectionLostError("a broker left partitions out of its answer")
    return found
