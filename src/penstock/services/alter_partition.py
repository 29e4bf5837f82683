"""AlterPartition, between the wire and the controller: what a leader asks for, and what it is told."""

from penstock.controller.controller import Controller
from penstock.controller.in_sync import WantedIsr
from penstock.coordination.nodes import PartitionState
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.wire.kafka.generated.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ResponsePartitionData,
    ResponseTopicData,
)


async def answer(controller: Controller, request: AlterPartitionRequest) -> AlterPartitionResponse:
    wanted = [
        WantedIsr(
            topic.topic_id,
            partition.partition_index,
            partition.leader_epoch,
            partition.partition_epoch,
            [(member.broker_id, member.broker_epoch) for member in partition.new_isr_with_epochs],
        )
        for topic in request.topics
        for partition in topic.partitions
    ]
    try:
        results = await controller.alter_isr(request.broker_id, request.broker_epoch, wanted)
    except ApiError as error:
        return AlterPartitionResponse(error_code=error.code)
    topics: dict[bytes, list[ResponsePartitionData]] = {}
    for partition, result in zip(wanted, results, strict=True):
        topics.setdefault(partition.topic_id, []).append(_answered(partition.partition, result))
    return AlterPartitionResponse(
        topics=[ResponseTopicData(topic_id=topic_id, partitions=each) for topic_id, each in topics.items()]
    )


def _answered(partition: int, result: PartitionState | ErrorCode) -> ResponsePartitionData:
    if isinstance(result, ErrorCode):
        return ResponsePartitionData(partition_index=partition, error_code=result)
    return ResponsePartitionData(
        partition_index=partition,
        leader_id=result.leader,
        leader_epoch=result.leader_epoch,
        isr=list(result.isr),
        partition_epoch=result.partition_epoch + 1,
    )
