"""EndTxn: the producer commits or aborts. The two kinds of client have rules of their own.

Until version 4 the epoch stays, so a request that was delayed looks like one of the next transaction; nothing here can
tell them apart. From version 5 on every end raises it. A request with the epoch before the current one is then a
repeat, whose answer was lost, and one with the current epoch is the next transaction's end.
"""

from penstock.core.error_codes import ErrorCode
from penstock.groups.decision import Decision, Now, Ticket
from penstock.groups.transactions.ending import goes_on_with, prepare
from penstock.groups.transactions.layouts import NO_ID
from penstock.groups.transactions.requests import End, EndReply, TransactionSettings
from penstock.groups.transactions.states import (
    BUMPING_VERSION,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    COMPLETED,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED,
)
from penstock.groups.transactions.subject import EPOCH_GIVEN_MAX, TransactionalId

_COMMITTED = (PREPARE_COMMIT, COMPLETE_COMMIT)
_ABORTED = (PREPARE_ABORT, COMPLETE_ABORT)


def end(
    subject: TransactionalId | None, request: End, ticket: Ticket, settings: TransactionSettings, now: Now
) -> Decision:
    out = Decision()
    if subject is None:
        out.reply(ticket, EndReply(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
        return out
    bumps = request.client_version >= BUMPING_VERSION
    error = (_check_bumping if bumps else _check)(subject, request)
    if error is None:
        error = prepare(subject, request.client_version, settings, now, out, committed=request.committed)
    going_on = goes_on_with(subject) if bumps and error is ErrorCode.NONE else ()
    out.reply(ticket, EndReply(error, *going_on))
    return out


def _check(subject: TransactionalId, request: End) -> ErrorCode | None:
    """Versions 0 to 4. None: the end is to be prepared; otherwise the answer."""
    stored = subject.stored
    if request.producer_id != stored.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if request.epoch != stored.epoch:
        return ErrorCode.PRODUCER_FENCED
    if subject.pending is not None:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if stored.state is ONGOING:
        return None
    return _repeated(subject, request)


def _check_bumping(subject: TransactionalId, request: End) -> ErrorCode | None:
    """Version 5. None: the end is to be prepared; otherwise the answer."""
    if subject.pending is not None:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    stored = subject.stored
    rotated = _is_repeat_over_rotation(subject, request)
    if request.producer_id != stored.producer_id and not rotated:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    repeats = rotated or _is_repeat(subject, request)
    is_current = request.epoch == stored.epoch and not rotated
    if not (
        (is_current and stored.state not in PREPARED) or (repeats and stored.state in PREPARED | COMPLETED)
    ):
        return ErrorCode.PRODUCER_FENCED
    if repeats:
        return _repeated(subject, request)
    if stored.state is ONGOING or not request.committed:
        return None
    return ErrorCode.INVALID_TXN_STATE  # nothing was written that could be committed


def _is_repeat(subject: TransactionalId, request: End) -> bool:
    stored = subject.stored
    # Where the end before did not raise the epoch, the one below is another producer's, which was fenced.
    return stored.epoch == request.epoch + 1 and stored.client_version >= BUMPING_VERSION


def _is_repeat_over_rotation(subject: TransactionalId, request: End) -> bool:
    stored = subject.stored
    return (
        request.producer_id == stored.previous_id != NO_ID
        and request.epoch == EPOCH_GIVEN_MAX
        and stored.epoch == 0
    )


def _repeated(subject: TransactionalId, request: End) -> ErrorCode:
    """Of an end that was decided before, or of none."""
    if subject.state not in (_COMMITTED if request.committed else _ABORTED):
        return ErrorCode.INVALID_TXN_STATE
    return ErrorCode.CONCURRENT_TRANSACTIONS if subject.state in PREPARED else ErrorCode.NONE
