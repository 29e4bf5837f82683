"""Tasks that run as long as their owner: somebody sees the end of each, however it ends.

A task that nobody waits for dies in silence, and what it did is not done any more. So work that never ends by itself
is either a child of a `TaskGroup`, wrapped in `endless`, or belongs to a `Tasks`, whose owner is told. The third way to
die is the stealthy one: something that the work waited for was cancelled, not the work. That looks like a stop that
somebody asked for; `endless` tells the two apart.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from penstock.core.errors import PenstockError

Work = Callable[[], Coroutine[Any, Any, None]]


class TaskEndedError(PenstockError):
    """Work that never ends by itself has."""


async def endless(work: Work) -> None:
    """Until cancelled; whatever else ends the work is an error."""
    try:
        await work()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise TaskEndedError("something it waited for was cancelled") from None
    raise TaskEndedError("it ended by itself")


class Tasks:
    """The endless tasks of one owner, who hears of each that ends otherwise than by `cancel` or `close`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ended: Callable[[str, BaseException], None]) -> None:
        self._loop = loop
        self._ended = ended
        self._running: dict[asyncio.Task[None], None] = {}

    def start(self, work: Work, name: str) -> asyncio.Task[None]:
        task = self._loop.create_task(endless(work), name=name)
        self._running[task] = None
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._ended(task.get_name(), error)

    def cancel(self) -> None:
        for task in list(self._running):
            task.cancel()

    async def close(self) -> None:
        """Cancel what runs; returns when nothing does any more."""
        while self._running:
            self.cancel()
            await asyncio.wait(list(self._running))
