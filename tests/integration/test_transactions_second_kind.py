"""Transactions as clients of the second kind send them (KIP-890), request by request: SPEC D3.

Leaders add partitions by themselves, and every end raises the epoch. Java's client and franz-go do so.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.integration.raw import (
    RawClient,
    create_topic,
    end_offset,
    fetched,
    make_batch,
    produce_request,
    values_in,
    wait_until,
)

from penstock.core.error_codes import ErrorCode
from penstock.records.builder import BatchOptions
from penstock.testing import BrokerProcess, broker
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import end_txn, find_coordinator, init_producer_id

TIMEOUT_MS = 60_000
READ_COMMITTED = 1
RETRIED = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker({"penstock.transactions.enable": "true"}) as process:
        yield process


@pytest.fixture
def client(running: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(running.port) as connected:
        yield connected


class SecondKind:
    """A producer of it."""

    def __init__(self, client: RawClient, name: str) -> None:
        self.client, self.name = client, name
        self.sequence = 0
        request = find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=[name])
        until(lambda: client.call(ApiKey.FIND_COORDINATOR, 4, request).coordinators[0])
        init = init_producer_id.InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=TIMEOUT_MS, producer_id=-1, producer_epoch=-1
        )
        told = until(lambda: client.call(ApiKey.INIT_PRODUCER_ID, 5, init))
        assert told.error_code == 0
        self.id, self.epoch = told.producer_id, told.producer_epoch

    def send(self, topic: str, value: bytes, *, version: int = 12) -> int:
        options = BatchOptions(
            producer_id=self.id, producer_epoch=self.epoch, base_sequence=self.sequence, transactional=True
        )
        request = produce_request(topic, [(0, make_batch([value], options))])
        request.transactional_id = self.name
        # The transaction before may still be ending, for longer than the broker waits.
        answer = until(
            lambda: self.client.call(ApiKey.PRODUCE, version, request).responses[0].partition_responses[0]
        )
        self.sequence += not answer.error_code
        code: int = answer.error_code
        return code

    def end(self, *, committed: bool) -> int:
        request = end_txn.EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.id,
            producer_epoch=self.epoch,
            committed=committed,
        )
        told = until(lambda: self.client.call(ApiKey.END_TXN, 5, request))
        if not told.error_code:
            self.id, self.epoch, self.sequence = told.producer_id, told.producer_epoch, 0
        code: int = told.error_code
        return code


def until(ask: Callable[[], Any]) -> Any:
    """The first answer that does not say to come again."""
    told: list[Any] = []

    def is_final() -> bool:
        told.append(ask())
        return told[-1].error_code not in RETRIED

    wait_until(is_final, "an answer")
    return told[-1]


def read(client: RawClient, topic: str, offset: int) -> tuple[list[bytes | None], list[tuple[int, int]]]:
    """(values, aborted transactions) as a reader of what is committed is told them."""
    answer = fetched(client, topic, offset, isolation_level=READ_COMMITTED)
    aborted = [(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()]
    return values_in(answer.records), aborted


def test_leaders_add_partitions_and_every_end_raises_the_epoch(client: RawClient) -> None:
    create_topic(client, "implicit")
    producer = SecondKind(client, "implicit")
    first = producer.id, producer.epoch
    assert producer.send("implicit", b"yes") == ErrorCode.NONE
    assert producer.end(committed=True) == ErrorCode.NONE
    assert (producer.id, producer.epoch) == (first[0], first[1] + 1)
    assert producer.send("implicit", b"no") == ErrorCode.NONE
    assert producer.send("implicit", b"no") == ErrorCode.NONE
    assert producer.end(committed=False) == ErrorCode.NONE
    wait_until(lambda: end_offset(client, "implicit") == 5, "the marker")
    values, aborted = read(client, "implicit", 2)
    assert values.count(b"no") == 2  # they are there: the list says which are left out
    assert aborted == [(producer.id, 2)]


def test_a_batch_of_the_epoch_before_is_refused(client: RawClient) -> None:
    create_topic(client, "late")
    producer = SecondKind(client, "late")
    assert producer.send("late", b"1") == ErrorCode.NONE
    old = producer.epoch
    assert producer.end(committed=True) == ErrorCode.NONE
    wait_until(lambda: end_offset(client, "late") == 2, "the marker")
    producer.epoch, new = old, producer.epoch
    producer.sequence = 1
    assert producer.send("late", b"2") == ErrorCode.INVALID_PRODUCER_EPOCH
    producer.epoch, producer.sequence = new, 0
    assert producer.send("late", b"3") == ErrorCode.NONE


def test_a_batch_of_a_transaction_that_nobody_knows_is_refused(client: RawClient) -> None:
    create_topic(client, "unknown")
    producer = SecondKind(client, "unknown")
    producer.name = "another"
    assert producer.send("unknown", b"1") == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    producer.name = "unknown"
    # One of the first kind has to add the partition itself, before.
    assert producer.send("unknown", b"1", version=10) == ErrorCode.INVALID_TXN_STATE
    assert producer.send("unknown", b"1", version=11) == ErrorCode.TRANSACTION_ABORTABLE
    assert end_offset(client, "unknown") == 0


def test_an_end_without_anything_in_it(client: RawClient) -> None:
    producer = SecondKind(client, "empty")
    assert producer.end(committed=True) == ErrorCode.INVALID_TXN_STATE
    assert producer.end(committed=False) == ErrorCode.NONE
