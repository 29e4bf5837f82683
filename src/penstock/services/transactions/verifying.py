"""Whether a transaction is open and includes a partition: its coordinator knows, whoever is about to write asks."""

from typing import Protocol

from penstock.core.error_codes import ErrorCode


class TransactionVerifier(Protocol):
    async def verify(
        self, transactional_id: str, producer_id: int, epoch: int, topic: str, partition: int, *, adds: bool
    ) -> ErrorCode:
        """NONE: it was when the coordinator answered; a marker may have come since.

        `adds`: a partition that is not part of it yet becomes one (the second protocol of transactions).
        """


class NoTransactions:
    """Where nobody coordinates any."""

    async def verify(
        self, transactional_id: str, producer_id: int, epoch: int, topic: str, partition: int, *, adds: bool
    ) -> ErrorCode:
        del transactional_id, producer_id, epoch, topic, partition, adds
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
