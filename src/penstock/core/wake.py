"""Resting until there is something to do, or for so long."""

import asyncio
from contextlib import suppress


class Wake:
    def __init__(self) -> None:
        self._woken = asyncio.Event()

    def now(self) -> None:
        """Who rests goes on; who does not, rests no more the next time."""
        self._woken.set()

    async def rest(self, seconds: float | None) -> None:
        """None: until it is woken."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        self._woken.clear()
