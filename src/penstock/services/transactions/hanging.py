"""A transaction that hangs, ended by whoever operates the cluster: Kafka's tool and ours, which are clients.

It is open in a partition, and no coordinator will ever end it: written by a broker that did not verify, or brought
along with files of another cluster. Readers of what is committed wait for it for ever.

In Kafka whoever may alter the cluster may send any marker, of either outcome and of any coordinator epoch: half a
transaction that is open somewhere else too can be committed that way, and a coordinator fenced out of its own
partitions. What brokers say to each other is for brokers alone (ADR 17). So a client may take back what hangs, and no
more than that:

- only abort: nobody but the coordinator knows whether something was committed;
- only what is open in this partition, of this producer, in its present epoch: the epoch is not raised;
- only under the epoch of the coordinator that was last heard of here (0 where there was none, as Kafka's tool writes
  it): the real one stays obeyed;
- only what hangs: no coordinator has the partition in a transaction of the producer. All of them are asked, and where
  one does not answer it is not known to hang.

The producer may go on while they are asked; then it is not the transaction that was asked about any more, and the
marker is not written. A coordinator that has not heard that it is one says too little, for as long as an election
takes.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from penstock.coordination.catching_up import CatchUp
from penstock.coordination.image import ClusterImage
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.internal_topics import TRANSACTIONS_TOPIC
from penstock.groups.transactions.layouts import TopicPartition
from penstock.replication.peer import PeerError
from penstock.replication.table import PartitionTable
from penstock.replication.transactions import MarkerToWrite, check_abort_by_client
from penstock.services.coordinator.pending_reply import PendingReply, arrival
from penstock.services.transactions.markers import MarkerWriter
from penstock.services.transactions.service import TransactionDescription, TransactionService
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from penstock.wire.kafka.generated.list_transactions import ListTransactionsRequest, ListTransactionsResponse

AskPeer = Callable[[int, str, int, int, Any, float], Awaitable[Any]]  # see `Peers.ask`

_VERSION = 0  # of both requests
_PURPOSE = "transactions"
_ANSWER_SECONDS = 10.0
_CATCH_UP_SECONDS = 5.0


class HangingTransactions:
    def __init__(
        self,
        node: int,
        image: ClusterImage,
        catch_up: CatchUp,
        table: PartitionTable,
        service: TransactionService,
        ask: AskPeer,
        writer: MarkerWriter,
    ) -> None:
        self._node = node
        self._image = image
        self._catch_up = catch_up
        self._table = table
        self._service = service
        self._ask = ask
        self._writer = writer

    async def abort(self, topic: str, partition: int, marker: MarkerToWrite) -> ErrorCode:
        """For a client. NONE once the marker is committed."""
        producer_id = marker.producer_id
        try:
            led = self._table.find(topic, partition)
            check_abort_by_client(led, marker)
            written = led.log.producers.last_written(producer_id)
            if await self._is_coordinated(TopicPartition(topic, partition), producer_id):
                return ErrorCode.INVALID_TXN_STATE
            if self._table.find(topic, partition) is not led or (
                led.log.producers.last_written(producer_id) is not written
            ):
                return ErrorCode.CONCURRENT_TRANSACTIONS
        except ApiError as error:
            return error.code
        return await self._writer.write(topic, partition, marker)

    async def _is_coordinated(self, place: TopicPartition, producer_id: int) -> bool:
        """Whether somebody will end it. ApiError where that is not known."""
        if not await self._catch_up(_CATCH_UP_SECONDS):
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        before = self._coordinators()
        for broker in sorted({leader for leader, _ in before}):
            for transactional_id in await self._ids_of(broker, producer_id):
                if place in await self._partitions_of(broker, transactional_id):
                    return True
        if self._coordinators() != before:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)  # one that was not asked may know it
        return False

    def _coordinators(self) -> list[tuple[int, int]]:
        """(broker, leader epoch) of each partition of the coordinators' topic; none while nobody wanted one."""
        topic = self._image.topics.get(TRANSACTIONS_TOPIC)
        partitions = () if topic is None else topic.partitions
        if any(state.leader not in self._image.brokers for state in partitions):
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return [(state.leader, state.leader_epoch) for state in partitions]

    async def _ids_of(self, broker: int, producer_id: int) -> list[str]:
        if broker == self._node:
            return [found.id for found in await self._service.list() if found.producer_id == producer_id]
        request = ListTransactionsRequest(producer_id_filters=[producer_id])
        answer: ListTransactionsResponse = await self._asked(broker, ApiKey.LIST_TRANSACTIONS, request)
        if answer.error_code:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return [state.transactional_id for state in answer.transaction_states]

    async def _partitions_of(self, broker: int, transactional_id: str) -> list[TopicPartition]:
        """Of a transaction that ends, those without a marker."""
        if broker == self._node:
            later = PendingReply(_as_it_is, _as_it_is)
            self._service.describe(transactional_id, later)
            found: ErrorCode | TransactionDescription = await arrival(later)
            if isinstance(found, ErrorCode):
                return _nothing_if_gone(found)
            return list(found.partitions)
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        answer: DescribeTransactionsResponse = await self._asked(
            broker, ApiKey.DESCRIBE_TRANSACTIONS, request
        )
        state = answer.transaction_states[0]
        if state.error_code:
            return _nothing_if_gone(state.error_code)
        return [TopicPartition(topic.topic, index) for topic in state.topics for index in topic.partitions]

    async def _asked(self, broker: int, key: ApiKey, request: Any) -> Any:
        try:
            return await self._ask(broker, _PURPOSE, key, _VERSION, request, _ANSWER_SECONDS)
        except PeerError as error:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE) from error


def _as_it_is(answer: Any) -> Any:
    return answer


def _nothing_if_gone(code: int) -> list[TopicPartition]:
    if code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return []  # it has expired since it was listed
