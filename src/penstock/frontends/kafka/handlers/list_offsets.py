"""ListOffsets (2), versions 1-11: a partition's offset for a time, or for one of the places named by negative times.

v2 adds the isolation level, v4 leader epochs, v6 is flexible. Names came one by one: v7 the latest timestamp (-3), v8
the earliest local offset (-4), v9 the latest tiered offset (-5), v10 a timeout (for tiered lookups, which never happen
here), v11 the earliest offset still to be tiered (-6). Asking for one too early is UNSUPPORTED_VERSION, per partition.

Two names of our own tell what becomes of a retired partition (`wire.kafka.retired_specs`): our tools ask for them.

A partition is looked at once in a request, as in Kafka: finding a time may mean to open a batch of 100,000 records, and
a request has room for 100,000 times.
"""

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, StorageError
from penstock.frontends.kafka.registry import Call, api
from penstock.replication.limits import Reader
from penstock.services.list_offsets import OffsetAnswer, Spec
from penstock.services.retiring import limit_of
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from penstock.wire.kafka.retired_specs import LEFT, LIMIT

_NAMED_SINCE: dict[int, int] = {
    Spec.LATEST: 1,
    Spec.EARLIEST: 1,
    Spec.MAX_TIMESTAMP: 7,
    Spec.EARLIEST_LOCAL: 8,
    Spec.LATEST_TIERED: 9,
    Spec.EARLIEST_PENDING_UPLOAD: 11,
}
_NEVER = 1 << 15
_OF_RETIRED = (LEFT, LIMIT)
_ISOLATION_LEVELS = (0, 1)


@api(ApiKey.LIST_OFFSETS, versions=(1, 11), portions=(("topics", "partitions"),))
async def handle(services: Services, request: ListOffsetsRequest, call: Call) -> ListOffsetsResponse:
    answers: dict[str, dict[int, ListOffsetsPartitionResponse]] = {}
    named = call.named = call.named or set()
    for topic in request.topics:
        partitions = answers.setdefault(topic.name, {})
        for wanted in topic.partitions:
            index = wanted.partition_index
            if (topic.name, index) in named:
                answer = _refused(index, ErrorCode.INVALID_REQUEST)
            elif request.isolation_level not in _ISOLATION_LEVELS:
                answer = _refused(index, ErrorCode.UNKNOWN_SERVER_ERROR)
            elif wanted.timestamp in _OF_RETIRED:
                answer = _told_of_retired(services, topic.name, wanted)
            else:
                reader = Reader(request.isolation_level)
                answer = await _answer(services, topic.name, wanted, reader, call)
            named.add((topic.name, index))
            partitions[index] = answer
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(name=name, partitions=list(partitions.values()))
            for name, partitions in answers.items()
        ]
    )


async def _answer(
    services: Services, topic: str, wanted: ListOffsetsPartition, reader: Reader, call: Call
) -> ListOffsetsPartitionResponse:
    index, timestamp = wanted.partition_index, wanted.timestamp
    if timestamp < 0 and call.version < _NAMED_SINCE.get(timestamp, _NEVER):
        return _refused(index, ErrorCode.UNSUPPORTED_VERSION)
    try:
        found = await services.offsets.find(
            topic, index, wanted.current_leader_epoch, timestamp, reader, lambda: call.session.is_lost
        )
    except ApiError as error:
        return _refused(index, error.code)
    except StorageError:
        return _refused(index, ErrorCode.KAFKA_STORAGE_ERROR)
    return _found(index, found)


def _told_of_retired(
    services: Services, topic: str, wanted: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    """What becomes of a retired partition."""
    index = wanted.partition_index
    try:
        if wanted.timestamp == LIMIT:
            return _found(index, limit_of(services.image.topics.get(topic), index))
        found = services.retiring.left(topic, index, wanted.current_leader_epoch)
    except ApiError as error:
        return _refused(index, error.code)
    return _found(index, found)


def _found(index: int, found: OffsetAnswer) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=index,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
    )


def _refused(index: int, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=index, error_code=code)
