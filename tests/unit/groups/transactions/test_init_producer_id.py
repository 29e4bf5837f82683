"""InitProducerId, row by row of Kafka's rules."""

from typing import Any

import pytest
from tests.unit.groups.transactions.lab import FRESH, ID, P0, Lab

from penstock.core.error_codes import ErrorCode
from penstock.groups.transactions.requests import InitReply, SpareIds
from penstock.groups.transactions.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionState,
)

CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
IDLE_STATES = [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT]


def test_a_new_id_begins_with_epoch_0() -> None:
    lab = Lab()
    assert lab.init() == InitReply(ErrorCode.NONE, FRESH, 0)
    assert lab.told() == (EMPTY, FRESH, 0)
    assert len(lab.records) == 1


def test_a_new_id_takes_in_a_producer_that_was_forgotten() -> None:
    assert Lab().init(ID, 5) == InitReply(ErrorCode.NONE, FRESH, 0)


REFUSED: dict[str, tuple[dict[str, Any], ErrorCode]] = {
    "an id without an epoch": ({"producer_id": 7}, ErrorCode.INVALID_REQUEST),
    "an epoch without an id": ({"epoch": 7}, ErrorCode.INVALID_REQUEST),
    "two-phase commit": ({"enable_two_phase": True}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    "keeping what was prepared": ({"keep_prepared": True}, ErrorCode.UNSUPPORTED_VERSION),
    "no timeout": ({"timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    "a timeout above the maximum": ({"timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
}


@pytest.mark.parametrize(("fields", "error"), REFUSED.values(), ids=REFUSED)
def test_requests_that_are_wrong_in_themselves_leave_nothing(
    fields: dict[str, Any], error: ErrorCode
) -> None:
    lab = Lab()
    assert lab.init(**fields) == InitReply(error)
    assert lab.machine.find("x") is None
    assert lab.records == []


# (what it names, the epoch before) -> (answer, the epoch before after it)
ROWS: dict[str, tuple[tuple[int, int], int, InitReply, int]] = {
    "nothing named: one more": ((-1, -1), 2, InitReply(ErrorCode.NONE, ID, 4), -1),
    "the current epoch: one more, and the old is known": ((ID, 3), -1, InitReply(ErrorCode.NONE, ID, 4), 3),
    "the epoch before: the same answer again": ((ID, 2), 2, InitReply(ErrorCode.NONE, ID, 3), 2),
    "an older epoch": ((ID, 1), 2, InitReply(FENCED), 2),
    "a higher epoch": ((ID, 4), 2, InitReply(FENCED), 2),
    "another id": ((8, 3), 2, InitReply(FENCED), 2),
}


@pytest.mark.parametrize("state", IDLE_STATES)
@pytest.mark.parametrize(("named", "before", "reply", "after"), ROWS.values(), ids=ROWS)
def test_where_no_transaction_is_open(
    state: TransactionState, named: tuple[int, int], before: int, reply: InitReply, after: int
) -> None:
    lab = Lab()
    lab.put(state, last_epoch=before)
    assert lab.init(*named, timeout_ms=1234) == reply
    assert lab.subject.last_epoch == after
    if reply.error:
        assert lab.records == []
    else:
        assert lab.told() == (EMPTY, reply.producer_id, reply.epoch)
        assert (lab.subject.stored.timeout_ms, lab.subject.stored.started_ms) == (1234, -1)


# Epochs are used up: (epoch, what it names, the epoch before) -> (answer, the epoch before after it)
EXHAUSTED: dict[str, tuple[int, tuple[int, int], int, InitReply, int]] = {
    "nothing named": (32766, (-1, -1), 5, InitReply(ErrorCode.NONE, FRESH, 0), -1),
    "nothing named, after a fence": (32767, (-1, -1), -1, InitReply(ErrorCode.NONE, FRESH, 0), -1),
    "the current epoch": (32766, (ID, 32766), -1, InitReply(ErrorCode.NONE, FRESH, 0), 32766),
    "the epoch before": (32766, (ID, 32765), 32765, InitReply(ErrorCode.NONE, ID, 32766), 32765),
    "an older epoch": (32766, (ID, 5), 32765, InitReply(FENCED), 32765),
    "the last that is given": (32765, (-1, -1), -1, InitReply(ErrorCode.NONE, ID, 32766), -1),
}


@pytest.mark.parametrize(("epoch", "named", "before", "reply", "after"), EXHAUSTED.values(), ids=EXHAUSTED)
def test_used_up_epochs_bring_a_new_id(
    epoch: int, named: tuple[int, int], before: int, reply: InitReply, after: int
) -> None:
    lab = Lab()
    lab.put(EMPTY, epoch=epoch, last_epoch=before)
    assert lab.init(*named) == reply
    assert lab.subject.last_epoch == after


def test_a_producer_that_has_not_heard_of_its_new_id_gets_it_again() -> None:
    lab = Lab()
    lab.put(EMPTY, epoch=32766)
    first = lab.init(ID, 32766)
    assert lab.init(ID, 32766) == first == InitReply(ErrorCode.NONE, FRESH, 0)
    assert lab.init(ID, 32765) == InitReply(FENCED)
    lab.init()
    assert lab.init(ID, 32766) == InitReply(FENCED), "another producer has come since"


@pytest.mark.parametrize("state", [PREPARE_COMMIT, PREPARE_ABORT])
def test_while_an_end_is_under_way_all_wait(state: TransactionState) -> None:
    lab = Lab()
    subject = lab.put(state, P0)
    assert lab.init() == InitReply(CONCURRENT)
    assert lab.init(8, 3) == InitReply(CONCURRENT), "nothing can be judged yet"
    subject.pending = None
    assert lab.init() == InitReply(CONCURRENT)
    assert lab.init(8, 3) == InitReply(FENCED)
    assert lab.records == []


@pytest.mark.parametrize(("level", "last_epoch"), [(0, -1), (1, -1), (2, 3)])
def test_an_open_transaction_is_aborted_and_the_caller_comes_again(level: int, last_epoch: int) -> None:
    lab = Lab(level=level)
    lab.put(ONGOING, P0)
    assert lab.init() == InitReply(CONCURRENT)
    assert lab.told() == (PREPARE_ABORT, ID, 4)
    assert (lab.subject.last_epoch, lab.subject.stored.client_version) == (last_epoch, level)
    assert lab.init() == InitReply(CONCURRENT)
    lab.mark()
    assert lab.told() == (COMPLETE_ABORT, ID, 4)
    assert lab.init() == InitReply(ErrorCode.NONE, ID, 5)
    assert lab.add(P0, epoch=3) == lab.add(P0, epoch=4) == FENCED


def test_another_id_does_not_abort_an_open_transaction() -> None:
    lab = Lab()
    lab.put(ONGOING, P0)
    assert lab.init(8, 3) == InitReply(FENCED)
    assert lab.told() == (ONGOING, ID, 3)


@pytest.mark.parametrize("level", [1, 2])
def test_a_fence_at_the_last_epoch_leaves_a_way_on(level: int) -> None:
    lab = Lab(level=level)
    lab.put(ONGOING, P0, epoch=32766)
    assert lab.init() == InitReply(CONCURRENT)
    assert lab.told() == (PREPARE_ABORT, ID, 32767)
    lab.mark()
    complete = (FRESH, 0) if level == 2 else (ID, 32767)
    assert lab.told() == (COMPLETE_ABORT, *complete)
    assert lab.init() == InitReply(ErrorCode.NONE, *((FRESH, 1) if level == 2 else (FRESH, 0)))


def test_without_a_producer_id_at_hand_nothing_happens() -> None:
    lab = Lab(ids=SpareIds())
    assert lab.init() == InitReply(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert lab.machine.find("x") is None
    lab.put(ONGOING, P0, epoch=32766)
    assert lab.init() == InitReply(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert lab.told() == (ONGOING, ID, 32766)
    assert lab.records == []
