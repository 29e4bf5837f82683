"""Transactions, administered: what coordinators know of them, what is open in partitions, and how both are ended.

    with TransactionAdmin("127.0.0.1:9092") as admin:
        admin.find(states=["Ongoing"])
        admin.open_in(admin.held_back())

Kafka's own requests, as `kafka-transactions.sh` sends them: it works against Apache Kafka as well.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar

from penstock.client.raw.cluster import Cluster
from penstock.client.raw.errors import BrokerError, ConnectionLostError, RawError
from penstock.client.raw.link import Address, Link
from penstock.client.raw.model import LATEST
from penstock.client.raw.offsets import list_offsets
from penstock.client.raw.options import RawOptions
from penstock.client.raw.retry_budget import RetryBudget
from penstock.client.topic_partition import TopicPartition
from penstock.core.error_codes import ErrorCode
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.describe_cluster import DescribeClusterRequest
from penstock.wire.kafka.generated.describe_producers import DescribeProducersRequest, TopicRequest
from penstock.wire.kafka.generated.describe_transactions import DescribeTransactionsRequest, TransactionState
from penstock.wire.kafka.generated.init_producer_id import InitProducerIdRequest
from penstock.wire.kafka.generated.list_transactions import ListTransactionsRequest
from penstock.wire.kafka.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

NO_TIME: Final = -1
_DURATION_SINCE = 1
_PATTERN_SINCE = 2
# Before it a half that is given is not refused.
_INIT_VERSION_MIN = 3
# How many are asked about in one request.
_AT_ONCE = 100
_OPTIONS = RawOptions(connect_timeout_ms=3_000, request_timeout_ms=40_000, api_timeout_ms=40_000)

_T = TypeVar("_T")


class TransactionsOffError(RawError):
    """The cluster has no coordinators of transactions."""

    def __init__(self) -> None:
        super().__init__(
            "the cluster serves no transactions: they are behind penstock.transactions.enable, which is off"
        )


@dataclass(frozen=True, slots=True)
class TransactionSummary:
    id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class TransactionInfo:
    """A transactional id, as its coordinator knows it."""

    id: str
    coordinator: int
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    started_ms: int  # of the latest transaction; `NO_TIME` where there was none
    partitions: tuple[TopicPartition, ...] = ()  # of one that ends, those that have no marker yet


class HeldBack(NamedTuple):
    """A partition where readers of what is committed do not see all that others see."""

    at: TopicPartition
    last_stable_offset: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """As the leader of a partition knows it, from the log."""

    at: TopicPartition
    producer_id: int
    epoch: int
    start_offset: int
    coordinator_epoch: int  # -1: no marker was ever written for the producer
    written_ms: int  # the latest timestamp of the producer

    def is_same(self, other: "OpenTransaction") -> bool:
        """Whatever was written in it since."""
        return (self.at, self.producer_id, self.epoch, self.start_offset) == (
            other.at,
            other.producer_id,
            other.epoch,
            other.start_offset,
        )


class TransactionAdmin:
    """Blocking, for one thread; raises `RawError` with one line that says what to do."""

    def __init__(self, bootstrap: str, options: RawOptions = _OPTIONS) -> None:
        self._cluster = Cluster(bootstrap, options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cluster.close()

    # -- coordinators ----------------------------------------------------------------------------------------

    def find(
        self,
        *,
        states: Collection[str] = (),
        producers: Collection[int] = (),
        longer_than_ms: int = -1,
        pattern: str = "",
    ) -> list[TransactionSummary]:
        """What all coordinators know, by transactional id; what is not given does not filter."""
        request = ListTransactionsRequest(
            state_filters=sorted(states),
            producer_id_filters=sorted(producers),
            duration_filter=longer_than_ms,
            transactional_id_pattern=pattern or None,
        )
        least = _PATTERN_SINCE if pattern else _DURATION_SINCE if longer_than_ms >= 0 else 0

        def ask(budget: RetryBudget) -> list[TransactionSummary]:
            found = []
            for broker, address in self._brokers(budget).items():
                link = self._serving(address, budget)
                version = link.version(ApiKey.LIST_TRANSACTIONS, at_least=least)
                answer = link.call(ApiKey.LIST_TRANSACTIONS, version, request)
                _check(answer.error_code, f"broker {broker}")
                found += [
                    TransactionSummary(
                        each.transactional_id, each.producer_id, each.transaction_state, broker
                    )
                    for each in answer.transaction_states
                ]
            return sorted(found, key=lambda each: each.id)

        return self._tried("listing transactions", ask)

    def describe(self, ids: Iterable[str]) -> dict[str, TransactionInfo]:
        """By transactional id, without those that are not known."""
        wanted = list(dict.fromkeys(ids))

        def ask(budget: RetryBudget) -> dict[str, TransactionInfo]:
            found: dict[str, TransactionInfo] = {}
            for begin in range(0, len(wanted), _AT_ONCE):
                found |= self._described(wanted[begin : begin + _AT_ONCE], budget)
            return found

        return self._tried("describing transactions", ask)

    def _described(self, ids: list[str], budget: RetryBudget) -> dict[str, TransactionInfo]:
        """FindCoordinator would make the coordinators' topic where there is none: so every broker is asked."""
        found: dict[str, TransactionInfo] = {}
        left = set(ids)
        for broker, address in self._brokers(budget).items():
            link = self._serving(address, budget)
            request = DescribeTransactionsRequest(transactional_ids=[name for name in ids if name in left])
            if not left:
                break
            version = link.version(ApiKey.DESCRIBE_TRANSACTIONS)
            answer = link.call(ApiKey.DESCRIBE_TRANSACTIONS, version, request)
            for state in answer.transaction_states:
                if state.error_code == ErrorCode.NOT_COORDINATOR:
                    continue
                left.discard(state.transactional_id)
                if state.error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    _check(state.error_code, f"transactional id {state.transactional_id}")
                    found[state.transactional_id] = _info(broker, state)
        if left and self._has_coordinators():
            _check(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"transactional id {min(left)}")
        return found

    def _has_coordinators(self) -> bool:
        return "__transaction_state" in self._cluster.topics()

    def fence(self, info: TransactionInfo) -> None:
        """Abort what is open under a transactional id; whoever produces under it has to begin anew, or is out."""
        request = InitProducerIdRequest(
            transactional_id=info.id,
            transaction_timeout_ms=max(info.timeout_ms, 1),
            producer_id=-1,
            producer_epoch=-1,
        )

        def ask(budget: RetryBudget) -> None:
            address = self._brokers(budget).get(info.coordinator)
            if address is None:
                raise ConnectionLostError(f"broker {info.coordinator} is gone")
            link = self._serving(address, budget)
            version = link.version(ApiKey.INIT_PRODUCER_ID, at_least=_INIT_VERSION_MIN)
            answer = link.call(ApiKey.INIT_PRODUCER_ID, version, request)
            _check(answer.error_code, f"transactional id {info.id}")

        self._tried(f"ending the transaction of {info.id}", ask)

    # -- partitions ------------------------------------------------------------------------------------------

    def partitions(self, topics: Collection[str] = ()) -> list[TopicPartition]:
        """Of these topics, or of all."""
        known = self._cluster.describe(topics) if topics else self._cluster.topics()
        return [TopicPartition(name, index) for name, topic in known.items() for index in topic.partitions]

    def held_back(self, partitions: Iterable[TopicPartition]) -> list[HeldBack]:
        """Those in which something is not settled; without those that nobody leads, where others are led."""
        asked = dict.fromkeys(partitions, LATEST)
        if not asked:
            return []
        # In this order: what is written in between must not look as if it was held back.
        ends = list_offsets(self._cluster, asked, committed=False, partial=True)
        stable = list_offsets(self._cluster, dict.fromkeys(ends, LATEST), committed=True, partial=True)
        return [
            HeldBack(at, found.offset, ends[at].offset)
            for at, found in stable.items()
            if found.offset < ends[at].offset
        ]

    def open_in(self, partitions: Iterable[TopicPartition]) -> list[OpenTransaction]:
        """What is open there, in the order of its beginning, as the leaders' logs say."""
        return [
            found
            for at in partitions
            for found in self._tried(f"asking for the producers of {at}", partial(self._open, at))
        ]

    def _open(self, at: TopicPartition, budget: RetryBudget) -> list[OpenTransaction]:
        try:
            link = self._cluster.route(at, budget).link
            request = DescribeProducersRequest(
                topics=[TopicRequest(name=at.topic, partition_indexes=[at.partition])]
            )
            version = link.version(ApiKey.DESCRIBE_PRODUCERS)
            answer = link.call(ApiKey.DESCRIBE_PRODUCERS, version, request).topics[0].partitions[0]
            _check(answer.error_code, str(at), answer.error_message)
        except RawError:
            self._cluster.doubt((at,))
            raise
        found = [
            OpenTransaction(
                at,
                producer.producer_id,
                producer.producer_epoch,
                producer.current_txn_start_offset,
                producer.coordinator_epoch,
                producer.last_timestamp,
            )
            for producer in answer.active_producers
            if producer.current_txn_start_offset >= 0
        ]
        return sorted(found, key=lambda each: each.start_offset)

    def abort(self, hanging: OpenTransaction) -> None:
        """Write the marker that no coordinator will write; done, too, when it is not open any more."""
        at = hanging.at
        marker = WritableTxnMarker(
            producer_id=hanging.producer_id,
            producer_epoch=hanging.epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=at.topic, partition_indexes=[at.partition])],
            coordinator_epoch=max(hanging.coordinator_epoch, 0),
        )
        request = WriteTxnMarkersRequest(markers=[marker])
        tried = False

        def ask(budget: RetryBudget) -> None:
            nonlocal tried
            if tried and not any(map(hanging.is_same, self._open(at, budget))):
                return  # the answer was lost
            try:
                link = self._cluster.route(at, budget).link
                if not link.serves(ApiKey.WRITE_TXN_MARKERS):
                    raise TransactionsOffError
                tried = True
                version = link.version(ApiKey.WRITE_TXN_MARKERS)
                answer = link.call(ApiKey.WRITE_TXN_MARKERS, version, request)
                _check(answer.markers[0].topics[0].partitions[0].error_code, str(at))
            except RawError:
                self._cluster.doubt((at,))
                raise

        self._tried(f"aborting the transaction in {at}", ask)

    # -- asking ----------------------------------------------------------------------------------------------

    def _brokers(self, budget: RetryBudget) -> dict[int, Address]:
        link = self._cluster.any_link(budget)
        version = link.version(ApiKey.DESCRIBE_CLUSTER)
        answer = link.call(ApiKey.DESCRIBE_CLUSTER, version, DescribeClusterRequest())
        _check(answer.error_code, "describing the cluster", answer.error_message)
        return {each.broker_id: (each.host, each.port) for each in answer.brokers}

    def _serving(self, address: Address, budget: RetryBudget) -> Link:
        link = self._cluster.link(address, budget)
        if not link.serves(ApiKey.LIST_TRANSACTIONS):
            raise TransactionsOffError
        return link

    def _tried(self, what: str, ask: Callable[[RetryBudget], _T]) -> _T:
        budget = self._cluster.budget(what)
        while True:
            try:
                return ask(budget)
            except RawError as error:
                budget.pause(error)


def _info(broker: int, state: TransactionState) -> TransactionInfo:
    return TransactionInfo(
        state.transactional_id,
        broker,
        state.transaction_state,
        state.producer_id,
        state.producer_epoch,
        state.transaction_timeout_ms,
        state.transaction_start_time_ms,
        tuple(
            sorted(TopicPartition(topic.topic, index) for topic in state.topics for index in topic.partitions)
        ),
    )


def _check(code: int, subject: str, message: Any = None) -> None:
    if code:
        raise BrokerError(code, subject, message)
