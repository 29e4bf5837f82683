"""The pulse of the event loop: a long callback shows, and so does whether it worked or only waited."""

import asyncio
import time

from penstock.core.stats import Lags
from penstock.server.loop_lag import LoopLag

LONG_SECONDS = 0.2


def at_least(lags: Lags, seconds: float) -> int:
    return sum(lags.counts) - dict(lags.cumulative())[repr(seconds)]


def watched(callback) -> LoopLag:
    async def run() -> LoopLag:
        lag = LoopLag(asyncio.get_running_loop())
        lag.start()
        await asyncio.sleep(0)
        callback()
        await asyncio.sleep(0.05)  # its timer is overdue by now, and runs first
        lag.stop()
        return lag

    return asyncio.run(run())


def work() -> None:
    until = time.thread_time() + LONG_SECONDS
    while time.thread_time() < until:
        pass


def test_a_callback_that_works_shows_in_both() -> None:
    lag = watched(work)
    assert at_least(lag.durations, 0.1) == at_least(lag.occupied, 0.1) == 1


def test_one_that_only_waits_is_lag_but_no_work() -> None:
    lag = watched(lambda: time.sleep(LONG_SECONDS))
    assert at_least(lag.durations, 0.1) == 1
    assert at_least(lag.occupied, 0.1) == 0
