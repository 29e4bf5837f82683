"""Long work on the loop, in steps: in a turn of the loop each piece of work takes one, as long as there is time."""

import asyncio
from collections import deque
from collections.abc import Iterator

from penstock.core.limits import TURN_SECONDS_MAX


class Turns:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._under_way: deque[Iterator[None]] = deque()
        self._is_scheduled = False

    def take(self, steps: Iterator[None]) -> None:
        """Each step in a turn of its own, the first one in the next; later where many are under way."""
        self._under_way.append(steps)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._next)

    def _next(self) -> None:
        under_way = self._under_way
        if not under_way:
            self._is_scheduled = False
            return
        self._loop.call_soon(self._next)  # whatever happens to those of this turn
        until = self._loop.time() + TURN_SECONDS_MAX
        for _ in range(len(under_way)):
            steps = under_way.popleft()
            for _ in steps:
                under_way.append(steps)
                break
            if self._loop.time() >= until:
                break
