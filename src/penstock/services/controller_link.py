"""The way to the controller, wherever it is: here, or on the broker that the metadata names.

Requests that only the controller may carry out are forwarded as they came, so that clients need not know who it is.
"""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.coordination.image import ClusterImage
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.replication.peer import CLIENT_ID_PREFIX, Peer, PeerError
from penstock.services import alter_partition
from penstock.services.offsets import Spec
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.alter_partition import AlterPartitionRequest, AlterPartitionResponse
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

if TYPE_CHECKING:
    from penstock.controller.controller import Controller

_ALTER_PARTITION_VERSION = 3
_LOG_END_VERSION = 4
_DISK_VERSION = 4
_LIST_OFFSETS_VERSION = 6
# In place of an epoch: the last one there is, whoever leads.
LAST_EPOCH = 0x7FFFFFFF
_ANSWER_SECONDS = 5.0
_RETRY_SECONDS = 0.1


class ControllerLink:
    def __init__(self, node: int, image: ClusterImage) -> None:
        self._node = node
        self._image = image
        self.controller: Controller | None = None
        self._peers: dict[tuple[int, str], Peer] = {}

    @property
    def is_here(self) -> bool:
        return self.controller is not None and self.controller.is_active

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        if self.controller is not None and self.controller.is_active:
            return await alter_partition.answer(self.controller, request)
        answer = await self._ask(ApiKey.ALTER_PARTITION, _ALTER_PARTITION_VERSION, request, _ANSWER_SECONDS)
        assert isinstance(answer, AlterPartitionResponse)
        return answer

    async def forward(self, api_key: int, version: int, request: Any, timeout_s: float) -> Any:
        """A client's request, carried out by the controller; ApiError when there is none for so long."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while True:
            left = deadline - asyncio.get_running_loop().time()
            try:
                return await self._ask(api_key, version, request, max(left, 0.001))
            except PeerError as error:
                if left <= 0:
                    raise ApiError(ErrorCode.NOT_CONTROLLER, str(error)) from error
            await asyncio.sleep(_RETRY_SECONDS)

    async def _ask(self, api_key: int, version: int, request: Any, timeout_s: float) -> Any:
        peer = self.peer(self._image.controller, "controller")
        if peer is None:
            raise PeerError("there is no controller now")
        return await peer.ask(api_key, version, request, timeout_s)

    def peer(self, broker: int, purpose: str) -> Peer | None:
        """A connection for each purpose: what may take long must not hold up the rest."""
        registered = self._image.brokers.get(broker)
        if registered is None or broker == self._node:
            return None
        key, address = (broker, purpose), (registered.host, registered.port)
        peer = self._peers.get(key)
        if peer is None or peer.address != address:
            if peer is not None:
                peer.close()
            peer = self._peers[key] = Peer(*address, client_id=f"{CLIENT_ID_PREFIX}{self._node}-{purpose}")
        return peer

    async def ask_log_ends(
        self, broker: int, wanted: list[tuple[str, bytes, int]]
    ) -> dict[tuple[bytes, int], tuple[int, int]]:
        """(last epoch, log end) of another broker's replicas; what it cannot tell is left out."""
        peer = self.peer(broker, "log-ends")
        if peer is None:
            raise PeerError(f"broker {broker} is not there")
        topics: dict[str, list[OffsetForLeaderPartition]] = {}
        ids: dict[str, bytes] = {}
        for name, topic_id, index in wanted:
            ids[name] = topic_id
            topics.setdefault(name, []).append(
                OffsetForLeaderPartition(partition=index, leader_epoch=LAST_EPOCH)
            )
        request = OffsetForLeaderEpochRequest(
            replica_id=self._node,
            topics=[OffsetForLeaderTopic(topic=name, partitions=each) for name, each in topics.items()],
        )
        response = await peer.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, _LOG_END_VERSION, request, _ANSWER_SECONDS)
        return {
            (ids[topic.topic], one.partition): (one.leader_epoch, one.end_offset)
            for topic in response.topics
            for one in topic.partitions
            if one.error_code == ErrorCode.NONE and topic.topic in ids
        }

    async def ask_retiring(
        self, broker: int, topic: str, epochs: Mapping[int, int], question: int
    ) -> dict[int, tuple[int, int]]:
        """(offset, time) of those partitions whose leader has an answer; see `controller.retirer`."""
        return await self._ask_offsets(broker, "retiring", topic, epochs, question)

    async def ask_readable_ends(self, broker: int, topic: str, epochs: Mapping[int, int]) -> dict[int, int]:
        """Up to where readers can see those partitions whose leader has an answer."""
        told = await self._ask_offsets(broker, "archive", topic, epochs, Spec.LATEST)
        return {index: offset for index, (offset, _) in told.items()}

    async def _ask_offsets(
        self, broker: int, purpose: str, topic: str, epochs: Mapping[int, int], question: int
    ) -> dict[int, tuple[int, int]]:
        peer = self.peer(broker, purpose)
        if peer is None:
            raise PeerError(f"broker {broker} is not there")
        wanted = [
            ListOffsetsPartition(partition_index=index, current_leader_epoch=epoch, timestamp=question)
            for index, epoch in epochs.items()
        ]
        request = ListOffsetsRequest(
            replica_id=self._node, topics=[ListOffsetsTopic(name=topic, partitions=wanted)]
        )
        response = await peer.ask(ApiKey.LIST_OFFSETS, _LIST_OFFSETS_VERSION, request, _ANSWER_SECONDS)
        return {
            one.partition_index: (one.offset, one.timestamp)
            for one in response.topics[0].partitions
            if one.error_code == ErrorCode.NONE
        }

    async def ask_disk(self, broker: int) -> tuple[int, int]:
        """(total, usable) bytes of another broker's disk."""
        peer = self.peer(broker, "disk")
        if peer is None:
            raise PeerError(f"broker {broker} is not there")
        request = DescribeLogDirsRequest(topics=[])
        response = await peer.ask(ApiKey.DESCRIBE_LOG_DIRS, _DISK_VERSION, request, _ANSWER_SECONDS)
        result = response.results[0] if response.results else None
        if result is None or result.error_code != ErrorCode.NONE:
            raise PeerError(f"the disk of broker {broker} is out of service")
        return result.total_bytes, result.usable_bytes

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()
