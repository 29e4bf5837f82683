"""What hangs is aborted for a client, and nothing else: not what somebody will end, nor more than it asked for."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.unit.services.transactions.serving import P0, P1, Serving, a_machine, serving
from tests.unit.storage.transactions import marker, transactional

from penstock.coordination.image import ClusterImage, Topic
from penstock.coordination.nodes import PartitionState
from penstock.coordination.registration import BrokerRegistration
from penstock.core.error_codes import ErrorCode
from penstock.replication.limits import Reader
from penstock.replication.peer import PeerError
from penstock.services.transactions.marker_writer import LeaderMarkerWriter
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.describe_transactions import (
    DescribeTransactionsResponse,
    TopicData,
)
from penstock.wire.kafka.generated.describe_transactions import TransactionState as Described
from penstock.wire.kafka.generated.list_transactions import ListTransactionsResponse, TransactionState
from penstock.wire.kafka.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

NONE = ErrorCode.NONE
NOT_AVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE
STRANGER, OTHER = 77, 2


@asynccontextmanager
async def a_broker() -> AsyncIterator[Serving]:
    """With its own writer of markers."""
    async with serving(a_machine()) as serves:
        services = serves.asked.services
        assert isinstance(services.marker_writer, LeaderMarkerWriter)
        services.marker_sender.writer = services.marker_writer
        yield serves


def write(serves: Serving, producer_id: int, epoch: int = 0, sequence: int = 0) -> int:
    return serves.asked.append("orders", transactional((producer_id, epoch, sequence)))


def stable(serves: Serving) -> int:
    return serves.asked.partition("orders").limits.for_reader(Reader.READ_COMMITTED).offset


async def ask(
    serves: Serving,
    producer_id: int = STRANGER,
    *,
    epoch: int = 0,
    coordinator: int = 0,
    committed: bool = False,
    version: int = 0,
    broker: int = -1,
) -> ErrorCode:
    asked = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=committed,
        topics=[WritableTxnMarkerTopic(name="orders", partition_indexes=[0])],
        coordinator_epoch=coordinator,
        transaction_version=version,
    )
    request = WriteTxnMarkersRequest(markers=[asked])
    answer = await serves.asked.ask(ApiKey.WRITE_TXN_MARKERS, request, 2, broker=broker)
    return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)


async def test_what_no_coordinator_knows_is_aborted() -> None:
    async with a_broker() as serves:
        write(serves, STRANGER)
        assert stable(serves) == 0
        assert await ask(serves) is NONE
        assert stable(serves) == 2
        log = serves.asked.partition("orders").log
        assert log.producers.epoch_of(STRANGER) == 0


async def test_what_its_coordinator_will_end_is_left_to_it() -> None:
    """Half of it aborted here, and the other half committed there: nobody may do that."""
    async with a_broker() as serves:
        producer_id, epoch = await serves.begun(P0, P1)
        write(serves, producer_id)
        assert await ask(serves, producer_id) is ErrorCode.INVALID_TXN_STATE
        assert stable(serves) == 0
        assert (await serves.end(producer_id, epoch)).error is NONE


async def test_what_its_producer_left_behind_hangs_although_its_coordinator_knows_the_producer() -> None:
    async with a_broker() as serves:
        producer_id, _ = await serves.begun(P1)
        write(serves, producer_id)
        assert await ask(serves, producer_id) is NONE
        assert stable(serves) == 2


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"committed": True}, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ({"epoch": 4}, ErrorCode.INVALID_PRODUCER_EPOCH),
        ({"epoch": 6}, ErrorCode.INVALID_PRODUCER_EPOCH),
        ({"coordinator": 2}, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        ({"coordinator": 2**31 - 1}, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        ({"producer_id": 5}, ErrorCode.INVALID_PRODUCER_EPOCH),
        ({}, NONE),
    ],
)
async def test_a_client_may_end_just_what_is_open(fields: dict[str, Any], code: ErrorCode) -> None:
    async with a_broker() as serves:
        write(serves, STRANGER, 4)
        serves.asked.append("orders", marker(STRANGER, 4, committed=False, coordinator=3))
        write(serves, STRANGER, 5)
        assert await ask(serves, **{"epoch": 5, "coordinator": 3, **fields}) is code
        assert stable(serves) == (4 if code is NONE else 2)


async def test_where_nothing_is_open_there_is_nothing_to_abort() -> None:
    async with a_broker() as serves:
        write(serves, STRANGER)
        assert await ask(serves) is NONE
        assert await ask(serves) is ErrorCode.INVALID_TXN_STATE


async def test_a_broker_is_obeyed() -> None:
    async with a_broker() as serves:
        write(serves, STRANGER)
        assert await ask(serves, committed=True, coordinator=9, broker=OTHER) is NONE
        assert stable(serves) == 2


class Elsewhere:
    """Coordinators are at another broker, which says what it is told to."""

    def __init__(self, serves: Serving, answer: Callable[[ApiKey], Any]) -> None:
        self.image, self.answer = ClusterImage(), answer
        for broker in (1, OTHER):
            self.image.brokers[broker] = BrokerRegistration(broker, f"{broker}", "127.0.0.1", 9)
        self.lead(OTHER, 0)
        self.caught_up = True
        self.asked: list[Any] = []
        hanging: Any = serves.asked.services.hanging
        hanging._image, hanging._ask, hanging._catch_up = self.image, self.ask, self.catch_up

    def lead(self, leader: int, epoch: int) -> None:
        state = PartitionState(replicas=(1, OTHER), isr=(1, OTHER), leader=leader, leader_epoch=epoch)
        self.image.topics["__transaction_state"] = Topic("__transaction_state", bytes(16), (state,), {}, 0)

    async def catch_up(self, _seconds: float) -> bool:
        return self.caught_up

    async def ask(self, broker: int, purpose: str, key: ApiKey, version: int, request: Any, _s: float) -> Any:
        assert (broker, purpose, version) == (OTHER, "transactions", 0)
        self.asked.append(request)
        await asyncio.sleep(0)
        answer = self.answer(key)
        if isinstance(answer, Exception):
            raise answer
        return answer


def knows(partition: int | None) -> Callable[[ApiKey], Any]:
    """A transactional id of the producer, with that partition in its transaction."""

    def answer(key: ApiKey) -> Any:
        if key is ApiKey.LIST_TRANSACTIONS:
            found = TransactionState(transactional_id="tx", producer_id=STRANGER, transaction_state="Ongoing")
            return ListTransactionsResponse(
                unknown_state_filters=[], transaction_states=[] if partition is None else [found]
            )
        topics = [TopicData(topic="orders", partitions=[partition])]
        return DescribeTransactionsResponse(
            transaction_states=[Described(transactional_id="tx", topics=topics)]
        )

    return answer


def listed_with(code: ErrorCode) -> Callable[[ApiKey], Any]:
    return lambda _key: ListTransactionsResponse(
        error_code=code, unknown_state_filters=[], transaction_states=[]
    )


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (knows(None), NONE),
        (knows(1), NONE),
        (knows(0), ErrorCode.INVALID_TXN_STATE),
        (listed_with(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), NOT_AVAILABLE),
        (lambda _key: PeerError("gone"), NOT_AVAILABLE),
    ],
)
async def test_coordinators_elsewhere_are_asked(answer: Callable[[ApiKey], Any], code: ErrorCode) -> None:
    async with a_broker() as serves:
        write(serves, STRANGER)
        elsewhere = Elsewhere(serves, answer)
        assert await ask(serves) is code
        assert elsewhere.asked[0].producer_id_filters == [STRANGER]
        assert stable(serves) == (2 if code is NONE else 0)


async def test_what_is_not_known_to_hang_is_left_alone() -> None:
    async with a_broker() as serves:
        write(serves, STRANGER)
        elsewhere = Elsewhere(serves, knows(None))
        elsewhere.caught_up = False
        assert await ask(serves) is NOT_AVAILABLE
        elsewhere.caught_up = True
        elsewhere.lead(-1, 1)
        assert await ask(serves) is NOT_AVAILABLE
        assert elsewhere.asked == []
        elsewhere.lead(OTHER, 2)

        def moved(key: ApiKey) -> Any:
            elsewhere.lead(1, 3)
            return knows(None)(key)

        elsewhere.answer = moved
        assert await ask(serves) is NOT_AVAILABLE
        assert stable(serves) == 0


async def test_a_producer_that_goes_on_meanwhile_is_not_cut_off() -> None:
    """Its coordinator may have heard of the partition by then: that is no transaction that hangs."""
    async with a_broker() as serves:
        write(serves, STRANGER)

        def goes_on(key: ApiKey) -> Any:
            write(serves, STRANGER, sequence=1)
            return knows(None)(key)

        Elsewhere(serves, goes_on)
        assert await ask(serves) is ErrorCode.CONCURRENT_TRANSACTIONS
        assert stable(serves) == 0
