"""AlterPartitionReassignments (45), versions 0-1: partitions begin to move to other replicas, or cease to.

v1 lets a client rule out that the number of replicas changes. The answer says what was begun, not what is done:
ListPartitionReassignments shows the rest.
"""

from itertools import islice

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.turns import in_turns
from penstock.frontends.kafka.registry import Call, api
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


@api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions=(0, 1), forwarded=True)
async def handle(
    services: Services, request: AlterPartitionReassignmentsRequest, call: Call
) -> AlterPartitionReassignmentsResponse:
    if not request.topics:
        # Nothing to do: Kafka answers without a look at the rest.
        return AlterPartitionReassignmentsResponse()
    may_change = request.allow_replication_factor_change
    wanted = [
        ((topic.name, partition.partition_index), partition.replicas)
        for topic in request.topics
        for partition in topic.partitions
    ]
    try:
        outcomes = iter(await services.reassignments.alter(wanted, may_change_factor=may_change))
    except ApiError as error:
        return AlterPartitionReassignmentsResponse(
            error_code=error.code, error_message=error.message, allow_replication_factor_change=may_change
        )
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_change,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=await in_turns(
                    _answered,
                    zip(topic.partitions, islice(outcomes, len(topic.partitions)), strict=True),
                ),
            )
            for topic in request.topics
        ],
    )


def _answered(told: tuple[ReassignablePartition, ApiError | None]) -> ReassignablePartitionResponse:
    partition, error = told
    return ReassignablePartitionResponse(
        partition_index=partition.partition_index,
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
    )
