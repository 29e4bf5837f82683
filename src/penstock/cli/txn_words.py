"""What `txn` and `why` both say of transactions, for machines."""

from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.diagnosis.transactions import Opened


class TransactionState(StrEnum):
    """As Kafka writes them."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


def opened_json(opened: "Opened") -> dict[str, Any]:
    transaction, owner = opened.transaction, opened.owner
    return {
        "topic": transaction.at.topic,
        "partition": transaction.at.partition,
        "start_offset": transaction.start_offset,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.epoch,
        "coordinator_epoch": transaction.coordinator_epoch,
        "last_written_ms": transaction.written_ms,
        "since_ms": opened.since_ms,
        "transactional_id": owner.id if owner else None,
        "state": owner.state if owner else None,
        "hanging": opened.hangs,
    }
