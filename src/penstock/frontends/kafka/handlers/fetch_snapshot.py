"""FetchSnapshot (59), version 0: what idempotent producers had done by an offset. Between brokers only.

Kafka's controllers ask for metadata with it; here it is a follower whose log begins anew where its leader's begins.
`position` is the producer id to go on from: -1 when there is none left.
"""

from penstock.core.errors import ApiError
from penstock.frontends.kafka.registry import Call, api
from penstock.services.offsets import check_exact_epoch
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

# In one answer: some 2 MB.
_PRODUCERS_MAX = 10_000
_NO_MORE = -1


@api(ApiKey.FETCH_SNAPSHOT, versions=(0, 0), internal=True)
def handle(services: Services, request: FetchSnapshotRequest, call: Call) -> FetchSnapshotResponse:
    return FetchSnapshotResponse(
        topics=[
            ResponseTopicSnapshot(
                name=topic.name,
                partitions=[_answer(services, topic.name, wanted) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _answer(services: Services, topic: str, wanted: RequestPartitionSnapshot) -> ResponsePartitionSnapshot:
    answer = ResponsePartitionSnapshot(index=wanted.partition, snapshot_id=wanted.snapshot_id)
    try:
        partition = services.table.find(topic, wanted.partition)
        check_exact_epoch(partition, wanted.current_leader_epoch)
        known = partition.log.producers
        found = known.copy_below(wanted.snapshot_id.end_offset, wanted.position, _PRODUCERS_MAX)
        answer.unaligned_records = encode_producers(found)
        answer.position = found[-1].producer_id + 1 if len(found) == _PRODUCERS_MAX else _NO_MORE
    except ApiError as error:
        answer.error_code = error.code
    return answer
