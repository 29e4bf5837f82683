"""OffsetForLeaderEpoch (23), versions 2-4: where a leader epoch ended, so that a reader can see that it was cut off.

v2 lets a client name the leader epoch it knows; v3 names the replica that asks, which is -1 or -2 for clients; v4 is
flexible.

Who says to be a replica and has not proven it is answered as a client, as in Kafka. A follower hears of the whole log,
also where readers see less of a retired partition: it notes where epochs began (`replication.epoch_starts`).
"""

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.frontends.kafka.registry import Call, api
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

# A controller of 0.1.0 asks so for the end of a replica, by name (now `wire.peers.log_ends`): it must not take "no such
# epoch" for an empty log.
_LAST_EPOCH = 0x7FFFFFFF


@api(ApiKey.OFFSET_FOR_LEADER_EPOCH, versions=(2, 4), portions=(("topics", "partitions"),))
async def handle(
    services: Services, request: OffsetForLeaderEpochRequest, call: Call
) -> OffsetForLeaderEpochResponse:
    is_broker = 0 <= request.replica_id == call.session.broker
    unsure = set() if is_broker else await _unsure(services, request)
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(partition=wanted.partition, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
                    if (topic.topic, wanted.partition) in unsure
                    else _answer(services, topic.topic, wanted, is_broker=is_broker)
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


async def _unsure(services: Services, request: OffsetForLeaderEpochRequest) -> set[tuple[str, int]]:
    """Of an epoch that comes after ours readers are told that it never was: only by who is sure to lead still."""
    later = {
        (topic.topic, wanted.partition): partition
        for topic in request.topics
        for wanted in topic.partitions
        if (
            partition := services.offsets.later_than_known(topic.topic, wanted.partition, wanted.leader_epoch)
        )
    }
    certainty = services.fetch.certainty
    if later and await certainty.is_current():
        return {place for place, partition in later.items() if not certainty.leads(partition)}
    return set(later)


def _answer(
    services: Services, topic: str, wanted: OffsetForLeaderPartition, *, is_broker: bool
) -> EpochEndOffset:
    answer = EpochEndOffset(partition=wanted.partition)
    try:
        if is_broker and wanted.leader_epoch == _LAST_EPOCH:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
        offsets = services.offsets
        end_of = offsets.end_in_log if is_broker else offsets.end_of_epoch
        answer.leader_epoch, answer.end_offset = end_of(
            topic, wanted.partition, wanted.current_leader_epoch, wanted.leader_epoch
        )
    except ApiError as error:
        answer.error_code = error.code
    return answer
