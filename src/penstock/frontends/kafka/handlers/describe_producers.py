"""DescribeProducers (61), version 0: which idempotent producers a partition remembers, and where each of them is."""

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.frontends.kafka.registry import Call, api
from penstock.services.services import Services
from penstock.services.topic_names import check_topic_name
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)

_NO_TRANSACTION = -1


@api(ApiKey.DESCRIBE_PRODUCERS, versions=(0, 0))
def handle(services: Services, request: DescribeProducersRequest, call: Call) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_partition(services, topic, index) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _partition(services: Services, topic: TopicRequest, index: int) -> PartitionResponse:
    answer = PartitionResponse(partition_index=index)
    try:
        check_topic_name(topic.name)
        if topic.name not in services.image.topics:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
            )
        answer.active_producers = _producers(services, topic.name, index)
    except ApiError as error:
        answer.error_code = error.code
        answer.error_message = error.message
    return answer


def _producers(services: Services, topic: str, index: int) -> list[ProducerState]:
    return [
        ProducerState(
            producer_id=one.producer_id,
            producer_epoch=one.epoch,
            last_sequence=one.batches[-1].last_sequence if one.batches else -1,
            last_timestamp=one.last_timestamp,
            coordinator_epoch=_NO_TRANSACTION,
            current_txn_start_offset=_NO_TRANSACTION,
        )
        for one in services.table.find(topic, index).log.producers.copy()
    ]
