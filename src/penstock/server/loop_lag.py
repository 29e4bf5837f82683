"""How late the event loop is: a timer that notes by how much it missed its time, and whose fault that was."""

import asyncio

from penstock.core.clock import cpu_stopwatch, stopwatch
from penstock.core.stats import Lags

_EVERY_SECONDS = 0.02


class LoopLag:
    """`durations` is what clients feel: also a machine that is busy with others, and a disk that makes us wait.

    `occupied` is what our own callbacks took of it, in CPU time: a callback shows with its length, or up to a
    tick less.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due = 0.0
        self._cpu = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.durations = Lags()
        self.occupied = Lags()

    def start(self) -> None:
        self._due = stopwatch() + _EVERY_SECONDS
        self._cpu = cpu_stopwatch()
        self._timer = self._loop.call_later(_EVERY_SECONDS, self._tick)

    def _tick(self) -> None:
        late = max(0.0, stopwatch() - self._due)
        self.durations.observe(late)
        self.occupied.observe(min(late, cpu_stopwatch() - self._cpu))
        self.start()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
