"""AddPartitionsToTxn and AddOffsetsToTxn, row by row of Kafka's rules."""

import pytest
from tests.unit.groups.transactions.lab import ID, P0, P1, P2, TIMEOUT_MS, Lab

from penstock.core.error_codes import ErrorCode
from penstock.groups.partitioning import partition_of
from penstock.groups.transactions.layouts import TopicPartition
from penstock.groups.transactions.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionState,
)

NONE = ErrorCode.NONE
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
FENCED = ErrorCode.PRODUCER_FENCED
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE


def test_an_unknown_transactional_id() -> None:
    lab = Lab()
    assert lab.add(P0) == lab.add_offsets("g") == MAPPING
    assert lab.verify(P0, P1) == {P0: MAPPING, P1: MAPPING}


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_the_first_partition_opens_a_transaction(state: TransactionState, version: int) -> None:
    lab = Lab()
    lab.put(state, last_epoch=2, started_ms=5)
    lab.wall_ms += 1000
    assert lab.add(P0, P1, client_version=version) is NONE
    stored = lab.subject.stored
    assert lab.told() == (ONGOING, ID, 3)
    assert stored.partitions == {P0, P1}
    assert stored.started_ms == stored.updated_ms == lab.wall_ms
    assert (stored.client_version, lab.subject.last_epoch) == (version, 2)
    assert lab.subject.earliest * 1000 == pytest.approx(lab.wall_ms + TIMEOUT_MS + 1)


def test_more_partitions_join_without_moving_the_start() -> None:
    lab = Lab()
    lab.put(ONGOING, P0)
    started_ms = lab.wall_ms
    lab.wall_ms += 1000
    assert lab.add(P0, P1) is NONE
    assert lab.subject.stored.partitions == {P0, P1}
    assert lab.subject.stored.started_ms == started_ms
    assert lab.subject.stored.updated_ms == lab.wall_ms


def test_what_is_in_it_already_is_not_stored_again() -> None:
    lab = Lab()
    lab.put(ONGOING, P0, P1)
    assert lab.add(P0) is NONE
    assert lab.records == []


@pytest.mark.parametrize("state", [EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_others_than_the_producer_are_refused(state: TransactionState) -> None:
    lab = Lab()
    lab.put(state, *([P0] if state is ONGOING else []))
    for partition in (P0, P1):
        assert lab.add(partition, producer_id=8) == MAPPING
        assert lab.add(partition, epoch=2) == lab.add(partition, epoch=4) == FENCED
        assert lab.verify(partition, producer_id=8) == {partition: MAPPING}
        assert lab.verify(partition, epoch=2) == lab.verify(partition, epoch=4) == {partition: FENCED}
    assert lab.records == []


@pytest.mark.parametrize("state", [PREPARE_COMMIT, PREPARE_ABORT])
def test_the_next_transaction_waits_for_the_end_of_this_one(state: TransactionState) -> None:
    lab = Lab()
    subject = lab.put(state, P0)
    assert lab.add(P0) == lab.add(P0, producer_id=8) == lab.add(P0, epoch=2) == CONCURRENT
    assert lab.verify(P0) == {P0: CONCURRENT}
    # Whoever only asks is judged at once: its batch is refused or waits, whatever comes.
    assert lab.verify(P0, producer_id=8) == {P0: MAPPING}
    assert lab.verify(P0, epoch=2) == {P0: FENCED}
    subject.pending = None
    assert lab.add(P0) == CONCURRENT
    assert lab.add(P0, producer_id=8) == MAPPING
    assert lab.add(P0, epoch=2) == FENCED
    assert lab.records == []


def test_leaders_learn_which_partitions_are_in_the_transaction() -> None:
    lab = Lab()
    lab.put(ONGOING, P0)
    assert lab.verify(P0, P1) == {P0: NONE, P1: ABORTABLE}


@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_no_partition_is_in_a_transaction_that_is_not_open(state: TransactionState) -> None:
    lab = Lab()
    lab.put(state)
    assert lab.verify(P0) == {P0: ABORTABLE}


def test_a_groups_offsets_are_a_partition_like_others() -> None:
    lab = Lab()
    lab.put(EMPTY)
    assert lab.add_offsets("orders") is NONE
    offsets = TopicPartition("__consumer_offsets", partition_of("orders", 50))
    assert lab.subject.stored.partitions == {offsets}
    assert lab.subject.stored.client_version == 0
    assert lab.add_offsets("orders") is NONE
    assert len(lab.records) == 1
    assert lab.add_offsets("orders", epoch=2) == FENCED


def test_a_transaction_stays_small_enough_to_be_ended() -> None:
    lab = Lab(record_bytes_max=300)
    lab.put(EMPTY)
    many = [TopicPartition("t" * 100, index) for index in range(100)]
    assert lab.add(*many) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert lab.told() == (EMPTY, ID, 3)
    assert lab.add(P0, P1, P2) is NONE
    assert lab.end(committed=True).error is NONE
    assert all(len(key) + len(value or b"") <= 300 for key, value in lab.records)


def test_a_thousand_partitions_in_one_transaction() -> None:
    lab = Lab()
    lab.put(EMPTY)
    many = [TopicPartition(f"topic-{index % 100}", index) for index in range(1000)]
    assert lab.add(*many) is NONE
    assert lab.end(committed=True).error is NONE
    assert lab.due[0].partitions == frozenset(many)
    lab.mark(*many[:-1])
    assert lab.told() == (PREPARE_COMMIT, ID, 4)
    assert lab.subject.unmarked == {many[-1]}
    lab.mark(many[-1])
    assert lab.told() == (COMPLETE_COMMIT, ID, 4)
