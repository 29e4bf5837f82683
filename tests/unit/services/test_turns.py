"""Work in steps: all of it goes on, however much there is, and nobody keeps the loop for long."""

import asyncio
from collections.abc import Iterator

from penstock.core.limits import TURN_SECONDS_MAX
from penstock.services.turns import Turns


class MovingClock:
    """A loop whose time moves on while a callback runs, as uvloop's does: by the work that is done."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.call_soon = loop.call_soon
        self.now = 1.0

    def time(self) -> float:
        return self.now


async def test_all_that_is_under_way_shares_the_time_of_a_turn() -> None:
    clock = MovingClock(asyncio.get_running_loop())
    turns = Turns(clock)  # type: ignore[arg-type]
    taken = [0] * 100

    def work(number: int) -> Iterator[None]:
        for _ in range(5):
            taken[number] += 1
            clock.now += TURN_SECONDS_MAX * 0.6
            yield

    for number in range(len(taken)):
        turns.take(work(number))
    total = 0
    while total < 5 * len(taken):
        await asyncio.sleep(0)
        assert sum(taken) - total <= 2
        assert max(taken) - min(taken) <= 1, "one goes on at the others' expense"
        total = sum(taken)


async def test_one_that_fails_stops_nobody_else() -> None:
    loop = asyncio.get_running_loop()
    failures: list[object] = []
    loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
    turns, done = Turns(loop), asyncio.Event()

    def fail() -> Iterator[None]:
        raise ValueError("planted")
        yield

    def work() -> Iterator[None]:
        yield
        done.set()

    turns.take(fail())
    turns.take(work())
    await done.wait()
    assert len(failures) == 1
