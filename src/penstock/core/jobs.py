"""Work in threads that outlives who asked for it: its end is seen, and a stop waits for it.

A thread cannot be cancelled. Where the task that waits for one is, the thread goes on, and might rename and unlink
files that the next process, or the next try of this one, has opened. So whatever changes files goes through here.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any, TypeVar

from penstock.core.lease import Hold

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Jobs:
    """The jobs of one owner, who waits for all of them before it gives anything back."""

    def __init__(self, loop: asyncio.AbstractEventLoop, executor: Executor | None) -> None:
        self._loop = loop
        self._executor = executor
        self._running: dict[asyncio.Future[Any], None] = {}

    def run(
        self, work: Callable[[], T], *, on: Executor | None = None, hold: Hold | None = None
    ) -> asyncio.Future[T]:
        """To be awaited; who is cancelled meanwhile leaves it running, and `idle` waits for it.

        What changes the files of a log has hold of its lease as long.
        """
        job = self._begin(work, on)
        return asyncio.shield(job if hold is None else hold.during(job))

    def start(self, what: str, work: Callable[[], object]) -> None:
        """For work that nobody waits for; an error is logged, with `what` was to be done."""
        self._begin(work, None).add_done_callback(partial(_report, what))

    def _begin(self, work: Callable[[], T], on: Executor | None) -> asyncio.Future[T]:
        job = self._loop.run_in_executor(on or self._executor, work)
        self._running[job] = None
        job.add_done_callback(self._ended)
        return job

    def _ended(self, job: asyncio.Future[Any]) -> None:
        del self._running[job]

    async def idle(self) -> None:
        """Returns when none runs any more."""
        while self._running:
            await asyncio.wait(list(self._running))


def _report(what: str, job: asyncio.Future[Any]) -> None:
    if not job.cancelled() and (error := job.exception()) is not None:
        logger.error("%s: %s", what, error, exc_info=error)
