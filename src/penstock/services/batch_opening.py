"""Opening batches: in threads, a few at once, and within one budget of memory for all who ask.

What a batch unpacks to is known when it is unpacked. So each is tried as a small one first; one that turns out to be
larger gives its place to others, and waits for the single place there is for large ones. All together hold no more than
the small places and the large one, and ordinary batches never wait for a bomb.

Lookups by time have places of their own within these, fewer than there are: any number of clients may ask for any
number of them, and who produces waits for no more than those that are under way.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from penstock.core.errors import ClientGoneError
from penstock.core.limits import BATCHES_OPENED_MAX, LOOKUPS_OPENED_MAX, OPENED_BYTES_MAX, OPENED_RECORDS_MAX
from penstock.records.compression import WHOLE, OpeningLimit, UnpacksToMore

T = TypeVar("T")


SMALL = OpeningLimit(OPENED_BYTES_MAX, OPENED_RECORDS_MAX)


def never() -> bool:
    return False


class Openings:
    def __init__(self, loop: asyncio.AbstractEventLoop, executor: Executor | None) -> None:
        self._loop = loop
        self._executor = executor
        self._small = asyncio.Semaphore(BATCHES_OPENED_MAX)
        self._large = asyncio.Semaphore(1)
        self._small_lookups = asyncio.Semaphore(LOOKUPS_OPENED_MAX)
        self._large_lookups = asyncio.Semaphore(1)

    async def run(self, work: Callable[[OpeningLimit], T], is_lost: Callable[[], bool] = never) -> T:
        """Do `work`, which opens batches and changes nothing, in a thread; perhaps twice.

        ClientGoneError: when its turn came, whoever wanted it `is_lost`. They may be many, each with a request kept.
        """
        try:
            return await self._run(work, SMALL, self._small, is_lost)
        except UnpacksToMore:
            pass  # and forgotten before the next step: it knows all that was unpacked
        return await self._run(work, WHOLE, self._large, is_lost)

    async def look_up(self, work: Callable[[OpeningLimit], T], is_lost: Callable[[], bool] = never) -> T:
        """The same for who only reads."""
        try:
            async with self._small_lookups:
                return await self._run(work, SMALL, self._small, is_lost)
        except UnpacksToMore:
            pass
        async with self._large_lookups:
            return await self._run(work, WHOLE, self._large, is_lost)

    async def _run(
        self,
        work: Callable[[OpeningLimit], T],
        limit: OpeningLimit,
        places: asyncio.Semaphore,
        is_lost: Callable[[], bool],
    ) -> T:
        async with places:
            if is_lost():
                raise ClientGoneError("the client has left")
            return await self._loop.run_in_executor(self._executor, work, limit)
