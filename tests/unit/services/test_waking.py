"""Thousands that wait for one record: woken in portions, each once, and others have their turn in between."""

import asyncio

import pytest

from penstock.core.limits import FETCHES_WOKEN_AT_ONCE, TURN_SECONDS_MAX
from penstock.services.waking import Waking

MANY = 50 * FETCHES_WOKEN_AT_ONCE
# By what part of a turn the clock moves on while one looks (not at all in a simulation), and how many fill a turn.
PORTIONS = [(0.0, FETCHES_WOKEN_AT_ONCE), (0.001, FETCHES_WOKEN_AT_ONCE), (0.3, 4), (2.0, 1)]


class MovingClock:
    """A loop whose time moves on while a callback runs, as uvloop's does: by the work that is done."""

    def __init__(self, loop: asyncio.AbstractEventLoop, step: float) -> None:
        self.call_soon = loop.call_soon
        self.now = 1.0
        self.step = step

    def time(self) -> float:
        return self.now


class Sleeper:
    def __init__(self, turns: list[int], clock: MovingClock) -> None:
        self._turns = turns
        self._clock = clock
        self.is_waiting = True
        self.attempts: list[bool] = []  # and whether it was the last

    def attempt(self, *, last: bool = False) -> None:
        self.is_waiting = False
        self.attempts.append(last)
        self._turns[-1] += 1
        self._clock.now += self._clock.step


class Story:
    def __init__(self, number: int, step: float) -> None:
        self.clock = MovingClock(asyncio.get_running_loop(), step)
        self.waking = Waking(self.clock)  # type: ignore[arg-type]
        self.turns = [0]  # how many were woken in each
        self.sleepers = [Sleeper(self.turns, self.clock) for _ in range(number)]

    def wake(self) -> None:
        for sleeper in self.sleepers:
            self.waking.wake(sleeper)

    async def until_all_had_their_look(self) -> None:
        for _ in range(2 * MANY):
            if not any(sleeper.is_waiting for sleeper in self.sleepers):
                return
            self.turns.append(0)
            await asyncio.sleep(0)
        pytest.fail("some are never woken")


async def test_a_few_are_woken_at_once() -> None:
    story = Story(FETCHES_WOKEN_AT_ONCE, TURN_SECONDS_MAX / 1000)
    story.wake()
    assert story.turns == [FETCHES_WOKEN_AT_ONCE]


@pytest.mark.parametrize(("part", "portion"), PORTIONS)
async def test_many_are_woken_in_portions_each_once(part: float, portion: int) -> None:
    story = Story(MANY, part * TURN_SECONDS_MAX)
    story.wake()
    await story.until_all_had_their_look()
    assert max(story.turns) == portion
    assert len(story.turns) <= MANY / portion + 1
    assert {len(sleeper.attempts) for sleeper in story.sleepers} == {1}


async def test_the_next_turn_begins_anew() -> None:
    story = Story(2 * FETCHES_WOKEN_AT_ONCE, 0.0)
    for sleeper in story.sleepers[:FETCHES_WOKEN_AT_ONCE]:
        story.waking.wake(sleeper)
    story.turns.append(0)
    await asyncio.sleep(0)
    for sleeper in story.sleepers[FETCHES_WOKEN_AT_ONCE:]:
        story.waking.wake(sleeper)
    assert story.turns == [FETCHES_WOKEN_AT_ONCE] * 2


async def test_one_that_is_answered_meanwhile_is_left_alone() -> None:
    story = Story(MANY, 0.0)
    story.wake()
    for sleeper in story.sleepers[-10:]:
        sleeper.is_waiting = False
    await story.until_all_had_their_look()
    assert [len(sleeper.attempts) for sleeper in story.sleepers[-11:]] == [1] + [0] * 10


async def test_who_is_out_of_time_has_its_last_look_though_it_is_woken_again() -> None:
    story = Story(MANY, 0.0)
    story.wake()
    story.waking.wake(story.sleepers[-1], last=True)
    story.waking.wake(story.sleepers[-1])
    await story.until_all_had_their_look()
    assert [sleeper.attempts for sleeper in story.sleepers[-2:]] == [[False], [True]]


async def test_one_that_fails_keeps_nobody_asleep_behind_it() -> None:
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))
    story = Story(MANY, 0.0)
    failing = story.sleepers[2 * FETCHES_WOKEN_AT_ONCE]

    def fail(*, last: bool = False) -> None:
        failing.is_waiting = False
        raise ValueError("planted")

    failing.attempt = fail  # type: ignore[method-assign]
    story.wake()
    await story.until_all_had_their_look()
    assert len(failures) == 1
    assert sum(not sleeper.attempts for sleeper in story.sleepers) == 1
