"""What a transactional producer is told when its coordinator does not let a batch in, or cannot be asked."""

import asyncio
from collections.abc import Iterable

import pytest

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.services.transactions.admission import Admission, admitted
from penstock.services.transactions.verifying import Place
from penstock.storage.open_transactions import Guard
from penstock.testing.sim_loop import SimLoop

PLACE, OTHER = ("t", 0), ("t", 1)
GUARD = Guard(0, 0, is_second=True)
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS


class Coordinator:
    """A `TransactionVerifier` that says what it is told to say."""

    def __init__(self, *says: ErrorCode) -> None:
        self.says = list(says)
        self.asked: list[list[Place]] = []

    async def verify(
        self, transactional_id: str, producer_id: int, epoch: int, places: Iterable[Place], *, adds: bool
    ) -> dict[Place, ErrorCode]:
        assert (transactional_id, producer_id, epoch) == ("x", 7, 3)
        del adds
        self.asked.append(list(places))
        code = self.says.pop(0) if len(self.says) > 1 else self.says[0]
        return dict.fromkeys(self.asked[-1], code)


def ask(coordinator: Coordinator, *, second: bool, names_abortable: bool = True) -> Admission:
    loop = SimLoop(1)
    guards = {PLACE: GUARD, OTHER: None}

    async def asking() -> Admission:
        return await admitted(coordinator, "x", (7, 3), guards, adds=second, names_abortable=names_abortable)

    return loop.run_until_complete(asyncio.ensure_future(asking(), loop=loop))


def refusal(admission: Admission) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        admission.guard(PLACE)
    return refused.value.code


def test_only_those_that_need_a_word_are_asked_for() -> None:
    coordinator = Coordinator(ErrorCode.NONE)
    admission = ask(coordinator, second=True)
    assert coordinator.asked == [[PLACE]]
    assert admission.guard(PLACE) is GUARD
    assert admission.guard(OTHER) is None


@pytest.mark.parametrize(
    ("told", "second", "names_abortable", "expected"),
    [
        (ErrorCode.PRODUCER_FENCED, True, True, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.NETWORK_EXCEPTION, True, True, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, False, True, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, False, False, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.TRANSACTION_ABORTABLE, False, True, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, False, False, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, True, True, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (CONCURRENT, False, True, ErrorCode.NOT_ENOUGH_REPLICAS),
        (CONCURRENT, True, True, CONCURRENT),
    ],
)
def test_codes_are_kafkas(told: ErrorCode, second: bool, names_abortable: bool, expected: ErrorCode) -> None:
    assert refusal(ask(Coordinator(told), second=second, names_abortable=names_abortable)) is expected


def test_the_end_of_the_transaction_before_is_waited_for_a_moment_in_the_second_kind_alone() -> None:
    coordinator = Coordinator(CONCURRENT, CONCURRENT, ErrorCode.NONE)
    assert ask(coordinator, second=True).guard(PLACE) is GUARD
    assert len(coordinator.asked) == 3
    coordinator = Coordinator(CONCURRENT, ErrorCode.NONE)
    assert refusal(ask(coordinator, second=False)) is ErrorCode.NOT_ENOUGH_REPLICAS
