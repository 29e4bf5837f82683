"""Thousands that wait for one record: woken in portions, each once, and others have their turn in between."""

import asyncio

from penstock.core.limits import FETCHES_WOKEN_AT_ONCE
from penstock.services.waking import Waking

MANY = 50 * FETCHES_WOKEN_AT_ONCE


class Sleeper:
    def __init__(self, turns: list[int]) -> None:
        self._turns = turns
        self.is_waiting = True
        self.attempts = 0

    def attempt(self) -> None:
        self.is_waiting = False
        self.attempts += 1
        self._turns[-1] += 1


def story(number: int, *, gone: int = 0) -> tuple[list[int], list[Sleeper]]:
    """How many were woken in each turn of the loop."""

    async def run() -> tuple[list[int], list[Sleeper]]:
        turns = [0]
        sleepers = [Sleeper(turns) for _ in range(number)]
        waking = Waking(asyncio.get_running_loop())
        # As uvloop's does, the clock stands still while a callback runs.
        waking._loop = StandingClock(asyncio.get_running_loop())  # type: ignore[assignment]
        for sleeper in sleepers:
            waking.wake(sleeper)
        for sleeper in sleepers[number - gone :]:
            sleeper.is_waiting = False
        while sum(turns) < number - gone:
            turns.append(0)
            await asyncio.sleep(0)
        return turns, sleepers

    return asyncio.run(run())


class StandingClock:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.call_soon = loop.call_soon

    def time(self) -> float:
        return 1.0


def test_a_few_are_woken_at_once() -> None:
    turns, _ = story(FETCHES_WOKEN_AT_ONCE)
    assert turns == [FETCHES_WOKEN_AT_ONCE]


def test_many_are_woken_in_portions_each_once() -> None:
    turns, sleepers = story(MANY)
    assert max(turns) == FETCHES_WOKEN_AT_ONCE
    assert {sleeper.attempts for sleeper in sleepers} == {1}


def test_one_that_is_answered_meanwhile_is_left_alone() -> None:
    _, sleepers = story(MANY, gone=10)
    assert [sleeper.attempts for sleeper in sleepers[-11:]] == [1] + [0] * 10


async def test_one_that_fails_keeps_nobody_asleep_behind_its_portion() -> None:
    loop = asyncio.get_running_loop()
    failures: list[object] = []
    loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
    waking = Waking(loop)
    waking._loop = StandingClock(loop)  # type: ignore[assignment]
    sleepers = [Sleeper([0]) for _ in range(MANY)]

    def fail() -> None:
        raise ValueError("planted")

    sleepers[2 * FETCHES_WOKEN_AT_ONCE].attempt = fail  # type: ignore[method-assign]
    for sleeper in sleepers:
        waking.wake(sleeper)
    while not sleepers[-1].attempts:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert len(failures) == 1
    assert sum(not sleeper.attempts for sleeper in sleepers) <= FETCHES_WOKEN_AT_ONCE
