"""CreatePartitions (37), versions 0-3: topics grown to a larger number of partitions, which are open when it answers.

v1 is v0; v2 is flexible; v3 allows a throttling error, which this broker does not give.
"""

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.turns import in_turns
from penstock.frontends.kafka.registry import Call, api
from penstock.services.services import Services
from penstock.services.topics.service import MorePartitions
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


@api(ApiKey.CREATE_PARTITIONS, versions=(0, 3), forwarded=True)
async def handle(
    services: Services, request: CreatePartitionsRequest, call: Call
) -> CreatePartitionsResponse:
    outcome = await services.topics.create_partitions(
        await in_turns(_wanted, request.topics),
        timeout_ms=request.timeout_ms,
        validate_only=request.validate_only,
    )
    return CreatePartitionsResponse(results=await in_turns(_result, outcome.items()))


def _wanted(topic: CreatePartitionsTopic) -> tuple[str, MorePartitions]:
    if topic.assignments is None:
        return topic.name, MorePartitions(topic.count)
    assignments = [assignment.broker_ids for assignment in topic.assignments]
    return topic.name, MorePartitions(topic.count, assignments)


def _result(told: tuple[str, ApiError | None]) -> CreatePartitionsTopicResult:
    name, error = told
    return CreatePartitionsTopicResult(
        name=name,
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
    )
