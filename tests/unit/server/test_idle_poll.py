from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import cast

import pytest

from penstock.core.clock import stopwatch
from penstock.server.idle_poll import IdlePoll


class Turns:
    """A loop that only knows what is due."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.due.append(callback)

    def run(self) -> int:
        turns = 0
        while self.due:
            self.due.pop(0)()
            turns += 1
        return turns


@pytest.fixture
def turns() -> Turns:
    return Turns()


def test_polls_for_the_time_it_was_told(turns: Turns) -> None:
    idle_poll = IdlePoll(cast(AbstractEventLoop, turns), 0.005)
    began = stopwatch()
    idle_poll.prolong()
    assert turns.run() > 1
    assert stopwatch() - began >= 0.005


def test_another_request_prolongs_it_and_adds_no_second_poll(turns: Turns) -> None:
    idle_poll = IdlePoll(cast(AbstractEventLoop, turns), 0.005)
    idle_poll.prolong()
    idle_poll.prolong()
    assert len(turns.due) == 1
    turns.run()
    idle_poll.prolong()
    assert len(turns.due) == 1, "it may sleep, and is woken again"


def test_no_time_is_no_polling(turns: Turns) -> None:
    IdlePoll(cast(AbstractEventLoop, turns), 0).prolong()
    assert not turns.due
