"""What a controller, or a leader, asks of any other broker."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.controller.election import ReplicaEnd
from penstock.core.error_codes import ErrorCode
from penstock.core.limits import PEER_ENTRIES_MAX
from penstock.replication.peer import PeerError
from penstock.services.list_offsets import Spec
from penstock.services.peers.peers import Peers
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.describe_log_dirs import DescribeLogDirsRequest
from penstock.wire.kafka.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.wire.kafka.generated.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from penstock.wire.peers.keys import PeerApi
from penstock.wire.peers.retirement import Question, RetirementAnswer, RetirementRequest

_LOG_END_VERSION = 4
_RETIREMENT_VERSION = 0
_DISK_VERSION = 4
_LIST_OFFSETS_VERSION = 6
# In place of an epoch: the last one there is, whoever leads.
LAST_EPOCH = 0x7FFFFFFF
# In an answer to that, an incomplete log has its epoch below -1: from -2 down for -1 up. A controller of an earlier
# version, which does not know that, takes it for less than all others have.
_INCOMPLETE_FROM = -2
_ANSWER_SECONDS = 5.0


class AskedEnd(NamedTuple):
    """The end of which log, and the leader epoch under which it is asked: who has not heard of that does not tell."""

    topic: str
    topic_id: bytes
    partition: int
    leader_epoch: int


class BrokerClient:
    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def ask_log_ends(self, broker: int, wanted: list[AskedEnd]) -> dict[tuple[bytes, int], ReplicaEnd]:
        """The ends of another broker's replicas; what it cannot tell is left out."""
        ends: dict[tuple[bytes, int], ReplicaEnd] = {}
        for at in range(0, len(wanted), PEER_ENTRIES_MAX):
            ends |= await self._ask_log_ends(broker, wanted[at : at + PEER_ENTRIES_MAX])
        return ends

    async def _ask_log_ends(self, broker: int, wanted: list[AskedEnd]) -> dict[tuple[bytes, int], ReplicaEnd]:
        topics: dict[str, list[OffsetForLeaderPartition]] = {}
        ids: dict[str, bytes] = {}
        for name, topic_id, index, epoch in wanted:
            ids[name] = topic_id
            topics.setdefault(name, []).append(
                OffsetForLeaderPartition(partition=index, current_leader_epoch=epoch, leader_epoch=LAST_EPOCH)
            )
        request = OffsetForLeaderEpochRequest(
            replica_id=self._peers.node,
            topics=[OffsetForLeaderTopic(topic=name, partitions=each) for name, each in topics.items()],
        )
        response = await self._ask(
            broker, "log-ends", ApiKey.OFFSET_FOR_LEADER_EPOCH, _LOG_END_VERSION, request
        )
        return {
            (ids[topic.topic], partition.partition): told_end(partition.leader_epoch, partition.end_offset)
            for topic in response.topics
            for partition in topic.partitions
            if partition.error_code == ErrorCode.NONE and topic.topic in ids
        }

    async def ask_retiring(
        self, broker: int, topic_id: bytes, epochs: Mapping[int, int], question: Question
    ) -> dict[int, RetirementAnswer]:
        """Of those partitions whose leader has an answer."""
        wanted = list(epochs.items())
        told: dict[int, RetirementAnswer] = {}
        for at in range(0, len(wanted), PEER_ENTRIES_MAX):
            request = RetirementRequest(question, topic_id, wanted[at : at + PEER_ENTRIES_MAX])
            response = await self._ask(broker, "retiring", PeerApi.RETIREMENT, _RETIREMENT_VERSION, request)
            if response.error_code != ErrorCode.NONE:
                raise PeerError(f"broker {broker} refuses: {ErrorCode(response.error_code).name}")
            told |= {index: answer for index, _, answer in response.partitions if answer is not None}
        return told

    async def ask_readable_ends(self, broker: int, topic: str, epochs: Mapping[int, int]) -> dict[int, int]:
        """Up to where readers can see those partitions whose leader has an answer."""
        wanted = [
            ListOffsetsPartition(partition_index=index, current_leader_epoch=epoch, timestamp=Spec.LATEST)
            for index, epoch in epochs.items()
        ]
        told: dict[int, int] = {}
        for at in range(0, len(wanted), PEER_ENTRIES_MAX):
            some = ListOffsetsTopic(name=topic, partitions=wanted[at : at + PEER_ENTRIES_MAX])
            request = ListOffsetsRequest(replica_id=self._peers.node, topics=[some])
            response = await self._ask(broker, "archive", ApiKey.LIST_OFFSETS, _LIST_OFFSETS_VERSION, request)
            for partition in response.topics[0].partitions:
                if partition.error_code == ErrorCode.NONE:
                    told[partition.partition_index] = partition.offset
        return told

    async def ask_disk(self, broker: int) -> tuple[int, int]:
        """(total, usable) bytes of another broker's disk."""
        request = DescribeLogDirsRequest(topics=[])
        response = await self._ask(broker, "disk", ApiKey.DESCRIBE_LOG_DIRS, _DISK_VERSION, request)
        result = response.results[0] if response.results else None
        if result is None or result.error_code != ErrorCode.NONE:
            raise PeerError(f"the disk of broker {broker} is out of service")
        return result.total_bytes, result.usable_bytes

    async def _ask(self, broker: int, purpose: str, api_key: int, version: int, request: Any) -> Any:
        return await self._peers.ask(broker, purpose, api_key, version, request, _ANSWER_SECONDS)


def end_to_tell(end: ReplicaEnd) -> tuple[int, int]:
    """(leader epoch, end offset), as they are sent."""
    epoch = end.epoch if end.is_complete else _INCOMPLETE_FROM - (end.epoch + 1)
    return epoch, end.offset


def told_end(epoch: int, offset: int) -> ReplicaEnd:
    if epoch > _INCOMPLETE_FROM:
        return ReplicaEnd(epoch, offset)
    return ReplicaEnd(_INCOMPLETE_FROM - epoch - 1, offset, is_complete=False)
