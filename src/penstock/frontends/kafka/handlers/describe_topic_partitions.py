"""DescribeTopicPartitions (75), version 0: topics by name and page by page, for clients that describe very many.

An answer holds a limited number of partitions (the client's wish, at most `max.request.partition.size.limit`) and a
cursor to go on from. An empty list asks for all topics.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import count
from typing import NamedTuple

from penstock.coordination.nodes import PartitionState
from penstock.core.error_codes import ErrorCode
from penstock.core.internal_topics import INTERNAL_TOPICS
from penstock.core.turns import give_way
from penstock.frontends.kafka.authorized import TOPIC_OPERATIONS
from penstock.frontends.kafka.registry import Call, api
from penstock.services.cluster_view import Reach
from penstock.services.services import Services
from penstock.services.topics.names import is_legal_topic_name
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


class _Chosen(NamedTuple):
    name: str
    id: bytes | None = None  # None: there is no such topic
    first: int = 0
    states: Sequence[PartitionState] = ()


@api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions=(0, 0))
async def handle(
    services: Services, request: DescribeTopicPartitionsRequest, call: Call
) -> DescribeTopicPartitionsResponse:
    cursor = request.cursor
    every = sorted({topic.name for topic in request.topics}) or services.image.topic_names()
    names = every if cursor is None else every[bisect_left(every, cursor.topic_name) :]
    error = _malformed(request, names)
    if error is not None:
        refused = [
            DescribeTopicPartitionsResponseTopic(error_code=error, name=topic.name)
            for topic in request.topics
        ]
        return DescribeTopicPartitionsResponse(topics=refused)
    reach = Reach.of(services, call.session.listener)
    left = max(min(services.config.now.max_request_partition_size_limit, request.response_partition_limit), 1)
    # What is told is chosen at once, of one state; to tell it takes longer.
    chosen: list[_Chosen] = []
    following: Cursor | None = None
    for name in names:
        if left == 0:
            following = Cursor(topic_name=name, partition_index=0)
            break
        topic = services.image.topics.get(name)
        if topic is None:
            chosen.append(_Chosen(name))
            continue
        first = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        until = min(first + left, topic.shown)
        chosen.append(_Chosen(name, topic.id, first, topic.partitions[first:until]))
        if until < topic.shown:
            following = Cursor(topic_name=name, partition_index=until)
            break
        left -= max(until - first, 0)
    numbers = count()
    topics = [await _told(each, reach, numbers) for each in chosen]
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=following)


def _malformed(request: DescribeTopicPartitionsRequest, names: list[str]) -> ErrorCode | None:
    """A request that fails as a whole."""
    cursor = request.cursor
    if cursor is not None and request.topics and cursor.topic_name not in names:
        return ErrorCode.INVALID_REQUEST
    if cursor is not None and cursor.partition_index < 0:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.UNKNOWN_SERVER_ERROR if request.topics and "" in names else None


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    legal = is_legal_topic_name(name)
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if legal else ErrorCode.INVALID_TOPIC_EXCEPTION,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


async def _told(
    chosen: _Chosen, reach: Reach, numbers: Iterator[int]
) -> DescribeTopicPartitionsResponseTopic:
    await give_way(next(numbers))
    if chosen.id is None:
        return _unknown(chosen.name)
    partitions = []
    for index, state in enumerate(chosen.states, chosen.first):
        await give_way(next(numbers))
        leader, error = reach.leadership(state)
        partitions.append(
            DescribeTopicPartitionsResponsePartition(
                error_code=error,
                partition_index=index,
                leader_id=leader,
                leader_epoch=state.leader_epoch,
                replica_nodes=list(state.replicas),
                isr_nodes=list(state.isr),
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=reach.offline_replicas(state),
            )
        )
    return DescribeTopicPartitionsResponseTopic(
        name=chosen.name,
        topic_id=chosen.id,
        is_internal=chosen.name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )
