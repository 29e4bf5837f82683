"""OffsetDelete (47), version 0: forget what a group committed for partitions that none of its members reads.

Partitions that do not exist are refused each for itself, as are those of topics a member subscribes to.
"""

from penstock.core.error_codes import ErrorCode
from penstock.frontends.kafka.registry import Call, api
from penstock.services.coordinator.pending_reply import PendingReply
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


@api(ApiKey.OFFSET_DELETE, versions=(0, 0))
def handle(services: Services, request: OffsetDeleteRequest, call: Call) -> PendingReply:
    del call
    image = services.image
    wanted: list[tuple[str, int]] = []
    still_open: list[OffsetDeleteResponsePartition] = []
    answers: dict[str, list[OffsetDeleteResponsePartition]] = {}
    for topic in request.topics:
        known = image.topics.get(topic.name)
        count = 0 if known is None else len(known.partitions)
        for partition in topic.partitions:
            answer = OffsetDeleteResponsePartition(partition_index=partition.partition_index)
            if 0 <= partition.partition_index < count:
                wanted.append((topic.name, partition.partition_index))
                still_open.append(answer)
            else:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answers.setdefault(topic.name, []).append(answer)
    response = OffsetDeleteResponse(
        topics=[OffsetDeleteResponseTopic(name=name, partitions=parts) for name, parts in answers.items()]
    )

    def render(outcome: ErrorCode | list[ErrorCode]) -> OffsetDeleteResponse:
        if isinstance(outcome, ErrorCode):
            return OffsetDeleteResponse(error_code=outcome)
        for answer, code in zip(still_open, outcome, strict=True):
            answer.error_code = code
        return response

    later = PendingReply(lambda code: code, render)
    services.group_offsets.delete(request.group_id, wanted, later)
    return later
