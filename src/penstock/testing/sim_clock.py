"""A wall clock on virtual time that can be told to jump, as a real one does."""

import asyncio

BASE_EPOCH_MS = 1_700_000_000_000


class SimClock:
    def __init__(self, loop: asyncio.AbstractEventLoop, base_epoch_ms: int = BASE_EPOCH_MS) -> None:
        self._loop = loop
        self._base_epoch_ms = base_epoch_ms

    def now_ms(self) -> int:
        return self._base_epoch_ms + int(self._loop.time() * 1000)

    def jump(self, milliseconds: int) -> None:
        """Set the clock forward, or back when negative; timers of the loop do not notice."""
        self._base_epoch_ms += milliseconds
