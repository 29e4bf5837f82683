"""Who is asked whether a partition is part of a transaction: the coordinator of its transactional id, wherever."""

from collections.abc import Iterable
from typing import Protocol

from penstock.core.error_codes import ErrorCode

Place = tuple[str, int]  # topic, partition


class TransactionVerifier(Protocol):
    async def verify(
        self, transactional_id: str, producer_id: int, epoch: int, places: Iterable[Place], *, adds: bool
    ) -> dict[Place, ErrorCode]:
        """For each place whether it is part of the producer's open transaction; where it `adds`, it is from now on.

        NONE: it is. Codes are the coordinator's own, or NETWORK_EXCEPTION where it did not answer.
        """
