"""What compaction does with transactions, as Apache Kafka does it.

Records of an aborted transaction go at once and replace nothing. The marker that ends a transaction is needed as long
as there are records of it: in the first round that finds none it gets a delete horizon, as a tombstone does, and goes
when that has passed; replicas that were away meanwhile have missed it, as they would a tombstone (ADR 14). Only
transactions that have ended are ever compacted: nothing above the last stable offset is.
"""

from collections.abc import Iterable

from penstock.records.batch import BatchHeader
from penstock.storage.aborted_transactions import AbortedTransaction


class CleanedTransactions:
    """Told of the batches of one round, in their order."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._aborted: dict[int, list[AbortedTransaction]] = {}
        for transaction in aborted:
            self._aborted.setdefault(transaction.producer_id, []).append(transaction)
        self._with_records: set[int] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        if not header.is_transactional or header.is_control:
            return False
        known = self._aborted.get(header.producer_id, ())
        return any(
            transaction.first_offset <= header.base_offset < transaction.last_offset for transaction in known
        )

    def saw_records(self, header: BatchHeader) -> None:
        if header.is_transactional:
            self._with_records.add(header.producer_id)

    def is_marker_of_nothing(self, header: BatchHeader) -> bool:
        """Whether a control batch ends a transaction of which no batch was left when the round began."""
        if header.producer_id in self._with_records:
            self._with_records.remove(header.producer_id)
            return False
        return True
