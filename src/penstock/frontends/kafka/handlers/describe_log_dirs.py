"""DescribeLogDirs (35), versions 1-5: how many bytes each partition takes in the data directory.

v2 is flexible, v3 adds an error for the whole request, v4 the size of the volume and what is left of it, v5 whether new
replicas are kept out of the directory. What is not here is left out, without an error.
"""

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import StorageError
from penstock.frontends.kafka.registry import Call, api
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


@api(ApiKey.DESCRIBE_LOG_DIRS, versions=(1, 5))
async def handle(services: Services, request: DescribeLogDirsRequest, call: Call) -> DescribeLogDirsResponse:
    wanted = None if request.topics is None else [(topic.topic, topic.partitions) for topic in request.topics]
    try:
        usage = await services.disk_usage.measure(wanted)
    except StorageError:
        return _offline(services.disk_usage.path)
    if usage.offline:
        return _offline(usage.path)
    topics = [
        DescribeLogDirsTopic(
            name=name,
            partitions=[
                DescribeLogDirsPartition(partition_index=index, partition_size=size_bytes)
                for index, size_bytes in partitions
            ],
        )
        for name, partitions in usage.topics.items()
    ]
    result = DescribeLogDirsResult(
        log_dir=usage.path,
        topics=topics,
        total_bytes=usage.total_bytes,
        usable_bytes=usage.usable_bytes,
    )
    return DescribeLogDirsResponse(results=[result])


def _offline(path: str) -> DescribeLogDirsResponse:
    result = DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path)
    return DescribeLogDirsResponse(results=[result])
