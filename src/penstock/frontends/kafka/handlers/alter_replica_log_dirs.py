"""AlterReplicaLogDirs (34), versions 1-2: which directory of this broker a replica is to live in.

v2 is flexible. A broker has one data directory, so there is nothing to move: a replica that is here already lives where
it should, and any other path is none of ours. A path is compared as it is written, as in Kafka: the one to name is that
of DescribeLogDirs. Where a partition is named twice, the last word counts.
"""

from penstock.core.error_codes import ErrorCode
from penstock.frontends.kafka.registry import Call, api
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


@api(ApiKey.ALTER_REPLICA_LOG_DIRS, versions=(1, 2))
def handle(
    services: Services, request: AlterReplicaLogDirsRequest, call: Call
) -> AlterReplicaLogDirsResponse:
    wanted: dict[str, dict[int, str]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for partition in topic.partitions:
                wanted.setdefault(topic.name, {})[partition] = directory.path
    here = services.disk_usage.path
    is_offline = services.disk_usage.is_offline  # looks at every partition there is: once
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(
                        partition_index=index,
                        error_code=(
                            _refusal(services, name, index, is_offline=is_offline)
                            if path == here
                            else ErrorCode.LOG_DIR_NOT_FOUND
                        ),
                    )
                    for index, path in partitions.items()
                ],
            )
            for name, partitions in wanted.items()
        ]
    )


def _refusal(services: Services, topic: str, index: int, *, is_offline: bool) -> ErrorCode:
    if is_offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    hosted = services.table.by_name.get(topic.encode())
    if hosted is not None and index in hosted.partitions:
        return ErrorCode.NONE
    known = services.image.topics.get(topic)
    if known is not None and 0 <= index < len(known.partitions):
        return ErrorCode.REPLICA_NOT_AVAILABLE  # it has replicas, on other brokers
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
