"""TxnOffsetCommit (28), versions 0-5: offsets that count once the producer's transaction is committed.

v2 adds leader epochs; v3 is flexible and may name a member, which must be in the group's generation; v4 knows of
transactions that can only be aborted; in v5, the second protocol of transactions, offsets become part of the
transaction by being sent. Served only where `penstock.transactions.enable` is set. Partitions that do not exist are
refused each for itself.
"""

from penstock.coordination.image import ClusterImage
from penstock.core.error_codes import ErrorCode
from penstock.frontends.kafka.registry import Call, api
from penstock.groups.offsets.commit import Committer
from penstock.services.coordinator.group_offsets import Entry
from penstock.services.coordinator.transactional_offsets import Outcome, TransactionalProducer
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

# Clients of earlier versions take it for the end of the world.
_LOADING_SINCE = 2


@api(ApiKey.TXN_OFFSET_COMMIT, versions=(0, 5))
async def handle(services: Services, request: TxnOffsetCommitRequest, call: Call) -> TxnOffsetCommitResponse:
    answer = _Answer(services.image, request)
    if not answer.entries():
        return answer.response
    producer = TransactionalProducer(request.transactional_id, request.producer_id, request.producer_epoch)
    by = Committer(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id, call.version
    )
    outcome = await services.transactional_offsets.commit(producer, by, answer.entries)
    if outcome is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and call.version < _LOADING_SINCE:
        outcome = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return answer.render(outcome)


class _Answer:
    """The response in the order of the request, with gaps for what is still to be committed."""

    def __init__(self, image: ClusterImage, request: TxnOffsetCommitRequest) -> None:
        self._image = image
        self._request = request
        self._open: list[TxnOffsetCommitResponsePartition] = []  # of each entry, in order
        self.response = TxnOffsetCommitResponse()

    def entries(self) -> list[Entry]:
        """As topics are now."""
        entries: list[Entry] = []
        self._open, self.response.topics = [], []
        for wanted in self._request.topics:
            topic = self._image.topics.get(wanted.name)
            count = 0 if topic is None else len(topic.partitions)
            partitions = []
            for commit in wanted.partitions:
                number = commit.partition_index
                partition = TxnOffsetCommitResponsePartition(partition_index=number)
                partitions.append(partition)
                if topic is None or not 0 <= number < count:
                    partition.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    continue
                self._open.append(partition)
                offset, epoch = commit.committed_offset, commit.committed_leader_epoch
                entries.append((topic.name, topic.id, number, offset, epoch, commit.committed_metadata))
            self.response.topics.append(TxnOffsetCommitResponseTopic(name=wanted.name, partitions=partitions))
        return entries

    def render(self, outcome: Outcome) -> TxnOffsetCommitResponse:
        codes = [outcome] * len(self._open) if isinstance(outcome, ErrorCode) else outcome
        for partition, code in zip(self._open, codes, strict=True):
            partition.error_code = code
        return self.response
