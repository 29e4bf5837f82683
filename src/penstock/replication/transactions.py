"""What a leader lets into a transaction, and which markers it obeys: Kafka's rules, about one partition.

A batch may be part of a transaction if one of its producer is open here, or if the coordinator has just said that it
may open one. The answer comes late: a marker may have ended the transaction meanwhile, and a batch behind it would
open one that nobody ever ends. So whoever asks has a guard (`storage.open_transactions`) and shows it with the batch.
"""

from typing import NamedTuple

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.records.batch import BatchHeader
from penstock.records.control import Marker, marker_batch
from penstock.records.relay import RELAY_IDS
from penstock.replication.partition import Partition
from penstock.storage.open_transactions import NONE, Guard

# The last epoch of all: a producer that was fenced under it has its next transaction under another id.
_EPOCH_MAX = 2**15 - 1
# The first version of transactions in which every end raises the epoch.
_SECOND = 2


class MarkerToWrite(NamedTuple):
    """How a transaction ended, as its coordinator tells the leader of each partition that is part of it."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    transaction_version: int  # of the client that ended it

    def batch(self, now_ms: int) -> bytearray:
        marker = Marker(self.committed, self.coordinator_epoch)
        return marker_batch(self.producer_id, self.producer_epoch, marker, now_ms)


def guard_for(partition: Partition, header: BatchHeader, *, is_second: bool) -> Guard | None:
    """For asking the coordinator; None: it need not be asked. ApiError: the batch is refused anyway."""
    log, producer_id, epoch = partition.log, header.producer_id, header.producer_epoch
    if log.find_repeat(header) is not None or log.producers.in_transaction(producer_id, epoch):
        return None
    return log.producers.transactions.guard(producer_id, epoch, header.base_sequence, is_second=is_second)


def check_transactional(partition: Partition, header: BatchHeader, guard: Guard | None) -> None:
    """Whether it may be part of a transaction as things are now; otherwise ApiError."""
    producers, producer_id, epoch = partition.log.producers, header.producer_id, header.producer_epoch
    if partition.log.find_repeat(header) is not None or producers.in_transaction(producer_id, epoch):
        return
    if guard is None or not producers.transactions.is_current(producer_id, guard) or guard.epoch != epoch:
        raise ApiError(
            ErrorCode.INVALID_TXN_STATE, f"producer {producer_id} has no transaction that is open here"
        )
    if producers.has_batches(producer_id, epoch):
        return  # which sequence comes next, the log knows
    first = header.base_sequence
    if first > guard.lowest_sequence or (
        guard.is_second and first != 0 and producers.epoch_of(producer_id) < 0
    ):
        raise ApiError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"sequence {first} of producer {producer_id} comes too early",
        )


def check_abort_by_client(partition: Partition, marker: MarkerToWrite) -> None:
    """Whether a client that is no broker may have it written, as far as the partition can tell; otherwise ApiError.

    It must end just what is open here, and change nothing else: see `services.transactions.hanging`.
    """
    producers, producer_id = partition.log.producers, marker.producer_id
    if marker.committed:
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "only a coordinator may commit")
    known = producers.epoch_of(producer_id)
    if marker.producer_epoch != known:
        raise ApiError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"a marker of epoch {marker.producer_epoch} for producer {producer_id}, which is at {known}",
        )
    if producers.transactions.first_offset(producer_id) == NONE:
        raise ApiError(
            ErrorCode.INVALID_TXN_STATE, f"producer {producer_id} has no transaction that is open here"
        )
    # Kafka's tools write 0 where no coordinator was heard of.
    coordinator_epoch = max(producers.transactions.coordinator_epoch(producer_id), 0)
    if marker.coordinator_epoch != coordinator_epoch:
        raise ApiError(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"producer {producer_id} was last heard of from a coordinator of epoch {coordinator_epoch}",
        )


def check_marker(partition: Partition, marker: MarkerToWrite) -> None:
    """Whether it is obeyed; otherwise ApiError."""
    producers, producer_id = partition.log.producers, marker.producer_id
    if not 0 <= producer_id < RELAY_IDS:
        # Kafka's leaders fail on what is no id, with UNKNOWN_SERVER_ERROR. This is what others are told here who come
        # with an id that was never given out, and nobody tries it again.
        raise ApiError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"a marker for producer {producer_id}: there is none"
        )
    if marker.coordinator_epoch < producers.transactions.coordinator_epoch(producer_id):
        raise ApiError(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"a marker of coordinator epoch {marker.coordinator_epoch} for producer {producer_id}: there was a later",
        )
    known, epoch = producers.epoch_of(producer_id), marker.producer_epoch
    is_old = epoch < max(known, 0)
    if marker.transaction_version >= _SECOND and epoch == known != _EPOCH_MAX:
        # It raises the epoch: the same one again is a repeat, unless there is something that it would end.
        is_old = producers.transactions.first_offset(producer_id) != NONE
    if is_old:
        raise ApiError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"a marker of epoch {epoch} for producer {producer_id}, which is at {known}",
        )


def is_left_out(partition: Partition, producer_id: int) -> bool:
    """Whether a marker of this producer is obeyed without being written.

    The log knows nothing of it, nobody waits for a word about it, and as many producers are remembered as may be: there
    is nothing to end, and a client could make up ever new ones. Refused, it would hold up a transaction that wrote
    nothing here. (Kafka writes it and remembers the producer, without a bound.) A batch of the past that comes later is
    refused by the producer's coordinator, who is asked about everything that would open a transaction.
    """
    producers = partition.log.producers
    return not producers.takes(producer_id) and not producers.transactions.is_asked_for(producer_id)
