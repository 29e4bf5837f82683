"""OffsetCommit (8), versions 2-10: where a group goes on reading.

v2-4 may ask for a retention of their own; v6 adds leader epochs, v7 static members, v8 is flexible, v9 names unknown
groups as such, v10 has topic ids in place of names. Partitions that do not exist are refused each for itself; the rest
is stored, and answered once it is committed.
"""

from penstock.coordination.image import ClusterImage
from penstock.core.error_codes import ErrorCode
from penstock.frontends.kafka.registry import Call, api
from penstock.groups.offsets.commit import Committer
from penstock.services.coordinator.pending_reply import PendingReply
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_TOPIC_IDS_SINCE = 10


@api(ApiKey.OFFSET_COMMIT, versions=(2, 10))
def handle(
    services: Services, request: OffsetCommitRequest, call: Call
) -> OffsetCommitResponse | PendingReply:
    answer = _Answer(services.image, request, by_id=call.version >= _TOPIC_IDS_SINCE)
    if not answer.entries:
        return answer.response
    later = PendingReply(_refusal, answer.render)
    by = Committer(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        call.version,
    )
    services.group_offsets.commit(by, answer.entries, request.retention_time_ms, later)
    return later


def _refusal(code: ErrorCode) -> ErrorCode:
    return code


class _Answer:
    """The response in the order of the request, with gaps for what is still to be committed."""

    __slots__ = ("_open", "entries", "response")

    def __init__(self, image: ClusterImage, request: OffsetCommitRequest, *, by_id: bool) -> None:
        self.entries: list[
            tuple[str, bytes, int, int, int, str | None]
        ] = []  # see `GroupOffsetService.commit`
        self._open: list[OffsetCommitResponsePartition] = []  # of each entry, in order
        topics = []
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for wanted in request.topics:
            topic = image.topics_by_id.get(wanted.topic_id) if by_id else image.topics.get(wanted.name)
            partitions = []
            count = len(topic.partitions) if topic is not None else 0
            for commit in wanted.partitions:
                number = commit.partition_index
                partition = OffsetCommitResponsePartition(partition_index=number)
                partitions.append(partition)
                if topic is None:
                    partition.error_code = unknown
                elif not 0 <= number < count:
                    partition.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                else:
                    self._open.append(partition)
                    self.entries.append(
                        (
                            topic.name,
                            topic.id,
                            number,
                            commit.committed_offset,
                            commit.committed_leader_epoch,
                            commit.committed_metadata,
                        )
                    )
            topics.append(
                OffsetCommitResponseTopic(name=wanted.name, topic_id=wanted.topic_id, partitions=partitions)
            )
        self.response = OffsetCommitResponse(topics=topics)

    def render(self, outcome: ErrorCode | list[ErrorCode]) -> OffsetCommitResponse:
        if isinstance(outcome, ErrorCode):
            for partition in self._open:
                partition.error_code = outcome
        else:
            for partition, code in zip(self._open, outcome, strict=True):
                partition.error_code = code
        return self.response
