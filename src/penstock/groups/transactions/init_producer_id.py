"""InitProducerId with a transactional id: whoever asks is its producer from now on, and all before it are fenced.

A producer that goes on after an error names the producer id and epoch it has: it is served only while no other has come
since. An open transaction is aborted first, and the caller told to come again.
"""

from dataclasses import replace

from penstock.core.error_codes import ErrorCode
from penstock.groups.decision import Decision, Now, Ticket
from penstock.groups.transactions.ending import fence
from penstock.groups.transactions.layouts import NO_EPOCH, NO_ID, NO_TIME
from penstock.groups.transactions.requests import InitProducerId, InitReply, TransactionSettings
from penstock.groups.transactions.states import EMPTY, ONGOING, PREPARED
from penstock.groups.transactions.subject import EPOCH_GIVEN_MAX, TransactionalId, move


def check_request(request: InitProducerId, settings: TransactionSettings) -> ErrorCode:
    """What is wrong with it, whatever it is about."""
    if (request.producer_id == NO_ID) != (request.epoch == NO_EPOCH) or not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if request.enable_two_phase:  # `transaction.two.phase.commit.enable` cannot be set
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if request.keep_prepared:
        return ErrorCode.UNSUPPORTED_VERSION
    if not 0 < request.timeout_ms <= settings.timeout_max_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE


def init_producer_id(
    subject: TransactionalId, request: InitProducerId, ticket: Ticket, settings: TransactionSettings, now: Now
) -> Decision:
    """For a new transactional id an unborn subject."""
    out = Decision()
    error = check_request(request, settings)
    reply = InitReply(error) if error else _decide(subject, request, settings, now, out)
    out.reply(ticket, reply)
    return out


def _decide(
    subject: TransactionalId, request: InitProducerId, settings: TransactionSettings, now: Now, out: Decision
) -> InitReply:
    if subject.pending is not None:
        return InitReply(ErrorCode.CONCURRENT_TRANSACTIONS)
    if request.names_producer and not _may_be_the_producer(subject, request):
        return InitReply(ErrorCode.PRODUCER_FENCED)
    if subject.state in PREPARED:
        return InitReply(ErrorCode.CONCURRENT_TRANSACTIONS)
    if subject.state is ONGOING:
        return InitReply(fence(subject, settings, now, out) or ErrorCode.CONCURRENT_TRANSACTIONS)
    return _renew(subject, request, settings, now, out)


def _may_be_the_producer(subject: TransactionalId, request: InitProducerId) -> bool:
    stored = subject.stored
    if subject.is_unborn or request.producer_id == stored.producer_id:
        return True
    # It may not have heard of its new id, which came when the epochs of the old one were used up.
    return request.producer_id == stored.previous_id and request.epoch >= EPOCH_GIVEN_MAX


def _renew(
    subject: TransactionalId, request: InitProducerId, settings: TransactionSettings, now: Now, out: Decision
) -> InitReply:
    stored = subject.stored
    producer_id, epoch, last_epoch = stored.producer_id, stored.epoch + 1, NO_EPOCH
    if request.names_producer and not subject.is_unborn:
        if request.epoch == stored.epoch:
            last_epoch = stored.epoch
        elif request.epoch == subject.last_epoch:  # it has not heard our answer: here it is again
            epoch, last_epoch = stored.epoch, subject.last_epoch
        else:
            return InitReply(ErrorCode.PRODUCER_FENCED)
    if subject.is_unborn or epoch > EPOCH_GIVEN_MAX:
        producer_id, epoch = settings.ids.take(), 0
        if producer_id == NO_ID:
            return InitReply(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    after = replace(
        stored,
        state=EMPTY,
        producer_id=producer_id,
        epoch=epoch,
        timeout_ms=request.timeout_ms,
        partitions=frozenset(),
        updated_ms=now.wall_ms,
        started_ms=NO_TIME,
    )
    move(subject, after, last_epoch, settings, now, out)
    return InitReply(ErrorCode.NONE, producer_id, epoch)
