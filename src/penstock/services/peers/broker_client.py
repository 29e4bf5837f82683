"""What a controller, or a leader, asks of any other broker."""

from collections.abc import Mapping
from typing import Any

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
from penstock.wire.peers.keys import PeerApi
from penstock.wire.peers.log_ends import LogEndsRequest, WantedEnd
from penstock.wire.peers.retirement import Question, RetirementAnswer, RetirementRequest

_LOG_ENDS_VERSION = 0
_RETIREMENT_VERSION = 0
_DISK_VERSION = 4
_LIST_OFFSETS_VERSION = 6
_ANSWER_SECONDS = 5.0


class BrokerClient:
    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def ask_log_ends(self, broker: int, wanted: list[WantedEnd]) -> dict[tuple[bytes, int], ReplicaEnd]:
        """The ends of another broker's replicas; what it cannot tell is left out."""
        ends: dict[tuple[bytes, int], ReplicaEnd] = {}
        for at in range(0, len(wanted), PEER_ENTRIES_MAX):
            asked = wanted[at : at + PEER_ENTRIES_MAX]
            response = await self._ask(
                broker, "log-ends", PeerApi.LOG_ENDS, _LOG_ENDS_VERSION, LogEndsRequest(asked)
            )
            if len(response.told) != len(asked):
                raise PeerError(
                    f"broker {broker} tells {len(response.told)} log ends, asked for {len(asked)}"
                )
            for place, told in zip(asked, response.told, strict=True):
                if told.error_code == ErrorCode.NONE:
                    end = ReplicaEnd(told.last_epoch, told.end_offset, told.is_complete)
                    ends[place.topic_id, place.partition] = end
        return ends

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
