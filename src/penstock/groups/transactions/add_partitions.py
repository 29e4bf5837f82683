"""AddPartitionsToTxn and AddOffsetsToTxn: what a transaction writes to is known here before anything is written.

Clients of the first version add partitions themselves, before they write to them; in the second the partitions'
leaders do. Leaders also ask, without adding, whether a partition is in the transaction (VerifyOnly). A group's offsets
are a partition of `__consumer_offsets`.
"""

from dataclasses import replace

from penstock.core.error_codes import ErrorCode
from penstock.core.internal_topics import OFFSETS_TOPIC
from penstock.groups.decision import Decision, Now, Ticket
from penstock.groups.partitioning import partition_of
from penstock.groups.transactions.layouts import TopicPartition
from penstock.groups.transactions.requests import AddOffsets, AddPartitions, TransactionSettings
from penstock.groups.transactions.states import ONGOING, PREPARED
from penstock.groups.transactions.subject import TransactionalId, move, record_of

# By so much the record may still grow when the transaction ends: it must never be too large to be ended.
_END_BYTES = 100


def add_partitions(
    subject: TransactionalId | None,
    request: AddPartitions,
    ticket: Ticket,
    settings: TransactionSettings,
    now: Now,
) -> Decision:
    """The reply is one code for all of them."""
    out = Decision()
    out.reply(ticket, _add(subject, request, settings, now, out))
    return out


def add_offsets(
    subject: TransactionalId | None,
    request: AddOffsets,
    ticket: Ticket,
    settings: TransactionSettings,
    now: Now,
) -> Decision:
    """Only clients of the first version ask for it: leaders add it for the others, as any partition."""
    partition = TopicPartition(OFFSETS_TOPIC, partition_of(request.group_id, request.offsets_partitions))
    adding = AddPartitions(request.producer_id, request.epoch, frozenset((partition,)))
    return add_partitions(subject, adding, ticket, settings, now)


def verify_partitions(subject: TransactionalId | None, request: AddPartitions, ticket: Ticket) -> Decision:
    """The reply has a code for each; nothing changes. An end that is under way is told by the state alone."""
    out = Decision()
    error = _check_producer(subject, request)
    codes = dict.fromkeys(sorted(request.partitions), error)
    if subject is not None and error is ErrorCode.NONE:
        for partition in codes.keys() - subject.stored.partitions:
            codes[partition] = ErrorCode.TRANSACTION_ABORTABLE
    out.reply(ticket, codes)
    return out


def _check_producer(subject: TransactionalId | None, request: AddPartitions) -> ErrorCode:
    if subject is None or request.producer_id != subject.stored.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if request.epoch != subject.stored.epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.CONCURRENT_TRANSACTIONS if subject.state in PREPARED else ErrorCode.NONE


def _add(
    subject: TransactionalId | None,
    request: AddPartitions,
    settings: TransactionSettings,
    now: Now,
    out: Decision,
) -> ErrorCode:
    # First of all: it may be the next transaction's, under the producer id that the completion is about to bring.
    if subject is not None and subject.pending is not None:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    error = _check_producer(subject, request)
    if subject is None or error is not ErrorCode.NONE:
        return error
    stored = subject.stored
    is_open = stored.state is ONGOING
    if is_open and request.partitions <= stored.partitions:
        return ErrorCode.NONE
    after = replace(
        stored,
        state=ONGOING,
        partitions=stored.partitions | request.partitions,
        started_ms=stored.started_ms if is_open else now.wall_ms,
        updated_ms=now.wall_ms,
        client_version=request.client_version,
    )
    record = record_of(subject.id, after, settings.level)
    if len(record.key) + len(record.value or b"") + _END_BYTES > settings.record_bytes_max:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    move(subject, after, subject.last_epoch, settings, now, out)
    return ErrorCode.NONE
