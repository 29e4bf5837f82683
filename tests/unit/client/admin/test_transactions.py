"""Administering transactions while brokers answer late, twice or not at all."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock.client.admin import transactions
from penstock.client.admin.transactions import (
    OpenTransaction,
    TransactionAdmin,
    TransactionInfo,
    TransactionsOffError,
)
from penstock.client.raw.cluster import Route
from penstock.client.raw.errors import BrokerError, ConnectionLostError, TimedOutError
from penstock.client.raw.model import TopicInfo
from penstock.client.raw.options import RawOptions
from penstock.client.raw.retry_budget import RetryBudget
from penstock.client.topic_partition import TopicPartition
from penstock.core.error_codes import ErrorCode
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from penstock.wire.kafka.generated.describe_producers import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from penstock.wire.kafka.generated.describe_transactions import DescribeTransactionsResponse, TransactionState
from penstock.wire.kafka.generated.init_producer_id import InitProducerIdResponse
from penstock.wire.kafka.generated.list_transactions import ListTransactionsResponse
from penstock.wire.kafka.generated.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

PLACE = TopicPartition("orders", 0)
HANGING = OpenTransaction(PLACE, 7, 3, 40, -1, 1000)
INFO = TransactionInfo("tx", 1, "Ongoing", 7, 3, 60_000, 1000, (PLACE,))
NO_ID = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
OTHERS = ErrorCode.NOT_COORDINATOR
BROKERS = (1, 2)
_OPTIONS = RawOptions(retry_backoff_ms=1, retry_backoff_max_ms=1, retries_max=20)

Answer = Callable[[int, Any], Any]


class Link:
    def __init__(self, broker: int, cluster: "Cluster") -> None:
        self._broker, self._cluster = broker, cluster

    def serves(self, key: ApiKey) -> bool:
        return key not in self._cluster.unserved

    def version(self, _key: ApiKey, *, at_least: int = 0) -> int:
        return at_least

    def call(self, key: ApiKey, _version: int, request: Any) -> Any:
        if key is ApiKey.DESCRIBE_CLUSTER:
            brokers = [
                DescribeClusterBroker(broker_id=number, host=f"{number}", port=9) for number in BROKERS
            ]
            return DescribeClusterResponse(brokers=brokers)
        self._cluster.asked.append((self._broker, key, request))
        answers = self._cluster.answers[key]
        answer = (answers.pop(0) if len(answers) > 1 else answers[0])(self._broker, request)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Cluster:
    """Two brokers; what is asked for once too often is answered as the last time."""

    def __init__(self, answers: dict[ApiKey, list[Answer]]) -> None:
        self.answers, self.asked = answers, list[tuple[int, ApiKey, Any]]()
        self.unserved: set[ApiKey] = set()
        self.there = ["orders", "__transaction_state"]

    def budget(self, what: str) -> RetryBudget:
        return RetryBudget(what, _OPTIONS)

    def any_link(self, _budget: RetryBudget) -> Link:
        return Link(BROKERS[0], self)

    def link(self, address: tuple[str, int], _budget: RetryBudget) -> Link:
        return Link(int(address[0]), self)

    def route(self, _at: TopicPartition, _budget: RetryBudget) -> Route:
        link: Any = Link(BROKERS[1], self)
        return Route(link, None, 0)

    def doubt(self, _partitions: object) -> None:
        """It is asked again anyway."""

    def topics(self) -> dict[str, TopicInfo]:
        return {name: TopicInfo(name, None, (0,), False) for name in self.there}

    def close(self) -> None:
        """Nothing is open."""

    def times(self, key: ApiKey) -> int:
        return sum(asked == key for _, asked, _ in self.asked)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[TransactionAdmin, Cluster]]:
    def make(**answers: list[Answer]) -> tuple[TransactionAdmin, Cluster]:
        cluster = Cluster({ApiKey[key]: each for key, each in answers.items()})
        monkeypatch.setattr(transactions, "Cluster", lambda _bootstrap, _options: cluster)
        return TransactionAdmin("nowhere"), cluster

    return make


def markers(code: ErrorCode) -> Answer:
    partition = WritableTxnMarkerPartitionResult(partition_index=0, error_code=code)
    topic = WritableTxnMarkerTopicResult(name="orders", partitions=[partition])
    marker = WritableTxnMarkerResult(producer_id=7, topics=[topic])
    return lambda _broker, _request: WriteTxnMarkersResponse(markers=[marker])


def producers(*start_offsets: int, written_ms: int = 2000) -> Answer:
    found = [
        ProducerState(
            producer_id=7,
            producer_epoch=3,
            last_timestamp=written_ms,
            coordinator_epoch=-1,
            current_txn_start_offset=offset,
        )
        for offset in start_offsets
    ]
    partition = PartitionResponse(partition_index=0, active_producers=found)
    topic = TopicResponse(name="orders", partitions=[partition])
    return lambda _broker, _request: DescribeProducersResponse(topics=[topic])


def states(**by_broker: ErrorCode | str) -> Answer:
    """What each broker says of the transactional id `tx`: `_1=`, `_2=`."""

    def answer(broker: int, _request: Any) -> Any:
        told = by_broker[f"_{broker}"]
        state = TransactionState(transactional_id="tx", topics=[], transaction_timeout_ms=5)
        if isinstance(told, ErrorCode):
            state.error_code = told
        else:
            state.transaction_state = told
        return DescribeTransactionsResponse(transaction_states=[state])

    return answer


def lost(_broker: int, _request: Any) -> Exception:
    return ConnectionLostError("gone")


def test_a_marker_is_sent_with_what_the_log_knows(made: Any) -> None:
    admin, cluster = made(WRITE_TXN_MARKERS=[markers(ErrorCode.NONE)])
    admin.abort(HANGING)
    ((_, _, request),) = cluster.asked
    (marker,) = request.markers
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (7, 3, False)
    assert (marker.coordinator_epoch, marker.transaction_version) == (0, 0)


def test_a_marker_whose_answer_is_lost_is_sent_again_only_where_it_is_still_open(made: Any) -> None:
    admin, cluster = made(
        WRITE_TXN_MARKERS=[lost, markers(ErrorCode.INVALID_TXN_STATE)], DESCRIBE_PRODUCERS=[producers(-1)]
    )
    admin.abort(HANGING)
    assert cluster.times(ApiKey.WRITE_TXN_MARKERS) == 1

    admin, cluster = made(
        WRITE_TXN_MARKERS=[lost, markers(ErrorCode.NONE)], DESCRIBE_PRODUCERS=[lost, producers(40)]
    )
    admin.abort(HANGING)
    assert cluster.times(ApiKey.WRITE_TXN_MARKERS) == 2


def test_the_next_transaction_of_the_producer_is_not_the_one_that_was_meant(made: Any) -> None:
    admin, cluster = made(WRITE_TXN_MARKERS=[lost], DESCRIBE_PRODUCERS=[producers(50)])
    admin.abort(HANGING)
    assert cluster.times(ApiKey.WRITE_TXN_MARKERS) == 1


def test_a_marker_that_is_refused_is_not_sent_again(made: Any) -> None:
    admin, cluster = made(WRITE_TXN_MARKERS=[markers(ErrorCode.INVALID_TXN_STATE)])
    with pytest.raises(BrokerError, match="its coordinator will end it"):
        admin.abort(HANGING)
    assert cluster.times(ApiKey.WRITE_TXN_MARKERS) == 1


def test_a_producer_is_fenced_when_its_transaction_has_ended(made: Any) -> None:
    busy = InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)
    admin, cluster = made(
        INIT_PRODUCER_ID=[lambda *_: busy, lost, lambda *_: busy, lambda *_: InitProducerIdResponse()]
    )
    admin.fence(INFO)
    assert [(broker, key) for broker, key, _ in cluster.asked] == [(1, ApiKey.INIT_PRODUCER_ID)] * 4
    request = cluster.asked[0][2]
    assert (request.producer_id, request.producer_epoch, request.transaction_timeout_ms) == (-1, -1, 60_000)


@pytest.mark.parametrize(
    ("answers", "state"),
    [
        ([states(_1="Ongoing", _2=OTHERS)], "Ongoing"),
        ([states(_1=OTHERS, _2="Empty")], "Empty"),
        ([states(_1=OTHERS, _2=NO_ID)], None),
        ([states(_1=OTHERS, _2=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), states(_1=NO_ID, _2=OTHERS)], None),
        # Nobody coordinates it for a moment.
        ([*2 * [states(_1=OTHERS, _2=OTHERS)], states(_1=OTHERS, _2="Ongoing")], "Ongoing"),
    ],
)
def test_an_id_is_described_by_whoever_coordinates_it(made: Any, answers: list[Answer], state: str) -> None:
    admin, _ = made(DESCRIBE_TRANSACTIONS=[each for answer in answers for each in (answer, answer)])
    found = admin.describe(["tx"])
    assert (found["tx"].state if found else None) == state


def test_where_there_are_no_coordinators_nobody_waits_for_one(made: Any) -> None:
    admin, cluster = made(DESCRIBE_TRANSACTIONS=[states(_1=OTHERS, _2=OTHERS)])
    cluster.there = ["orders"]
    assert admin.describe(["tx"]) == {}


def test_what_one_coordinator_does_not_tell_is_not_left_out(made: Any) -> None:
    loading = ListTransactionsResponse(
        error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, unknown_state_filters=[], transaction_states=[]
    )
    admin, _ = made(LIST_TRANSACTIONS=[lambda *_: loading])
    with pytest.raises(TimedOutError):
        admin.find()


def test_where_transactions_are_off_that_is_said_at_once(made: Any) -> None:
    admin, cluster = made()
    cluster.unserved = {ApiKey.LIST_TRANSACTIONS, ApiKey.WRITE_TXN_MARKERS}
    for ask in (admin.find, lambda: admin.describe(["tx"]), lambda: admin.abort(HANGING)):
        with pytest.raises(TransactionsOffError):
            ask()
    assert cluster.asked == []
