"""Something that is costly to make and asked for by many: made for all that wait, and never all the time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from penstock.core.clock import stopwatch

_Made = TypeVar("_Made")

# Of the time, one part in so many is spent on making; but nobody waits longer than this for the next one.
_REST_TIMES = 9
_REST_SECONDS_MAX = 1.0


class Shared(Generic[_Made]):
    """Each caller gets one that was begun after it asked, so that what it knows of is in it."""

    def __init__(self, make: Callable[[], Awaitable[_Made]]) -> None:
        self._make = make
        self._turn = asyncio.Lock()
        self._begun = 0  # how many were
        self._latest: tuple[int, _Made] | None = None
        self._rested = 0.0  # when the next may be begun

    async def next(self) -> _Made:
        wanted = self._begun + 1
        async with self._turn:
            if self._latest is None or self._latest[0] < wanted:
                await asyncio.sleep(max(0.0, self._rested - stopwatch()))
                self._begun += 1
                began = stopwatch()
                self._latest = (self._begun, await self._make())
                ended = stopwatch()
                self._rested = ended + min(_REST_TIMES * (ended - began), _REST_SECONDS_MAX)
            return self._latest[1]
