"""What happens when nothing happens: transactions that stay open too long, ids that nobody uses."""

from dataclasses import replace

from penstock.core.error_codes import ErrorCode
from penstock.groups.decision import CoordinatorRecord, Decision, Now
from penstock.groups.transactions.ending import fence, hand_markers
from penstock.groups.transactions.layouts import encode_key
from penstock.groups.transactions.requests import TransactionSettings
from penstock.groups.transactions.states import DEAD, IDLE, ONGOING, PREPARED, check_transition
from penstock.groups.transactions.subject import TransactionalId, set_deadline

# Where there is no producer id at hand that an abort needs.
_RETRY_MS = 1000


def expire(subject: TransactionalId, settings: TransactionSettings, now: Now) -> Decision:
    """Everything that is due. Afterwards `subject.earliest` says when to look again."""
    out = Decision()
    if _is_overdue(subject, now):
        if fence(subject, settings, now, out) is not ErrorCode.NONE:
            subject.earliest = now.after_ms(_RETRY_MS)
    elif _is_idle(subject, settings, now):
        _forget(subject, out)
        set_deadline(subject, settings, now)
    else:
        set_deadline(subject, settings, now)
    return out


def _is_overdue(subject: TransactionalId, now: Now) -> bool:
    stored = subject.stored
    return stored.state is ONGOING and stored.started_ms + stored.timeout_ms < now.wall_ms


def _is_idle(subject: TransactionalId, settings: TransactionSettings, now: Now) -> bool:
    stored = subject.stored
    return (
        stored.state in IDLE and not subject.is_unborn and now.wall_ms - stored.updated_ms >= settings.idle_ms
    )


def _forget(subject: TransactionalId, out: Decision) -> None:
    stored = subject.stored
    check_transition(subject.id, stored.state, DEAD, stored.client_version)
    subject.become(replace(stored, state=DEAD), subject.last_epoch)
    out.records.append(CoordinatorRecord(encode_key(subject.id), None))


def begin(subject: TransactionalId, settings: TransactionSettings, now: Now) -> Decision:
    """It was read back. Of an end that was prepared all markers are due again: nobody knows which were written."""
    out = Decision()
    if subject.state not in PREPARED:
        set_deadline(subject, settings, now)
    elif subject.handed is None:
        hand_markers(subject, settings, now, out)
    return out
