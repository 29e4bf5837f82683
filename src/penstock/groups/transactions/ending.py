"""The two steps of every end, whoever wants it: prepare it, and complete it when all partitions have their markers.

Prepare is for good from the moment its record is committed. Only then do markers leave, as a reply to whoever writes
them; they carry the producer id and epoch of the Prepare record. Under the second version of transactions every end
raises the epoch, so that what is still under way from this transaction cannot get into the next. Where the epochs of a
producer id are used up, Prepare holds the highest and the next producer id; the completion brings that into use.

    epoch   32765           32766           32767, next id 9    id 9, epoch 0
            Ongoing -> ...  Ongoing   ->    Prepare        ->   Complete
"""

from collections.abc import Iterable
from dataclasses import replace

from penstock.core.error_codes import ErrorCode
from penstock.groups.decision import Decision, Now
from penstock.groups.transactions.layouts import NO_EPOCH, NO_ID, TopicPartition
from penstock.groups.transactions.requests import MarkersDue, TransactionSettings
from penstock.groups.transactions.states import (
    BUMPING_VERSION,
    COMPLETION,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
)
from penstock.groups.transactions.subject import EPOCH_MAX, TransactionalId, move


def prepare(
    subject: TransactionalId,
    client_version: int,
    settings: TransactionSettings,
    now: Now,
    out: Decision,
    *,
    committed: bool,
) -> ErrorCode:
    """An end that the producer asked for. COORDINATOR_LOAD_IN_PROGRESS: nothing was done, for want of a producer id."""
    stored = subject.stored
    epoch, last_epoch, next_id = stored.epoch, subject.last_epoch, NO_ID
    if client_version >= BUMPING_VERSION:
        if subject.is_exhausted:
            next_id = settings.ids.take()
            if next_id == NO_ID:
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        epoch, last_epoch = min(stored.epoch + 1, EPOCH_MAX), stored.epoch
    _prepare(subject, epoch, last_epoch, next_id, client_version, settings, now, out, committed=committed)
    return ErrorCode.NONE


def fence(subject: TransactionalId, settings: TransactionSettings, now: Now, out: Decision) -> ErrorCode:
    """Abort an open transaction over its producer's head: the epoch is raised, whatever the producer speaks.

    From level 2 on as at any abort, once, so that a producer that was only slow finds back with the epoch it has.
    Below, whoever had the old epoch is out for good.
    """
    if settings.level >= BUMPING_VERSION:
        return prepare(subject, settings.level, settings, now, out, committed=False)
    epoch = min(subject.stored.epoch + 1, EPOCH_MAX)
    _prepare(subject, epoch, NO_EPOCH, NO_ID, settings.level, settings, now, out, committed=False)
    return ErrorCode.NONE


def _prepare(
    subject: TransactionalId,
    epoch: int,
    last_epoch: int,
    next_id: int,
    client_version: int,
    settings: TransactionSettings,
    now: Now,
    out: Decision,
    *,
    committed: bool,
) -> None:
    stored = subject.stored
    after = replace(
        stored,
        state=PREPARE_COMMIT if committed else PREPARE_ABORT,
        epoch=epoch,
        next_id=next_id,
        # One that was never begun has no start of its own; Kafka's tools want one.
        started_ms=stored.started_ms if stored.state is ONGOING else now.wall_ms,
        updated_ms=now.wall_ms,
        client_version=client_version,
    )
    move(subject, after, last_epoch, settings, now, out)
    hand_markers(subject, settings, now, out)


def hand_markers(subject: TransactionalId, settings: TransactionSettings, now: Now, out: Decision) -> None:
    """Of an end that was prepared, now or before it was loaded; one without partitions is complete at once."""
    if subject.unmarked:
        subject.handed = subject.markers_due()
        out.reply(settings.markers, subject.handed)
    else:
        _complete(subject, settings, now, out)


def marked(
    subject: TransactionalId,
    due: MarkersDue,
    partitions: Iterable[TopicPartition],
    settings: TransactionSettings,
    now: Now,
) -> Decision:
    """These partitions have their marker, or are gone. News of an end that is over is no news."""
    out = Decision()
    if due is subject.handed:
        subject.unmarked.difference_update(partitions)
        if not subject.unmarked:
            _complete(subject, settings, now, out)
    return out


def _complete(subject: TransactionalId, settings: TransactionSettings, now: Now, out: Decision) -> None:
    stored = subject.stored
    producer_id, epoch = goes_on_with(subject)
    after = replace(
        stored,
        state=COMPLETION[stored.state],
        producer_id=producer_id,
        epoch=epoch,
        next_id=NO_ID,
        partitions=frozenset(),
        updated_ms=now.wall_ms,
    )
    # Of a rotation the producer has seen the last epoch it was given, not the one above it.
    move(subject, after, subject.last_epoch, settings, now, out)


def goes_on_with(subject: TransactionalId) -> tuple[int, int]:
    """The producer id and epoch that the next transaction will have."""
    stored = subject.stored
    return (stored.producer_id, stored.epoch) if stored.next_id == NO_ID else (stored.next_id, 0)
