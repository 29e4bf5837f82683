"""ElectLeaders (43), versions 0-2: partitions led by their first replica again, or by any that lives.

v0 knows only the first kind and has no error for the whole request; v1 adds unclean elections, which may lose records,
for partitions that nobody leads; v2 is flexible. Without a list all partitions are meant, and those that need nothing
are left out of the answer.
"""

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
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
    if request.election_type not in (PREFERRED, UNCLEAN):
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST)
    wanted = (
        None
        if request.topic_partitions is None
        else [(topic.topic, number) for topic in request.topic_partitions for number in topic.partitions]
    )
    try:
        outcome = await services.reassignments.elect(wanted, request.election_type)
    except ApiError as error:
        return ElectLeadersResponse(error_code=error.code)
    topics: dict[str, list[PartitionResult]] = {}
    for (name, number), refusal in outcome.items():
        topics.setdefault(name, []).append(
            PartitionResult(
                partition_id=number,
                error_code=ErrorCode.NONE if refusal is None else refusal.code,
                error_message=None if refusal is None else refusal.message,
            )
        )
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic=name, partition_result=each) for name, each in topics.items()
        ]
    )
