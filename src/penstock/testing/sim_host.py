"""Simulated processes: who owns a callback, and what happens to it when its process dies.

Every handle, task and transport belongs to a `Host`, found through the context variable `current_host`:
asyncio copies contexts along with callbacks, so whatever a broker schedules carries the broker's host
without the broker knowing. A `Host` is one incarnation; after a crash the same name gets a new object,
so nothing left over from the dead one can be mistaken for the living one.

A crashed process runs no code, not even `finally` blocks. Python would run those as soon as it collected
an abandoned coroutine, so a host keeps its unfinished tasks alive until the loop is closed and `bury`
ends them where nothing can be disturbed any more.
"""

import asyncio
import contextvars
from collections import deque
from collections.abc import Coroutine
from typing import Any

# Closing a coroutine may take several tries: `async with TaskGroup()` awaits once more on the way out.
BURIAL_TRIES_MAX = 20

_unburied: list[object] = []


class SimFuture(asyncio.Future[Any]):
    """A future that knows its host, so that a dead host's forgotten exceptions are not reported."""

    host: "Host"


class SimTask(asyncio.Task[Any]):
    """A task with a number of its loop as its hash.

    `asyncio.TaskGroup` keeps its tasks in a set, and cancels them in the order of that: by their addresses one seed
    would not be one story.
    """

    host: "Host"

    def __init__(self, coro: Any, number: int, **options: Any) -> None:
        self._number = number  # first: asyncio keeps all tasks in a set, too
        super().__init__(coro, **options)

    def __hash__(self) -> int:
        return self._number


class SimHandle(asyncio.Handle):
    __slots__ = ("host", "number")

    host: "Host"
    number: int


class SimTimer(asyncio.TimerHandle):
    __slots__ = ("host", "number", "queued")

    host: "Host"
    number: int
    queued: bool


class Host:
    """One life of one simulated process."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str, number: int) -> None:
        self.loop = loop
        self.name = name
        self.number = number
        self.alive = True
        self.paused = False
        self.slowness = 1.0
        self.ready: deque[SimHandle | SimTimer] = deque()
        self._tasks: dict[SimTask, None] = {}
        self._sweep_at = 64
        self.context = contextvars.copy_context()
        self.context.run(current_host.set, self)

    def __repr__(self) -> str:
        return f"<Host {self.name}#{self.number}{'' if self.alive else ' dead'}>"

    def adopt(self, task: SimTask) -> None:
        task.host = self
        self._tasks[task] = None
        if len(self._tasks) > self._sweep_at:
            self._tasks = dict.fromkeys(self.unfinished_tasks())
            self._sweep_at = max(64, 2 * len(self._tasks))

    def unfinished_tasks(self) -> list[SimTask]:
        return [task for task in self._tasks if not task.done()]

    def unretrieved(self) -> list[SimTask]:
        """Finished tasks whose exception nobody has looked at."""
        return [task for task in self._tasks if task.done() and getattr(task, "_log_traceback", False)]

    def bury(self) -> None:
        """End what is left of the tasks. Only for a closed loop: their `finally` blocks run here."""
        for task in self._tasks:
            if task.done():
                if not task.cancelled():
                    task.exception()
                continue
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - asyncio's own switch
            coroutine = task.get_coro()
            if isinstance(coroutine, Coroutine) and not self._close(coroutine):
                _unburied.append(task)
        self._tasks.clear()
        self.ready.clear()

    def _close(self, coroutine: Coroutine[Any, Any, Any]) -> bool:
        context = self.context.copy()
        for _ in range(BURIAL_TRIES_MAX):
            try:
                context.run(coroutine.close)
            except RuntimeError:  # it awaited instead of ending
                continue
            except BaseException:
                pass
            return True
        return False


current_host: contextvars.ContextVar[Host] = contextvars.ContextVar("current_host")
