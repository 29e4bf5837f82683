"""How late the event loop is: a timer that notes by how much it missed its time."""

import asyncio

from penstock.core.clock import stopwatch
from penstock.core.stats import Lags

_EVERY_SECONDS = 0.02


class LoopLag:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.durations = Lags()

    def start(self) -> None:
        self._due = stopwatch() + _EVERY_SECONDS
        self._timer = self._loop.call_later(_EVERY_SECONDS, self._tick)

    def _tick(self) -> None:
        self.durations.observe(max(0.0, stopwatch() - self._due))
        self.start()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
