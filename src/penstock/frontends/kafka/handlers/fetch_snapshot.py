"""FetchSnapshot (59), version 0: what idempotent producers had done by an offset. Between brokers only.

Kafka's controllers ask for metadata with it; here it is a follower whose log begins anew where its leader's begins.
`position` is the producer id to go on from: -1 when there is none left.
"""

import asyncio

from penstock.core.errors import ApiError
from penstock.core.limits import PRODUCERS_TOLD_MAX
from penstock.core.turns import Turn
from penstock.frontends.kafka.registry import Call, api
from penstock.services.fetching.follower import check_replica
from penstock.services.list_offsets import check_exact_epoch
from penstock.services.services import Services
from penstock.storage.producer_snapshot import encode_producers
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RequestPartitionSnapshot,
    ResponsePartitionSnapshot,
    ResponseTopicSnapshot,
)

_PRODUCER_BYTES_MAX = 192  # with all its batches, rounded up


@api(ApiKey.FETCH_SNAPSHOT, versions=(0, 0), internal=True)
async def handle(services: Services, request: FetchSnapshotRequest, call: Call) -> FetchSnapshotResponse:
    """For replicas of what they ask for, each partition once; clients have no business here."""
    turn = Turn(asyncio.get_running_loop().time)
    left = min(request.max_bytes // _PRODUCER_BYTES_MAX, PRODUCERS_TOLD_MAX)
    answers: dict[str, dict[int, ResponsePartitionSnapshot]] = {}
    for topic in request.topics:
        partitions = answers.setdefault(topic.name, {})
        for wanted in topic.partitions:
            if wanted.partition not in partitions:
                await turn.give_way()
                answer, told = _answer(services, topic.name, wanted, call.session.broker, max(left, 1))
                partitions[wanted.partition] = answer
                left -= told
    return FetchSnapshotResponse(
        topics=[
            ResponseTopicSnapshot(name=name, partitions=list(partitions.values()))
            for name, partitions in answers.items()
        ]
    )


def _answer(
    services: Services, topic: str, wanted: RequestPartitionSnapshot, replica: int, count: int
) -> tuple[ResponsePartitionSnapshot, int]:
    """With how many producers it tells of."""
    answer = ResponsePartitionSnapshot(index=wanted.partition, snapshot_id=wanted.snapshot_id)
    try:
        partition = services.table.find(topic, wanted.partition)
        check_replica(partition, replica)
        check_exact_epoch(partition, wanted.current_leader_epoch)
    except ApiError as error:
        answer.error_code = error.code
        return answer, 0
    end, known = wanted.snapshot_id.end_offset, partition.log.producers
    found, answer.position = known.copy_below(end, wanted.position, count)
    answer.unaligned_records = encode_producers(found)
    return answer, len(found)
