"""Opening batches: in threads, a few at once, and within one budget of memory for all who ask.

What a batch unpacks to is known when it is unpacked. So each is tried as a small one first; one that turns out to be
larger gives its place to others, and waits for the single place there is for large ones. All together hold no more than
the small places and the large one, and ordinary batches never wait for a bomb.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from penstock.core.limits import BATCHES_OPENED_MAX, OPENED_BYTES_MAX, OPENED_RECORDS_MAX
from penstock.records.compression import WHOLE, OpeningLimit, UnpacksToMore

T = TypeVar("T")


SMALL = OpeningLimit(OPENED_BYTES_MAX, OPENED_RECORDS_MAX)


class Openings:
    def __init__(self, loop: asyncio.AbstractEventLoop, executor: Executor | None) -> None:
        self._loop = loop
        self._executor = executor
        self._small = asyncio.Semaphore(BATCHES_OPENED_MAX)
        self._large = asyncio.Semaphore(1)

    async def run(self, work: Callable[[OpeningLimit], T]) -> T:
        """Do `work`, which opens batches and changes nothing, in a thread; perhaps twice."""
        try:
            async with self._small:
                return await self._loop.run_in_executor(self._executor, work, SMALL)
        except UnpacksToMore:
            pass  # and forgotten before the next step: it knows all that was unpacked
        async with self._large:
            return await self._loop.run_in_executor(self._executor, work, WHOLE)
