"""OffsetForLeaderEpoch: where a leader epoch ended, so that a reader sees that the log is not the one that he knew."""

from collections.abc import Mapping

from penstock.client.raw.cluster import Cluster
from penstock.client.raw.errors import BrokerError, ConnectionLostError, RawError
from penstock.client.raw.model import LATEST
from penstock.client.raw.offsets import list_offsets
from penstock.client.raw.retry_budget import RetryBudget
from penstock.client.topic_partition import TopicPartition
from penstock.core.error_codes import ErrorCode
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

_VERSION_MIN = 2


def epoch_ends(
    cluster: Cluster, wanted: Mapping[TopicPartition, int]
) -> dict[TopicPartition, tuple[int, int]]:
    """One partition after the other: it is asked for those that are archived, before a round that takes seconds."""
    return {at: _end_of(cluster, at, epoch) for at, epoch in wanted.items()}


def settled_end(cluster: Cluster, at: TopicPartition) -> int:
    """The end of the log, once everything is committed that its leader had when it was asked.

    What a writer has sent that is no more is in the log, and readers see it only when the replicas have it: who wants
    to go on behind that writer must not go by the end that readers see.
    """
    budget = cluster.budget(f"waiting for what is in {at} to be committed")
    appended: int | None = None
    while True:
        _, end = _end_of(cluster, at, None)
        # Others may write meanwhile; a log that was cut off never gets to where it was.
        appended = end if appended is None else min(appended, end)
        committed = list_offsets(cluster, {at: LATEST}, committed=False)[at].offset
        if committed >= appended:
            return committed
        budget.pause(BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, str(at)))


def _end_of(cluster: Cluster, at: TopicPartition, epoch: int | None) -> tuple[int, int]:
    budget = cluster.budget(f"asking {at} for the end of epoch {'now' if epoch is None else epoch}")
    while True:
        try:
            return _ask(cluster, at, epoch, budget)
        except RawError as error:
            cluster.doubt((at,))
            budget.pause(error)


def _ask(cluster: Cluster, at: TopicPartition, epoch: int | None, budget: RetryBudget) -> tuple[int, int]:
    """`epoch`: None for that of the leader."""
    route = cluster.route(at, budget)
    version = route.link.version(ApiKey.OFFSET_FOR_LEADER_EPOCH, at_least=_VERSION_MIN)
    partition = OffsetForLeaderPartition(
        partition=at.partition,
        current_leader_epoch=route.leader_epoch,
        leader_epoch=route.leader_epoch if epoch is None else epoch,
    )
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=at.topic, partitions=[partition])]
    )
    answer: OffsetForLeaderEpochResponse = route.link.response(
        route.link.send(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, request)
    )
    for topic in answer.topics:
        for found in topic.partitions:
            if found.error_code != ErrorCode.NONE:
                raise BrokerError(found.error_code, str(at))
            return found.leader_epoch, found.end_offset
    raise ConnectionLostError(f"a broker left {at} out of its answer")
