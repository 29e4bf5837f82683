"""`run_in_executor` on virtual time: a thread pool with seeded delays and no threads.

A job occupies one of its pool's workers for a while, and jobs begin in the order they were given, so a
pool of one runs them one after the other. A job's function runs as a whole either at the start or at the
end of that while, by the seed. Both happen in life: a fdatasync covers what was written before it began,
and may or may not cover what came during it. The result reaches the future at the end. While the function
runs there is no running loop and scheduling is refused, as in a thread.

With a `step_chance` a job stops at some of its file operations, and others go on before it does (`sim_steps`).
"""

import asyncio
import contextvars
import random
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any

from penstock.testing.sim_host import Host, SimFuture
from penstock.testing.sim_steps import Buried, Stepped

if TYPE_CHECKING:
    from penstock.testing.sim_loop import SimLoop

WORKERS_DEFAULT = 8
STALL_CHANCE = 0.02
STALL_SECONDS = (0.05, 0.5)
DELAY_EXPONENTS = (-4.3, -2.7)  # powers of ten: 50 µs to 2 ms


class SimExecutor:
    """All pools of all processes."""

    def __init__(self, loop: "SimLoop", rng: random.Random) -> None:
        self._loop = loop
        self._rng = rng
        self._pools: dict[tuple[Host, Executor | None], _Pool] = {}
        self.running: dict[_Job, None] = {}  # jobs that occupy a worker
        self.in_thread = False
        self.step_chance = 0.0  # that a job stops at a file operation
        self._stepped: dict[Stepped, None] = {}

    def submit(
        self, host: Host, executor: Executor | None, function: Callable[..., Any], args: tuple[Any, ...]
    ) -> SimFuture:
        key = (host, executor)
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = _Pool(self._loop, getattr(executor, "_max_workers", WORKERS_DEFAULT))
        job = _Job(self, self._loop, pool, function, args)
        pool.submit(job)
        return job.future

    def quicken(self, host: Host) -> None:
        host.slowness = 1
        for job in [job for job in self.running if job.future.host is host]:
            job.hurry()

    def step_by_seed(self) -> None:
        """In one story of three, jobs run in steps."""
        self.step_chance = self._loop.random("steps").choice([0.0, 0.0, 0.2])

    def stepped(self, work: Callable[[], Any]) -> Stepped:
        job = Stepped(work, lambda: self._rng.random() < self.step_chance)
        self._stepped[job] = None
        return job

    def resume(self, job: Stepped) -> None:
        self.in_thread = True
        try:
            job.resume()
        finally:
            self.in_thread = False
            if job.ended:
                del self._stepped[job]

    def close(self) -> None:
        """Threads of processes that died in the midst of their jobs end, too."""
        for job in self._stepped:
            job.bury()
        self._stepped.clear()
        self.running.clear()

    def plan(self, host: Host) -> tuple[float, bool]:
        """How long the next job takes, and whether its function runs at the start of that time."""
        if self._rng.random() < STALL_CHANCE:
            seconds = self._rng.uniform(*STALL_SECONDS)
        else:
            seconds = float(10 ** self._rng.uniform(*DELAY_EXPONENTS))
        return seconds * host.slowness, self._rng.random() < 0.5


class _Pool:
    def __init__(self, loop: "SimLoop", workers: int) -> None:
        self._loop = loop
        self._idle = workers
        self._waiting: deque[_Job] = deque()

    def submit(self, job: "_Job") -> None:
        self._waiting.append(job)
        self._start_jobs()

    def on_job_end(self) -> None:
        self._idle += 1
        self._start_jobs()

    def _start_jobs(self) -> None:
        while self._idle and self._waiting:
            self._idle -= 1
            job = self._waiting.popleft()
            self._loop.call_soon(job.start, context=job.context)


class _Job:
    def __init__(
        self,
        executor: SimExecutor,
        loop: "SimLoop",
        pool: _Pool,
        function: Callable[..., Any],
        args: tuple[Any, ...],
    ) -> None:
        self._executor = executor
        self._loop = loop
        self._pool = pool
        self._function = function
        self._args = args
        self._steps: Stepped | None = None
        self._next: tuple[asyncio.TimerHandle, Callable[[], None]] | None = None
        self._slowness = 1.0  # with which that is planned
        self._result: Any = None
        self._error: BaseException | None = None
        self.future = loop.create_future()
        self.context = contextvars.copy_context()

    def start(self) -> None:
        if self.future.cancelled():  # a job that has not begun can still be taken back
            self._pool.on_job_end()
            return
        self._executor.running[self] = None
        seconds, early = self._executor.plan(self.future.host)
        if self._executor.step_chance:
            self._steps = self._executor.stepped(self._call)
            self._call_later(0 if early else seconds, self._step)
            return
        if early:
            self._run()
        self._call_later(seconds, self._finish if early else self._run_and_finish)

    def _call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        self._slowness = self.future.host.slowness
        self._next = self._loop.call_later(seconds, callback, context=self.context), callback

    def hurry(self) -> None:
        if self._next is not None and self._slowness > 1:
            timer, callback = self._next
            timer.cancel()
            self._call_later(max(timer.when() - self._loop.time(), 0) / self._slowness, callback)

    def _step(self) -> None:
        assert self._steps is not None
        self._executor.resume(self._steps)
        ended = self._steps.ended
        seconds, _ = self._executor.plan(self.future.host)
        self._call_later(seconds, self._finish if ended else self._step)

    def _run_and_finish(self) -> None:
        self._run()
        self._finish()

    def _finish(self) -> None:
        del self._executor.running[self]
        self._next = None  # it refers back here: a cycle, and what the job has would stay
        self._pool.on_job_end()
        if self.future.cancelled():
            return
        if self._error is None:
            self.future.set_result(self._result)
        else:
            self.future.set_exception(self._error)

    def _run(self) -> None:
        self._executor.in_thread = True
        asyncio.events._set_running_loop(None)  # noqa: SLF001 - what a thread would see
        try:
            self._call()
        finally:
            asyncio.events._set_running_loop(self._loop)  # noqa: SLF001
            self._executor.in_thread = False

    def _call(self) -> None:
        try:
            self._result = self._function(*self._args)
        except (KeyboardInterrupt, SystemExit, Buried):
            raise
        except BaseException as error:
            self._error = error
