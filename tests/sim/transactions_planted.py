"""Bugs of transactions to be planted into the simulated cluster; each of them some real system has had, or nearly."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from tests.sim.cluster_planted import Plant

from penstock.core.error_codes import ErrorCode
from penstock.groups.state import CoordinatorState
from penstock.groups.transactions.requests import MarkersDue
from penstock.services.coordinator.pending_reply import PendingReply
from penstock.services.coordinator.shard import Shard
from penstock.services.transactions.verifier import CoordinatorVerifier
from penstock.services.transactions.verifying import Place
from penstock.storage.aborted_transactions import AbortedTransactions
from penstock.storage.open_transactions import Guard, OpenTransactions


def marks_before_prepare_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Markers leave as soon as an end is decided."""
    honest = Shard.answer

    def answer(shard: Shard[Any, Any], later: PendingReply, reply: object) -> None:
        if isinstance(reply, MarkersDue):
            later.fill(reply)
        else:
            honest(shard, later, reply)

    monkeypatch.setattr(Shard, "answer", answer)


def verifies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a client of the first kind says it has added is believed."""
    honest = CoordinatorVerifier.verify

    async def verify(
        verifier: CoordinatorVerifier,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        places: Iterable[Place],
        *,
        adds: bool,
    ) -> dict[Place, ErrorCode]:
        if not adds:
            return dict.fromkeys(places, ErrorCode.NONE)
        return await honest(verifier, transactional_id, producer_id, epoch, places, adds=adds)

    monkeypatch.setattr(CoordinatorVerifier, "verify", verify)


def takes_any_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator's answer counts, whatever came into the log since it was asked."""

    def is_current(_: OpenTransactions, _producer_id: int, guard: Guard | None) -> bool:
        return guard is not None

    monkeypatch.setattr(OpenTransactions, "is_current", is_current)


def goes_by_the_last_that_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last stable offset is where the transaction begins that was opened last."""
    honest = OpenTransactions.first_unstable

    def first_unstable(transactions: OpenTransactions, high_watermark: int) -> int | None:
        honest(transactions, high_watermark)
        return next(reversed(transactions.unstable), None)

    monkeypatch.setattr(OpenTransactions, "first_unstable", first_unstable)


def forgets_the_next_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was aborted is looked for in the segment that is read, and not where its marker is."""
    honest = AbortedTransactions._from

    def bases(aborted: AbortedTransactions, offset: int) -> Iterator[int]:
        yield from list(honest(aborted, offset))[:1]

    monkeypatch.setattr(AbortedTransactions, "_from", bases)


def applies_offsets_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offsets count before the transaction has ended that they are a part of."""
    honest = CoordinatorState.apply

    def apply(
        state: CoordinatorState,
        key: bytes | None,
        value: bytes | None,
        offset: int = -1,
        producer_id: int = -1,
    ) -> bool:
        del producer_id
        return honest(state, key, value, offset)

    monkeypatch.setattr(CoordinatorState, "apply", apply)


PLANTED: list[Plant] = [
    marks_before_prepare_is_committed,
    verifies_nothing,
    takes_any_guard,
    goes_by_the_last_that_is_open,
    forgets_the_next_segment,
    applies_offsets_at_once,
]
