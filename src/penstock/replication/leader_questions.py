"""What a follower asks its leader besides records: where epochs ended, what producers had done by an offset, and which
tombstones went.

The second with FetchSnapshot, when a log begins anew where its leader's begins: what producers wrote before that is in
no log any more, and whoever is elected next must know a repeat of it.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from penstock.core.error_codes import ErrorCode
from penstock.replication.partition import Partition
from penstock.replication.peer import PeerError
from penstock.storage.producer_snapshot import decode_producers
from penstock.storage.producers import ProducerState
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RequestPartitionSnapshot,
    RequestTopicSnapshot,
    SnapshotId,
)
from penstock.wire.kafka.generated.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from penstock.wire.peers.keys import PeerApi
from penstock.wire.peers.tombstones import TombstonesRequest, TombstonesResponse

_END_OF_EPOCH_VERSION = 4
_SNAPSHOT_VERSION = 0
_TOMBSTONES_VERSION = 0

# (API, version, request) -> answer; PeerError when there is none.
Ask = Callable[[int, int, Any], Awaitable[Any]]


class Questions(Protocol):
    """Of one partition, under one leader epoch. PeerError: the leader does not tell."""

    @property
    def leader_epoch(self) -> int: ...
    async def end_of(self, epoch: int) -> tuple[int, int]: ...
    async def producers_below(self, offset: int) -> ProducerState: ...
    async def tombstones(self) -> int: ...


class LeaderQuestions:
    def __init__(self, ask: Ask, node: int, partition: Partition, leader_epoch: int) -> None:
        self._ask = ask
        self._node = node
        self._partition = partition
        self.leader_epoch = leader_epoch

    async def end_of(self, epoch: int) -> tuple[int, int]:
        """The leader's largest epoch at or below `epoch`, and where that ended."""
        wanted = OffsetForLeaderPartition(
            partition=self._partition.index, current_leader_epoch=self.leader_epoch, leader_epoch=epoch
        )
        request = OffsetForLeaderEpochRequest(
            replica_id=self._node,
            topics=[OffsetForLeaderTopic(topic=self._partition.topic, partitions=[wanted])],
        )
        response: OffsetForLeaderEpochResponse = await self._ask(
            ApiKey.OFFSET_FOR_LEADER_EPOCH, _END_OF_EPOCH_VERSION, request
        )
        found = _told(response, f"where epoch {epoch} ended")
        return found.leader_epoch, found.end_offset

    async def producers_below(self, offset: int) -> ProducerState:
        """What they had done by there, in pieces: what changes meanwhile lies behind it."""
        known, next_id = ProducerState(), 0
        while next_id >= 0:
            wanted = RequestPartitionSnapshot(
                partition=self._partition.index,
                current_leader_epoch=self.leader_epoch,
                snapshot_id=SnapshotId(end_offset=offset, epoch=self.leader_epoch),
                position=next_id,
            )
            request = FetchSnapshotRequest(
                replica_id=self._node,
                topics=[RequestTopicSnapshot(name=self._partition.topic, partitions=[wanted])],
            )
            response: FetchSnapshotResponse = await self._ask(
                ApiKey.FETCH_SNAPSHOT, _SNAPSHOT_VERSION, request
            )
            found = _told(response, f"what producers wrote below {offset}")
            known.add(decode_producers(bytes(found.unaligned_records)))
            next_id = found.position
        return known

    async def tombstones(self) -> int:
        """Below which offset its log may lack some that once were there."""
        request = TombstonesRequest(self._partition.topic_id, self._partition.index, self.leader_epoch)
        response: TombstonesResponse = await self._ask(PeerApi.TOMBSTONES, _TOMBSTONES_VERSION, request)
        if response.error_code != ErrorCode.NONE:
            raise PeerError("the leader does not tell which tombstones went")
        return response.offset


def _told(response: Any, what: str) -> Any:
    """Of the one partition that was asked about."""
    found = [partition for topic in response.topics for partition in topic.partitions]
    if len(found) != 1 or found[0].error_code != ErrorCode.NONE:
        raise PeerError(f"the leader does not tell {what}")
    return found[0]
