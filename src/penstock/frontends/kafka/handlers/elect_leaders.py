"""ElectLeaders (43), versions 0-2: partitions led by their first replica again, or by any that lives.

v0 knows only the first kind and has no error for the whole request; v1 adds unclean elections, which may lose records,
for partitions that nobody leads; v2 is flexible. Without a list all partitions are meant: every topic is in the answer,
with those of its partitions that needed something.
"""

from collections.abc import Sequence

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.turns import in_turns
from penstock.frontends.kafka.registry import Call, api
from penstock.services.reassignments import PREFERRED, UNCLEAN
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)


@api(ApiKey.ELECT_LEADERS, versions=(0, 2), forwarded=True)
async def handle(services: Services, request: ElectLeadersRequest, call: Call) -> ElectLeadersResponse:
    everything = request.topic_partitions is None
    asked: list[tuple[str, Sequence[int]]] = (
        [(topic.name, range(len(topic.partitions))) for topic in services.image.stored_topics()]
        if request.topic_partitions is None
        else [(topic.topic, topic.partitions) for topic in request.topic_partitions]
    )
    if request.election_type not in (PREFERRED, UNCLEAN):
        error = ApiError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
        return ElectLeadersResponse(
            error_code=error.code,
            replica_election_results=[] if everything else [_results(*topic, error) for topic in asked],
        )
    try:
        outcomes = iter(
            await services.reassignments.elect(
                [(name, number) for name, numbers in asked for number in numbers], request.election_type
            )
        )
    except ApiError as error:
        return ElectLeadersResponse(error_code=error.code)
    results = []
    for name, numbers in asked:
        told = [
            (number, refusal)
            for number in numbers
            if (refusal := next(outcomes)) is None
            or not everything
            or refusal.code is not ErrorCode.ELECTION_NOT_NEEDED
        ]
        results.append(ReplicaElectionResult(topic=name, partition_result=await in_turns(_result, told)))
    return ElectLeadersResponse(replica_election_results=results)


def _results(topic: str, partitions: Sequence[int], refusal: ApiError) -> ReplicaElectionResult:
    return ReplicaElectionResult(
        topic=topic, partition_result=[_result((number, refusal)) for number in partitions]
    )


def _result(told: tuple[int, ApiError | None]) -> PartitionResult:
    partition, refusal = told
    return PartitionResult(
        partition_id=partition,
        error_code=ErrorCode.NONE if refusal is None else refusal.code,
        error_message=None if refusal is None else refusal.message,
    )
