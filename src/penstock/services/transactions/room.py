"""Whether a broker takes more transactional ids, and partitions into transactions: what is there goes on."""

import logging

from penstock.core.limits import (
    TRANSACTION_PARTITION_BYTES,
    TRANSACTIONS_BYTES_MAX,
    TRANSACTIONS_RESERVE_BYTES,
)
from penstock.services.transactions.kind import TransactionCoordinator

logger = logging.getLogger(__name__)

# How often it is said that some are turned away.
_TOLD_EVERY_SECONDS = 60.0


class TransactionRoom:
    def __init__(self, runtime: TransactionCoordinator) -> None:
        self._runtime = runtime
        self._told_at = float("-inf")

    def has_for_id(self, now: float) -> bool:
        """For one that is not there yet."""
        return self._told(self._runtime.size_bytes <= TRANSACTIONS_BYTES_MAX, "transactional ids", now)

    def has_for_partitions(self, count: int, now: float) -> bool:
        """For so many more in a transaction of an id that is there."""
        # They are counted twice: once more when each of them waits for its marker.
        wanted = self._runtime.size_bytes + 2 * count * TRANSACTION_PARTITION_BYTES
        return self._told(wanted <= TRANSACTIONS_BYTES_MAX + TRANSACTIONS_RESERVE_BYTES, "partitions", now)

    def _told(self, has_room: bool, what: str, now: float) -> bool:
        """`has_room`, and once in a while a line when there is none."""
        if not has_room and now >= self._told_at + _TOLD_EVERY_SECONDS:
            self._told_at = now
            logger.error(
                "transactional ids take %d MB of memory, and %d MB are meant for them: %s that are not there yet are "
                "refused, until transactions end or ids expire (transactional.id.expiration.ms)",
                self._runtime.size_bytes >> 20,
                TRANSACTIONS_BYTES_MAX >> 20,
                what,
            )
        return has_room
