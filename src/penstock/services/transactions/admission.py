"""What of a transactional producer's request may be written: its coordinator is asked where no transaction is open yet.

Clients of the first kind of transactions have told the coordinator of the partition before; those of the second leave
that to us. Once one batch of a transaction is in a partition, the log knows it, and nobody is asked.
"""

import asyncio
from collections.abc import Mapping

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.services.transactions.verifying import Place, TransactionVerifier
from penstock.storage.open_transactions import Guard

# How often, and until when, a coordinator is asked again that is still about to end the transaction before.
_CONCURRENT_RETRY_SECONDS = 0.02
_CONCURRENT_SECONDS_MAX = 0.1

# Where the coordinator cannot be asked now: clients try the batch again.
_LATER = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class Admission:
    """Of one request."""

    __slots__ = ("_guards", "_refused")

    def __init__(self, guards: Mapping[Place, Guard | None], refused: Mapping[Place, ErrorCode]) -> None:
        self._guards = guards
        self._refused = refused

    def guard(self, place: Place) -> Guard | None:
        """To be shown with the batch; None: it needs none. ApiError: it is not to be written."""
        if (code := self._refused.get(place)) is not None:
            raise ApiError(
                code, "the transaction's coordinator does not say that the partition is part of it"
            )
        return self._guards.get(place)


# Where nobody had to be asked: the log knows the transaction.
ADMITTED = Admission({}, {})


async def admitted(
    verifier: TransactionVerifier,
    transactional_id: str,
    producer: tuple[int, int],
    guards: Mapping[Place, Guard | None],
    *,
    adds: bool,
    names_abortable: bool,
) -> Admission:
    """Ask for those that have a guard. `adds`: the coordinator takes them in; else it only says whether they are.

    `names_abortable`: the client knows TRANSACTION_ABORTABLE.
    """
    places = [place for place, guard in guards.items() if guard is not None]
    loop = asyncio.get_running_loop()
    until = loop.time() + _CONCURRENT_SECONDS_MAX
    while True:
        told = await verifier.verify(transactional_id, *producer, places, adds=adds)
        is_concurrent = ErrorCode.CONCURRENT_TRANSACTIONS in told.values()
        if not (adds and is_concurrent) or loop.time() >= until:
            break
        await asyncio.sleep(_CONCURRENT_RETRY_SECONDS)
    refused = {
        place: _as_told_to_clients(told.get(place, ErrorCode.NETWORK_EXCEPTION), adds, names_abortable)
        for place in places
        if told.get(place) is not ErrorCode.NONE
    }
    return Admission(guards, refused)


def _as_told_to_clients(code: ErrorCode, adds: bool, names_abortable: bool) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code in _LATER or (code is ErrorCode.CONCURRENT_TRANSACTIONS and not adds):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if code is ErrorCode.TRANSACTION_ABORTABLE and not names_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return code
