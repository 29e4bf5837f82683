"""Transactions that stay open too long, ids that nobody uses, and what is read back."""

import pytest
from tests.unit.groups.transactions.lab import FRESH, ID, IDLE_MS, P0, P1, TIMEOUT_MS, Lab

from penstock.core.error_codes import ErrorCode
from penstock.groups.decision import NEVER
from penstock.groups.transactions.error_names import Api, error_for
from penstock.groups.transactions.layouts import encode_key
from penstock.groups.transactions.requests import EndReply, InitReply, SpareIds
from penstock.groups.transactions.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TRANSITIONS,
    IllegalTransition,
    TransactionState,
    check_transition,
)
from penstock.groups.transactions.subject import TransactionalId

NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED


def _open(**settings: object) -> Lab:
    lab = Lab(**settings)
    lab.put(EMPTY)
    lab.add(P0)
    return lab


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_transaction_is_aborted_when_its_time_is_up(level: int) -> None:
    lab = _open(level=level)
    lab.pass_ms(TIMEOUT_MS)
    assert lab.told() == (ONGOING, ID, 3)
    lab.pass_ms(1)
    assert lab.told() == (PREPARE_ABORT, ID, 4)
    assert lab.due[0].epoch == 4
    assert lab.end(committed=True, version=0) == EndReply(FENCED)
    lab.mark()
    assert lab.told() == (COMPLETE_ABORT, ID, 4)
    assert lab.add(P0) == FENCED
    assert lab.verify(P0) == {P0: FENCED}
    assert lab.end(committed=True, version=0) == EndReply(FENCED)
    # One that was only slow finds back where the epoch before is kept; nobody else has come.
    assert lab.init(ID, 3) == (InitReply(NONE, ID, 4) if level == 2 else InitReply(FENCED))


def test_one_that_began_under_a_clock_that_was_ahead_is_open_no_longer_than_others() -> None:
    lab = Lab()
    started_ms = lab.wall_ms + 3_600_000
    subject = lab.put(ONGOING, P0, started_ms=started_ms, updated_ms=started_ms)
    lab.take(lab.machine.begin(subject, lab.settings, lab.now))
    lab.pass_ms(TIMEOUT_MS)
    assert lab.told() == (ONGOING, ID, 3)
    lab.pass_ms(1)
    assert lab.told() == (PREPARE_ABORT, ID, 4)


def test_a_slow_producer_of_the_second_version_cannot_commit_what_was_aborted() -> None:
    lab = _open()
    lab.pass_ms(TIMEOUT_MS + 1)
    lab.mark()
    assert lab.end(committed=True) == EndReply(ErrorCode.INVALID_TXN_STATE)
    assert lab.end(committed=False) == EndReply(NONE, ID, 4)


def test_an_end_in_time_leaves_nothing_to_abort() -> None:
    lab = _open()
    lab.end(committed=True)
    lab.mark()
    lab.pass_ms(2 * TIMEOUT_MS)
    assert lab.told() == (COMPLETE_COMMIT, ID, 4)
    assert lab.due == []


def test_an_end_that_was_prepared_has_no_deadline() -> None:
    lab = _open()
    lab.end(committed=True)
    lab.pass_ms(10 * IDLE_MS)
    # The timer of the open transaction goes off.
    lab.take(lab.machine.expire(lab.subject, lab.settings, lab.now))
    assert lab.told() == (PREPARE_COMMIT, ID, 4)
    assert lab.subject.earliest == NEVER


def test_an_abort_that_needs_a_producer_id_is_tried_again() -> None:
    lab = Lab(ids=SpareIds())
    lab.put(EMPTY, epoch=32766)
    lab.add(P0, epoch=32766)
    lab.pass_ms(TIMEOUT_MS + 1000)
    assert lab.told() == (ONGOING, ID, 32766)
    lab.settings.ids.add(FRESH)
    lab.pass_ms(1000)
    assert lab.told() == (PREPARE_ABORT, ID, 32767)
    lab.mark()
    assert lab.told() == (COMPLETE_ABORT, FRESH, 0)


@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_an_id_that_nobody_uses_is_forgotten(state: TransactionState) -> None:
    lab = Lab()
    subject = lab.put(state)
    lab.take(lab.machine.begin(subject, lab.settings, lab.now))
    lab.pass_ms(IDLE_MS - 1)
    assert lab.records == []
    lab.pass_ms(1)
    assert lab.records == [(encode_key("x"), None)]
    assert lab.machine.find("x") is None
    assert subject.state is DEAD
    assert not lab.machine.holds(subject)
    assert (lab.machine.size_bytes, lab.machine.subjects_bytes) == (0, 0)
    assert lab.add(P0) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_an_open_transaction_is_never_idle() -> None:
    lab = Lab(idle_ms=10)
    lab.put(EMPTY)
    lab.add(P0)
    lab.pass_ms(TIMEOUT_MS)
    assert lab.told() == (ONGOING, ID, 3)


# -- read back ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("committed", [True, False])
def test_the_markers_of_an_end_that_was_prepared_are_due_again(committed: bool) -> None:
    lab = Lab()
    lab.put(ONGOING, P0, P1)
    lab.end(committed=committed)
    lab.mark(P0)
    lab.reload()
    assert lab.end(committed=committed, epoch=3) == EndReply(ErrorCode.CONCURRENT_TRANSACTIONS)
    (due,) = lab.due
    assert (due.partitions, due.epoch, due.committed) == ({P0, P1}, 4, committed)
    lab.take(lab.machine.begin(lab.subject, lab.settings, lab.now))
    assert len(lab.due) == 1, "they are with whoever writes them"
    lab.mark()
    assert lab.told() == (COMPLETE_COMMIT if committed else COMPLETE_ABORT, ID, 4)


def test_a_rotation_survives_a_reload() -> None:
    lab = Lab()
    lab.put(ONGOING, P0, epoch=32766)
    lab.end(committed=True, epoch=32766)
    lab.reload()
    assert lab.add(P0, producer_id=FRESH, epoch=0) == ErrorCode.CONCURRENT_TRANSACTIONS
    lab.mark()
    lab.reload()
    assert lab.told() == (COMPLETE_COMMIT, FRESH, 0)
    assert lab.end(committed=True, epoch=32766) == EndReply(NONE, FRESH, 0)


def test_stored_starts_count_on() -> None:
    lab = _open()
    lab.pass_ms(TIMEOUT_MS // 2)
    lab.reload()
    lab.pass_ms(TIMEOUT_MS // 2)
    assert lab.told() == (ONGOING, ID, 3)
    lab.pass_ms(1)
    assert lab.told() == (PREPARE_ABORT, ID, 4)


def test_the_epoch_before_is_lost_with_the_memory() -> None:
    lab = Lab()
    lab.init()
    assert lab.init(FRESH, 0) == lab.init(FRESH, 0) == InitReply(NONE, FRESH, 1)
    lab.reload()
    assert lab.init(FRESH, 0) == InitReply(FENCED)


# -- the tables ---------------------------------------------------------------------------------------------


def test_moves_that_are_not_in_the_table_raise() -> None:
    for before in TransactionState:
        for after in TransactionState:
            if after in TRANSITIONS[before]:
                check_transition("x", before, after, 2)
            else:
                with pytest.raises(IllegalTransition):
                    check_transition("x", before, after, 2)
    for before in (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT):
        with pytest.raises(IllegalTransition):
            check_transition("x", before, PREPARE_ABORT, 1)


def test_legal_moves_are_kafkas() -> None:
    """As its coordinator lists them, from the target's side; the fence that is never stored is one step here."""
    idle = {EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}
    sources = {
        after: {before for before in TRANSITIONS if after in TRANSITIONS[before]} for after in TRANSITIONS
    }
    assert sources == {
        EMPTY: idle,
        ONGOING: idle | {ONGOING},
        PREPARE_COMMIT: {ONGOING},
        PREPARE_ABORT: idle | {ONGOING},
        COMPLETE_COMMIT: {PREPARE_COMMIT},
        COMPLETE_ABORT: {PREPARE_ABORT},
        DEAD: idle,
    }


def test_older_versions_are_told_of_an_invalid_epoch() -> None:
    since = {Api.INIT_PRODUCER_ID: 4, Api.ADD_PARTITIONS: 2, Api.ADD_OFFSETS: 2, Api.END: 2}
    for api, first in since.items():
        for version in range(6):
            expected = FENCED if version >= first else ErrorCode.INVALID_PRODUCER_EPOCH
            assert error_for(FENCED, api, version) is expected
            assert error_for(ErrorCode.INVALID_TXN_STATE, api, version) is ErrorCode.INVALID_TXN_STATE


def test_a_subject_that_was_refused_is_not_kept() -> None:
    lab = Lab()
    subject = lab.machine.find_or_unborn("x")
    assert subject == TransactionalId("x")
    assert not lab.machine.holds(subject)
    assert list(lab.machine.waiting(subject)) == list(lab.machine.hear_of_topics(lambda _: None)) == []
