"""OffsetForLeaderEpoch (23), versions 2-4: where a leader epoch ended, so that a reader can see that it was cut off.

v2 lets a client name the leader epoch it knows; v3 names the replica that asks, which is -1 or -2 for clients; v4 is
flexible.

A broker that is asked for the last epoch of all tells the end of its replica, whether it leads or not: so the
controller finds out who has the most when all replicas of a partition crashed.
"""

from penstock.core.errors import ApiError
from penstock.frontends.kafka.registry import Call, api
from penstock.services.controller_link import LAST_EPOCH
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


@api(ApiKey.OFFSET_FOR_LEADER_EPOCH, versions=(2, 4))
def handle(
    services: Services, request: OffsetForLeaderEpochRequest, call: Call
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    _answer(services, topic.topic, wanted, request.replica_id) for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _answer(
    services: Services, topic: str, wanted: OffsetForLeaderPartition, replica_id: int
) -> EpochEndOffset:
    answer = EpochEndOffset(partition=wanted.partition)
    try:
        if replica_id >= 0 and wanted.leader_epoch == LAST_EPOCH:
            answer.leader_epoch, answer.end_offset = services.offsets.log_end(topic, wanted.partition)
            return answer
        answer.leader_epoch, answer.end_offset = services.offsets.end_of_epoch(
            topic, wanted.partition, wanted.current_leader_epoch, wanted.leader_epoch
        )
    except ApiError as error:
        answer.error_code = error.code
    return answer
