"""ListPartitionReassignments (46), version 0: partitions whose replicas are moving, all or those that are named.

What does not move, or does not exist, is left out without an error. The controller is asked: it knows what was begun a
moment ago. Beside error code 0 its message says, where something is wrong, why replicas stay where they should not.
"""

from penstock.core.limits import LARGE_ANSWER_ENTRIES
from penstock.core.turns import give_way
from penstock.frontends.kafka.registry import Call, api
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def asks_for_all(services: Services, request: ListPartitionReassignmentsRequest, call: Call) -> bool:
    """Of very many partitions, and here is who knows."""
    if request.topics is not None or not services.controller_client.is_here:
        return False
    return sum(len(topic.partitions) for topic in services.image.topics.values()) > LARGE_ANSWER_ENTRIES


@api(
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    versions=(0, 0),
    forwarded=True,
    gives_way=True,
    asks_for_much=asks_for_all,
)
async def handle(
    services: Services, request: ListPartitionReassignmentsRequest, call: Call
) -> ListPartitionReassignmentsResponse:
    wanted = (
        None
        if request.topics is None
        else [(topic.name, number) for topic in request.topics for number in topic.partition_indexes]
    )
    topics: dict[str, list[OngoingPartitionReassignment]] = {}
    ongoing = await services.reassignments.ongoing(wanted)
    for told, ((name, number), state) in enumerate(ongoing.items()):
        await give_way(told)
        topics.setdefault(name, []).append(
            OngoingPartitionReassignment(
                partition_index=number,
                replicas=list(state.replicas),
                adding_replicas=[replica for replica in state.adding if replica not in state.removing],
                removing_replicas=list(state.removing),
            )
        )
    return ListPartitionReassignmentsResponse(
        error_message=services.controller.care.outlook.trouble or None,
        topics=[OngoingTopicReassignment(name=name, partitions=each) for name, each in topics.items()],
    )
