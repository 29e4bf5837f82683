"""What a client is told of a request that went to the controller and was not answered.

REQUEST_TIMED_OUT, for everything that it asked for: in Kafka, too, that says that it may have happened or may happen
yet. Clients do not repeat it by themselves, as they do when a connection is closed: only who asked knows whether the
same is still wanted.
"""

from collections.abc import Callable, Mapping
from typing import Any

from penstock.core.error_codes import ErrorCode
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from penstock.wire.kafka.generated.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from penstock.wire.kafka.generated.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from penstock.wire.kafka.generated.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from penstock.wire.kafka.generated.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from penstock.wire.kafka.generated.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

_OPEN = ErrorCode.REQUEST_TIMED_OUT


def outcome_open(api_key: int, request: Any, why: str) -> Any:
    """The response to a forwarded request of which nobody here knows whether it was carried out."""
    return _RESPONSES[api_key](request, f"It may or may not have been carried out: the controller at {why}")


def _create_topics(request: CreateTopicsRequest, message: str) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=name, error_code=_OPEN, error_message=message)
            for name in dict.fromkeys(topic.name for topic in request.topics)
        ]
    )


def _delete_topics(request: DeleteTopicsRequest, message: str) -> DeleteTopicsResponse:
    wanted: list[tuple[str | None, Any]] = [(topic.name, topic.topic_id) for topic in request.topics]
    wanted += [(name, bytes(16)) for name in request.topic_names]
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(name=name, topic_id=topic_id, error_code=_OPEN, error_message=message)
            for name, topic_id in wanted
        ]
    )


def _create_partitions(request: CreatePartitionsRequest, message: str) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=name, error_code=_OPEN, error_message=message)
            for name in dict.fromkeys(topic.name for topic in request.topics)
        ]
    )


def _elect_leaders(request: ElectLeadersRequest, message: str) -> ElectLeadersResponse:
    # Version 0 has no error for the whole, so that each partition has it as well.
    results = [
        ReplicaElectionResult(
            topic=topic.topic,
            partition_result=[
                PartitionResult(partition_id=number, error_code=_OPEN, error_message=message)
                for number in topic.partitions
            ],
        )
        for topic in request.topic_partitions or []
    ]
    return ElectLeadersResponse(error_code=_OPEN, replica_election_results=results)


def _alter_reassignments(
    request: AlterPartitionReassignmentsRequest, message: str
) -> AlterPartitionReassignmentsResponse:
    may_change = request.allow_replication_factor_change
    return AlterPartitionReassignmentsResponse(
        error_code=_OPEN, error_message=message, allow_replication_factor_change=may_change
    )


def _unregister_broker(_: UnregisterBrokerRequest, message: str) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(error_code=_OPEN, error_message=message)


_RESPONSES: Mapping[int, Callable[[Any, str], Any]] = {
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.ELECT_LEADERS: _elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _alter_reassignments,
    ApiKey.UNREGISTER_BROKER: _unregister_broker,
}
