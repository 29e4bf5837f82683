"""Asks the coordinator of a transactional id, here or at another broker, for leaders of partitions."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from penstock.coordination.image import ClusterImage
from penstock.core.error_codes import ErrorCode
from penstock.core.internal_topics import TRANSACTIONS_TOPIC
from penstock.groups.partitioning import partition_of
from penstock.groups.transactions.layouts import TopicPartition
from penstock.groups.transactions.requests import AddPartitions
from penstock.replication.peer import PeerError
from penstock.services.coordinator.pending_reply import PendingReply, arrival
from penstock.services.transactions.service import TransactionService
from penstock.services.transactions.verifying import Place
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

_VERSION = 5
_ANSWER_SECONDS = 10.0
# Leaders add for clients of the second kind of transactions; those of the first have done so themselves.
_SECOND = 2

Told = dict[Place, ErrorCode]
Ask = Callable[[int, str, int, int, Any, float], Awaitable[Any]]  # see `Peers.ask`


class CoordinatorVerifier:
    def __init__(self, node: int, image: ClusterImage, service: TransactionService, ask: Ask) -> None:
        self._node = node
        self._image = image
        self._service = service
        self._ask_peer = ask

    async def verify(
        self, transactional_id: str, producer_id: int, epoch: int, places: Iterable[Place], *, adds: bool
    ) -> Told:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        told = await self._verify(transactional_id, producer_id, epoch, list(places), adds=adds)
        self._service.verifications.observe(loop.time() - begun)
        return told

    async def _verify(
        self, transactional_id: str, producer_id: int, epoch: int, wanted: list[Place], *, adds: bool
    ) -> Told:
        topic = self._image.topics.get(TRANSACTIONS_TOPIC)
        if topic is None:
            return dict.fromkeys(wanted, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        leader = topic.partitions[partition_of(transactional_id, len(topic.partitions))].leader
        if leader != self._node:
            return await self._ask(leader, transactional_id, producer_id, epoch, wanted, adds=adds)
        partitions = frozenset(TopicPartition(*place) for place in wanted)
        request = AddPartitions(producer_id, epoch, partitions, _SECOND if adds else 0)
        later = PendingReply(lambda code: dict.fromkeys(wanted, code), dict)
        self._service.add_or_verify(transactional_id, request, later, verify_only=not adds)
        told: Told = await arrival(later)
        return told

    async def _ask(
        self,
        leader: int,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        wanted: list[Place],
        *,
        adds: bool,
    ) -> Told:
        topics: dict[str, list[int]] = {}
        for topic, partition in wanted:
            topics.setdefault(topic, []).append(partition)
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            verify_only=not adds,
            topics=[
                AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in topics.items()
            ],
        )
        request = AddPartitionsToTxnRequest(transactions=[transaction])
        try:
            response: AddPartitionsToTxnResponse = await self._ask_peer(
                leader, "transactions", ApiKey.ADD_PARTITIONS_TO_TXN, _VERSION, request, _ANSWER_SECONDS
            )
        except PeerError:
            return dict.fromkeys(wanted, ErrorCode.NETWORK_EXCEPTION)
        if response.error_code:
            return dict.fromkeys(wanted, ErrorCode(response.error_code))
        return {
            (topic.name, partition.partition_index): ErrorCode(partition.partition_error_code)
            for result in response.results_by_transaction
            for topic in result.topic_results
            for partition in topic.results_by_partition
        }
