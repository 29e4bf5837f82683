"""DescribeTopicPartitions (75), version 0: topics by name and page by page, for clients that describe very many.

An answer holds a limited number of partitions (the client's wish, at most `max.request.partition.size.limit`) and a
cursor to go on from. An empty list asks for all topics.
"""

from bisect import bisect_left

from penstock.coordination.image import Topic
from penstock.core.error_codes import ErrorCode
from penstock.core.internal_topics import INTERNAL_TOPICS
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


@api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions=(0, 0))
def handle(
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
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        if left == 0:
            return _page(topics, Cursor(topic_name=name, partition_index=0))
        topic = services.image.topics.get(name)
        if topic is None:
            topics.append(_unknown(name))
            continue
        first = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        until = min(first + left, topic.shown)
        topics.append(_described(topic, range(first, until), reach))
        if until < topic.shown:
            return _page(topics, Cursor(topic_name=name, partition_index=until))
        left -= max(until - first, 0)
    return _page(topics, None)


def _malformed(request: DescribeTopicPartitionsRequest, names: list[str]) -> ErrorCode | None:
    """A request that fails as a whole."""
    cursor = request.cursor
    if cursor is not None and request.topics and cursor.topic_name not in names:
        return ErrorCode.INVALID_REQUEST
    if cursor is not None and cursor.partition_index < 0:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.UNKNOWN_SERVER_ERROR if request.topics and "" in names else None


def _page(
    topics: list[DescribeTopicPartitionsResponseTopic], following: Cursor | None
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=following)


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    legal = is_legal_topic_name(name)
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if legal else ErrorCode.INVALID_TOPIC_EXCEPTION,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _described(topic: Topic, indexes: range, reach: Reach) -> DescribeTopicPartitionsResponseTopic:
    partitions = []
    for index in indexes:
        state = topic.partitions[index]
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
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )
