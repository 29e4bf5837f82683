"""DeleteRecords (21), versions 0-2: everything of a partition below an offset (-1: below the high watermark).

v2 is flexible. Partitions are deleted side by side; one named twice gets the last offset given. The timeout is for
followers to delete it, too (REQUEST_TIMED_OUT: here it is gone, there it may not be); a leader without followers waits
for nobody.
"""

import asyncio

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, StorageError
from penstock.core.turns import give_way
from penstock.frontends.kafka.registry import Call, api
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

_UNKNOWN_WATERMARK = -1


@api(ApiKey.DELETE_RECORDS, versions=(0, 2))
async def handle(services: Services, request: DeleteRecordsRequest, call: Call) -> DeleteRecordsResponse:
    wanted = {
        (topic.name, partition.partition_index): partition.offset
        for topic in request.topics
        for partition in topic.partitions
    }
    by_topic: dict[str, list[DeleteRecordsPartitionResult]] = {topic.name: [] for topic in request.topics}
    async with asyncio.TaskGroup() as deletions:
        for number, ((topic, index), offset) in enumerate(wanted.items()):
            await give_way(number)
            result = DeleteRecordsPartitionResult(partition_index=index, low_watermark=_UNKNOWN_WATERMARK)
            by_topic[topic].append(result)
            deletions.create_task(_delete(services, topic, offset, request.timeout_ms, result))
    return DeleteRecordsResponse(
        topics=[DeleteRecordsTopicResult(name=name, partitions=parts) for name, parts in by_topic.items()]
    )


async def _delete(
    services: Services, topic: str, offset: int, timeout_ms: int, result: DeleteRecordsPartitionResult
) -> None:
    index, timeout_s = result.partition_index, timeout_ms / 1000
    try:
        result.low_watermark = await services.deletions.delete_before(topic, index, offset, timeout_s)
    except ApiError as error:
        result.error_code = error.code
    except StorageError:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
