"""Producer ids at hand: what is decided takes one without waiting, and a task of its own takes more ahead of time.

Nothing is taken before somebody asks for the first: a broker without transactions gives away none.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from penstock.coordination.tree import CoordinationError
from penstock.core.limits import SPARE_IDS_LEAST, SPARE_IDS_MAX, WAITING_FOR_IDS_MAX
from penstock.core.tasks import endless
from penstock.groups.transactions.requests import SpareIds
from penstock.services.producer_ids import ProducerIds

logger = logging.getLogger(__name__)

# How long to wait when the store gave none.
_RETRY_SECONDS = 1.0


class FilledIds(SpareIds):
    __slots__ = ("_low", "_source", "_waiting")

    def __init__(self, source: ProducerIds) -> None:
        super().__init__()
        self._source = source
        self._low = asyncio.Event()
        self._waiting: deque[Callable[[], None]] = deque()

    def take(self) -> int:
        taken = super().take()
        if len(self) < SPARE_IDS_LEAST:
            self._low.set()
        return taken

    def wait(self, proceed: Callable[[], None]) -> bool:
        """Whether `proceed` is called soon: when there are some again, or there are none to be had. False: at once."""
        if len(self) or len(self._waiting) >= WAITING_FOR_IDS_MAX:
            return False
        self._waiting.append(proceed)
        self._low.set()
        return True

    async def run(self) -> None:
        """Until cancelled: more are taken whenever there are few."""
        await endless(self._keep_filled)

    async def _keep_filled(self) -> None:
        while True:
            await self._low.wait()
            self._low.clear()
            found = await self._filled()
            while self._waiting and (len(self) or not found):
                self._waiting.popleft()()
            if self._waiting:
                self._low.set()  # more than there are ids at hand
            if not found:
                await asyncio.sleep(_RETRY_SECONDS)
                self._low.set()

    async def _filled(self) -> bool:
        try:
            while len(self) < SPARE_IDS_MAX:
                self.add(await self._source.next())
        except CoordinationError as error:
            logger.warning("no producer ids for transactions, for now: %s", error)
            return False
        return True
