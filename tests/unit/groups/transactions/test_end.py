"""EndTxn, row by row of Kafka's rules for both kinds of client."""

import pytest
from tests.unit.groups.transactions.lab import FRESH, ID, P0, P1, Lab

from penstock.core.error_codes import ErrorCode
from penstock.groups.transactions.requests import EndReply, SpareIds
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
INVALID = ErrorCode.INVALID_TXN_STATE
COMMIT, ABORT = True, False
STATES = [EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT]
PREPARED = [PREPARE_COMMIT, PREPARE_ABORT]


def _lab(state: TransactionState, **fields: int) -> Lab:
    lab = Lab()
    open_ = state is ONGOING or state in PREPARED
    lab.put(state, *([P0] if open_ else []), **fields)
    return lab


@pytest.mark.parametrize("version", [0, 2])
def test_an_unknown_transactional_id(version: int) -> None:
    assert Lab().end(committed=True, version=version) == EndReply(MAPPING)


# -- versions 0 to 4 ----------------------------------------------------------------------------------------

FIRST_ROWS = {
    (EMPTY, COMMIT): INVALID,
    (EMPTY, ABORT): INVALID,
    (PREPARE_COMMIT, COMMIT): CONCURRENT,
    (PREPARE_COMMIT, ABORT): INVALID,
    (PREPARE_ABORT, COMMIT): INVALID,
    (PREPARE_ABORT, ABORT): CONCURRENT,
    (COMPLETE_COMMIT, COMMIT): NONE,
    (COMPLETE_COMMIT, ABORT): INVALID,
    (COMPLETE_ABORT, COMMIT): INVALID,
    (COMPLETE_ABORT, ABORT): NONE,
}


@pytest.mark.parametrize(("state", "committed"), FIRST_ROWS)
def test_first_version_where_nothing_is_open(state: TransactionState, committed: bool) -> None:
    lab = _lab(state)
    lab.subject.pending = None
    assert lab.end(committed=committed, version=0) == EndReply(FIRST_ROWS[state, committed])
    assert lab.records == []


@pytest.mark.parametrize("committed", [COMMIT, ABORT])
def test_first_version_ends_a_transaction_and_keeps_the_epoch(committed: bool) -> None:
    lab = _lab(ONGOING, last_epoch=2)
    assert lab.end(committed=committed, version=0) == EndReply(NONE)
    assert lab.told() == (PREPARE_COMMIT if committed else PREPARE_ABORT, ID, 3)
    due = lab.due[0]
    assert (due.producer_id, due.epoch, due.committed, due.client_version) == (ID, 3, committed, 0)
    assert lab.end(committed=committed, version=0) == EndReply(CONCURRENT)
    lab.mark()
    assert lab.told() == (COMPLETE_COMMIT if committed else COMPLETE_ABORT, ID, 3)
    assert lab.subject.last_epoch == 2
    assert lab.end(committed=committed, version=0) == EndReply(NONE)
    assert lab.end(committed=not committed, version=0) == EndReply(INVALID)


@pytest.mark.parametrize("committed", [COMMIT, ABORT])
@pytest.mark.parametrize("state", STATES)
def test_first_version_of_others_than_the_producer(state: TransactionState, committed: bool) -> None:
    """Judged even while an end is under way."""
    lab = _lab(state)
    assert lab.end(committed=committed, version=0, producer_id=8) == EndReply(MAPPING)
    for epoch in (2, 4):
        assert lab.end(committed=committed, version=0, epoch=epoch) == EndReply(FENCED)
    if state in PREPARED:
        assert lab.end(committed=committed, version=0) == EndReply(CONCURRENT)
    assert lab.records == []


# -- version 5 ----------------------------------------------------------------------------------------------

# The state is at epoch 3: (state, epoch of the request, what it wants) -> answer; "bump": it is prepared.
SECOND_ROWS = {
    (EMPTY, 3, COMMIT): INVALID,
    (EMPTY, 3, ABORT): "bump",
    (EMPTY, 2, COMMIT): FENCED,
    (EMPTY, 2, ABORT): FENCED,
    (ONGOING, 3, COMMIT): "bump",
    (ONGOING, 3, ABORT): "bump",
    (ONGOING, 2, COMMIT): FENCED,
    (ONGOING, 2, ABORT): FENCED,
    (PREPARE_COMMIT, 3, COMMIT): FENCED,
    (PREPARE_COMMIT, 3, ABORT): FENCED,
    (PREPARE_COMMIT, 2, COMMIT): CONCURRENT,
    (PREPARE_COMMIT, 2, ABORT): INVALID,
    (PREPARE_ABORT, 3, COMMIT): FENCED,
    (PREPARE_ABORT, 3, ABORT): FENCED,
    (PREPARE_ABORT, 2, COMMIT): INVALID,
    (PREPARE_ABORT, 2, ABORT): CONCURRENT,
    (COMPLETE_COMMIT, 3, COMMIT): INVALID,
    (COMPLETE_COMMIT, 3, ABORT): "bump",
    (COMPLETE_COMMIT, 2, COMMIT): NONE,
    (COMPLETE_COMMIT, 2, ABORT): INVALID,
    (COMPLETE_ABORT, 3, COMMIT): INVALID,
    (COMPLETE_ABORT, 3, ABORT): "bump",
    (COMPLETE_ABORT, 2, COMMIT): INVALID,
    (COMPLETE_ABORT, 2, ABORT): NONE,
}


@pytest.mark.parametrize(("state", "epoch", "committed"), SECOND_ROWS)
def test_second_version(state: TransactionState, epoch: int, committed: bool) -> None:
    lab = _lab(state)
    lab.subject.pending = None
    lab.wall_ms += 1000
    reply = lab.end(committed=committed, epoch=epoch)
    expected = SECOND_ROWS[state, epoch, committed]
    if expected == "bump":
        assert reply == EndReply(NONE, ID, 4)
        assert lab.subject.last_epoch == 3
        if state is ONGOING:
            assert lab.told() == (PREPARE_COMMIT if committed else PREPARE_ABORT, ID, 4)
        else:  # there is nobody to be told
            assert lab.told() == (COMPLETE_ABORT, ID, 4)
            assert lab.subject.stored.started_ms == lab.wall_ms
            assert len(lab.records) == 2
    else:
        assert reply == (EndReply(NONE, ID, 3) if expected is NONE else EndReply(expected))
        assert lab.records == []


@pytest.mark.parametrize("committed", [COMMIT, ABORT])
@pytest.mark.parametrize("state", STATES)
def test_second_version_of_others_than_the_producer(state: TransactionState, committed: bool) -> None:
    lab = _lab(state)
    lab.subject.pending = None
    assert lab.end(committed=committed, producer_id=8) == EndReply(MAPPING)
    for epoch in (1, 4, -1):
        assert lab.end(committed=committed, epoch=epoch) == EndReply(FENCED)
    assert lab.end(committed=committed, producer_id=-1, epoch=32766) == EndReply(MAPPING)
    assert lab.records == []


@pytest.mark.parametrize("state", PREPARED)
def test_second_version_waits_for_an_end_before_anything_is_judged(state: TransactionState) -> None:
    lab = _lab(state)
    for producer_id, epoch in ((ID, 2), (ID, 3), (8, 0), (ID, 1)):
        assert lab.end(committed=True, producer_id=producer_id, epoch=epoch) == EndReply(CONCURRENT)


@pytest.mark.parametrize("state", [COMPLETE_COMMIT, COMPLETE_ABORT])
@pytest.mark.parametrize("committed", [COMMIT, ABORT])
def test_where_the_end_kept_the_epoch_the_one_below_is_a_fenced_producers(
    state: TransactionState, committed: bool
) -> None:
    lab = _lab(state, client_version=0)
    assert lab.end(committed=committed, epoch=2) == EndReply(FENCED)


@pytest.mark.parametrize("committed", [COMMIT, ABORT])
def test_a_whole_transaction_of_the_second_version(committed: bool) -> None:
    lab = _lab(EMPTY)
    assert lab.add(P0, P1, client_version=2) is NONE
    assert lab.end(committed=committed) == EndReply(NONE, ID, 4)
    assert lab.due[0].epoch == 4
    assert lab.add(P0, epoch=4, client_version=2) is CONCURRENT
    lab.mark(P0)
    assert lab.subject.unmarked == {P1}
    assert lab.add(P0, epoch=4, client_version=2) is CONCURRENT
    lab.mark(P1)
    assert lab.end(committed=committed) == EndReply(NONE, ID, 4), "its answer was lost"
    assert lab.end(committed=not committed) == EndReply(INVALID)
    assert lab.add(P0, epoch=3, client_version=2) is FENCED
    assert lab.add(P0, epoch=4, client_version=2) is NONE


@pytest.mark.parametrize("committed", [COMMIT, ABORT])
def test_used_up_epochs_bring_a_new_id_with_the_end(committed: bool) -> None:
    lab = _lab(ONGOING, epoch=32766)
    assert lab.end(committed=committed, epoch=32766) == EndReply(NONE, FRESH, 0)
    assert lab.told()[1:] == (ID, 32767)
    assert (lab.due[0].producer_id, lab.due[0].epoch) == (ID, 32767)
    assert lab.add(P0, producer_id=FRESH, epoch=0, client_version=2) is CONCURRENT
    lab.mark()
    assert lab.told() == (COMPLETE_COMMIT if committed else COMPLETE_ABORT, FRESH, 0)
    assert lab.subject.stored.previous_id == ID
    assert lab.subject.last_epoch == 32766
    assert lab.end(committed=committed, epoch=32766) == EndReply(NONE, FRESH, 0), "its answer was lost"
    assert lab.end(committed=not committed, epoch=32766) == EndReply(INVALID)
    assert lab.end(committed=committed, epoch=32765) == EndReply(MAPPING)
    assert lab.add(P0, producer_id=FRESH, epoch=0, client_version=2) is NONE
    assert lab.end(committed=committed, epoch=32766) == EndReply(MAPPING)


def test_without_a_producer_id_at_hand_an_end_waits() -> None:
    lab = Lab(ids=SpareIds())
    lab.put(ONGOING, P0, epoch=32766)
    assert lab.end(committed=True, epoch=32766) == EndReply(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert lab.told() == (ONGOING, ID, 32766)
    lab.settings.ids.add(55)
    assert lab.end(committed=True, epoch=32766) == EndReply(NONE, 55, 0)


def test_the_first_version_never_needs_a_new_id_to_end() -> None:
    lab = _lab(ONGOING, epoch=32766)
    assert lab.end(committed=True, version=0, epoch=32766) == EndReply(NONE)
    lab.mark()
    assert lab.told() == (COMPLETE_COMMIT, ID, 32766)
    assert lab.init().producer_id == FRESH


@pytest.mark.parametrize(("version", "epoch"), [(0, 3), (2, 4)])
def test_late_news_of_markers_changes_nothing(version: int, epoch: int) -> None:
    """Not even where the next transaction has the same epoch."""
    lab = _lab(ONGOING)
    lab.end(committed=True, version=version)
    old = lab.due[0]
    lab.mark()
    lab.add(P0, epoch=epoch, client_version=version)
    lab.end(committed=False, epoch=epoch, version=version)
    records = len(lab.records)
    lab.due.insert(0, old)
    lab.mark()
    assert lab.subject.state is PREPARE_ABORT
    assert len(lab.records) == records
