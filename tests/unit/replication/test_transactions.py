"""What a leader lets into a transaction, and which markers it obeys: Kafka's rules, one by one."""

import pytest
from tests.unit.replication.test_retirement import NoSyncer
from tests.unit.storage.logs import NOW_MS, a_batch, opened
from tests.unit.storage.transactions import transactional

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.records.batch import BatchHeader, read_header
from penstock.records.relay import NAMED_IDS, RELAY_IDS
from penstock.replication.limits import Reader
from penstock.replication.partition import Partition
from penstock.replication.transactions import MarkerToWrite, check_marker, check_transactional, guard_for
from penstock.storage.open_transactions import Guard
from penstock.testing.mem_files import MemFiles

PRODUCER = 7
FIRST, SECOND = False, True  # kinds of transactions
INVALID_STATE = ErrorCode.INVALID_TXN_STATE
OLD_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class Leader:
    """A partition that is led here, and what a producer and its coordinator send to it."""

    def __init__(self) -> None:
        log = opened(MemFiles()).log
        self.partition = Partition("t", bytes(16), 0, log, 0, NoSyncer(), sync_before_ack=False)

    def ask(self, sequence: int = 0, epoch: int = 0, *, second: bool = FIRST) -> Guard | None:
        return guard_for(self.partition, header(sequence, epoch), is_second=second)

    def write(self, guard: Guard | None, sequence: int = 0, epoch: int = 0) -> int:
        batch = transactional((PRODUCER, epoch, sequence))
        check_transactional(self.partition, read_header(batch), guard)
        return self.partition.append(memoryview(batch), read_header(batch), NOW_MS)[0]

    def begin(self, epoch: int = 0, *, second: bool = FIRST) -> None:
        self.write(self.ask(0, epoch, second=second), 0, epoch)

    def mark(self, epoch: int = 0, *, committed: bool = True, coordinator: int = 0, version: int = 1) -> None:
        marker = MarkerToWrite(PRODUCER, epoch, committed, coordinator, version)
        check_marker(self.partition, marker)
        batch = marker.batch(NOW_MS)
        self.partition.append(memoryview(batch), read_header(batch), NOW_MS)

    @property
    def stable(self) -> int:
        return self.partition.limits.for_reader(Reader.READ_COMMITTED).offset


def header(sequence: int, epoch: int) -> BatchHeader:
    return read_header(transactional((PRODUCER, epoch, sequence)))


def refused(code: ErrorCode) -> "pytest.RaisesExc[ApiError]":
    return pytest.raises(ApiError, check=lambda error: error.code is code)


def test_a_batch_without_a_word_of_the_coordinator_is_refused() -> None:
    with refused(INVALID_STATE):
        Leader().write(None)


def test_once_it_is_open_nobody_is_asked() -> None:
    leader = Leader()
    leader.begin()
    assert leader.ask(1) is None
    leader.write(None, 1)
    assert leader.stable == 0
    leader.mark()
    assert leader.stable == 3
    assert leader.ask(2) is not None


def test_a_repeat_needs_no_word() -> None:
    leader = Leader()
    leader.begin()
    leader.mark()
    assert leader.ask(0) is None
    assert leader.write(None, 0) == 0


@pytest.mark.parametrize("committed", [True, False])
def test_an_answer_that_comes_behind_a_marker_lets_nothing_in(committed: bool) -> None:
    """The transaction that it speaks of has ended: nobody would ever end the one that the batch opens."""
    leader = Leader()
    guard = leader.ask()
    leader.mark(committed=committed)
    with refused(INVALID_STATE):
        leader.write(guard)
    assert leader.stable == 1


def test_a_guard_serves_once() -> None:
    leader = Leader()
    guard = leader.ask()
    leader.write(guard)
    leader.mark()
    with refused(INVALID_STATE):
        leader.write(guard, 1)


def test_batches_that_ask_at_the_same_time_share_a_guard() -> None:
    leader = Leader()
    first, second = leader.ask(0), leader.ask(1)
    assert first is second
    leader.write(first, 0)
    leader.write(second, 1)


def test_a_guard_of_another_epoch_does_not_count() -> None:
    leader = Leader()
    old = leader.ask(0, 0)
    leader.ask(0, 1)
    with refused(INVALID_STATE):
        leader.write(old, 0, 0)


def test_the_first_batch_is_the_lowest_that_asked() -> None:
    leader = Leader()
    leader.ask(0)
    guard = leader.ask(3)
    with refused(OUT_OF_ORDER):
        leader.write(guard, 3)


def test_in_the_second_kind_an_unknown_producer_begins_at_0() -> None:
    leader = Leader()
    with refused(OUT_OF_ORDER):
        leader.write(leader.ask(4, second=SECOND), 4)
    leader = Leader()
    assert leader.write(leader.ask(4), 4) == 0  # in the first, what was before may be forgotten


def test_in_the_second_kind_the_marker_before_takes_no_guard_of_its_own_epoch() -> None:
    """It raised the epoch, and the producer goes on under that one before the marker is everywhere."""
    leader = Leader()
    leader.begin(0, second=SECOND)
    guard = leader.ask(0, 1, second=SECOND)
    leader.mark(1, version=2)
    leader.write(guard, 0, 1)
    assert leader.stable == 2


def test_an_older_epoch_is_refused() -> None:
    leader = Leader()
    leader.begin(1)
    with refused(OLD_EPOCH):
        leader.ask(0, 0)
    with refused(OLD_EPOCH):
        leader.mark(0)


def test_a_plain_batch_within_a_transaction_is_refused() -> None:
    leader = Leader()
    leader.begin()
    plain = a_batch(producer=(PRODUCER, 0, 1))
    with refused(INVALID_STATE):
        leader.partition.append(memoryview(plain), read_header(plain), NOW_MS)
    leader.mark()
    leader.partition.append(memoryview(plain), read_header(plain), NOW_MS)


def test_an_older_coordinator_is_not_obeyed() -> None:
    leader = Leader()
    leader.begin()
    leader.mark(coordinator=3)
    leader.write(leader.ask(1), 1)
    with refused(ErrorCode.TRANSACTION_COORDINATOR_FENCED):
        leader.mark(coordinator=2)
    leader.mark(coordinator=3)


def test_in_the_second_kind_a_marker_of_the_same_epoch_ends_nothing_that_is_open() -> None:
    leader = Leader()
    leader.begin(0, second=SECOND)
    with refused(OLD_EPOCH):
        leader.mark(0, version=2)
    leader.mark(1, version=2)
    leader.mark(1, version=2)  # once more, after a fail-over of the coordinator
    leader.write(leader.ask(0, 1, second=SECOND), 0, 1)
    with refused(OLD_EPOCH):
        leader.mark(1, version=2)


def test_in_the_first_kind_a_marker_comes_under_the_producers_own_epoch() -> None:
    leader = Leader()
    leader.begin(0)
    leader.mark(0, committed=False)
    assert leader.stable == 2
    assert leader.partition.log.row.aborted.between(0, 2, lambda _: []) == [(PRODUCER, 0)]


@pytest.mark.parametrize("producer_id", [-1, RELAY_IDS, NAMED_IDS, 2**63 - 1])
def test_a_marker_of_no_producer_is_not_obeyed(producer_id: int) -> None:
    with refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING):
        check_marker(Leader().partition, MarkerToWrite(producer_id, 0, True, 0, 1))


def test_a_marker_of_no_epoch_is_not_obeyed() -> None:
    with refused(OLD_EPOCH):
        Leader().mark(-1)


def test_the_last_epoch_of_all_may_be_marked_again() -> None:
    leader = Leader()
    leader.begin(32766)
    leader.mark(32767, version=2)
    leader.mark(32767, version=2)


def test_who_is_done_leaves_no_guard_behind_while_others_keep_theirs() -> None:
    leader = Leader()
    known = leader.partition.log.producers.transactions
    first, second = leader.ask(0), leader.ask(0)
    assert first is second is not None
    known.withdraw(PRODUCER, first)
    assert known.is_current(PRODUCER, second)
    known.withdraw(PRODUCER, second)
    assert not known.is_current(PRODUCER, second)
    with refused(INVALID_STATE):
        leader.write(second)
