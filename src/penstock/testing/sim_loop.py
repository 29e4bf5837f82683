"""An event loop on virtual time, driven by a seed: the production classes run on it unchanged.

- Time jumps to the next timer when nothing is ready; every callback costs a microsecond.
- Each simulated process (`Host`) has its own ready queue. Within one process `call_soon` is first in, first out, as
  asyncio promises; which process runs next, and which of two timers due together fires first, the seed decides.
- Nothing real happens: connections live in `SimNetwork`, executor jobs are delayed callbacks.
- Everything that runs goes into `trace_hash`, so two runs of one seed can be compared.
- An exception that reaches the loop's handler ends the run: a simulation has no log to lose it in.

    with SimLoop(seed=7) as loop:
        loop.spawn("broker-0", broker.run())
        loop.run_until_complete(scenario())
"""

import asyncio
import contextvars
import random
from collections.abc import Callable, Coroutine, Generator, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from typing import Any, Self, TypeVar, TypeVarTuple, Unpack

from penstock.testing.sim_asyncgens import AsyncGenerators
from penstock.testing.sim_executor import SimExecutor
from penstock.testing.sim_failures import Failures
from penstock.testing.sim_host import Host, SimFuture, SimHandle, SimTask, SimTimer, current_host
from penstock.testing.sim_network import SimNetwork
from penstock.testing.sim_schedule import Schedule, fingerprint
from penstock.testing.sim_unsupported import UnsupportedCalls

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

STEPS_MAX = 5_000_000
VIRTUAL_SECONDS_MAX = 3600.0


class SimLoop(UnsupportedCalls):
    def __init__(
        self, seed: int, *, steps_max: int = STEPS_MAX, seconds_max: float = VIRTUAL_SECONDS_MAX
    ) -> None:
        self.seed = seed
        self._all_hosts: list[Host] = []
        self._hosts: dict[str, Host] = {}
        self._failures = Failures(self, self._all_hosts)
        self._schedule = Schedule(self.random, self._failures, steps_max=steps_max, seconds_max=seconds_max)
        self._handles = 0
        self._tasks = 0
        self._running = False
        self._stopping = False
        self._closed = False
        self._exception_handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None = None
        self._driver = self.host("driver")
        self._asyncgens = AsyncGenerators(self, self._driver)
        self.executor = SimExecutor(self, self.random("executor"))
        self.network = SimNetwork(self, self.random("network"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is None:
            self._failures.look_for_unretrieved()
        self.close()
        if error is None:
            self._failures.raise_first()

    # -- seeds, hosts, trace ------------------------------------------------------------------

    def random(self, name: str) -> random.Random:
        """A stream of its own under this seed, so that one consumer does not disturb another."""
        return random.Random(f"{self.seed}/{name}")

    def host(self, name: str) -> Host:
        """The living process of that name; started when there is none."""
        host = self._hosts.get(name)
        if host is None or not host.alive:
            host = self._hosts[name] = Host(self, name, len(self._all_hosts))
            self._all_hosts.append(host)
        return host

    def current_host(self, context: contextvars.Context | None = None) -> Host:
        host = current_host.get(None) if context is None else context.get(current_host)
        return host if host is not None and host.loop is self else self._driver

    @contextmanager
    def on(self, name: str) -> Iterator[Host]:
        """What is scheduled inside belongs to that process."""
        token = current_host.set(self.host(name))
        try:
            yield current_host.get()
        finally:
            current_host.reset(token)

    def spawn(self, name: str, coroutine: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        with self.on(name):
            return self.create_task(coroutine, name=name)

    def crash(self, name: str) -> None:
        """Kill the process: its connections are reset and nothing it had scheduled ever runs."""
        host = self._hosts.get(name)
        if host is None or not host.alive:
            return
        self.note(f"crash {name}")
        host.alive = False
        self._schedule.drop(host)
        self.network.drop_host(host)

    def pause(self, name: str, *, resume: bool = False) -> None:
        """Stop the process where it is (SIGSTOP): the world goes on without it until it is let go on."""
        self.note(f"{'resume' if resume else 'pause'} {name}")
        if (host := self._hosts.get(name)) is not None:
            self._schedule.ready.pause(host, resume=resume)

    def slow_down(self, name: str, factor: float) -> None:
        """Multiply the time of that process's executor jobs that begin from now on: a slow disk."""
        self.host(name).slowness = factor

    def quicken(self, name: str) -> None:
        """Its disk is as quick as any, and soon ends also what it is at."""
        self.executor.quicken(self.host(name))

    @property
    def steps(self) -> int:
        return self._schedule.steps

    @property
    def trace_hash(self) -> str:
        return self._schedule.trace.digest()

    def note(self, text: str) -> None:
        """Put an event into the trace."""
        self._schedule.trace.note(self._schedule.now, text)

    def note_bytes(self, text: str, data: bytes | bytearray) -> None:
        self.note(f"{text} {fingerprint(data)}")

    def tail(self) -> list[str]:
        """The latest notes, to print beside a failure."""
        return self._schedule.trace.tail()

    # -- scheduling ---------------------------------------------------------------------------

    def time(self) -> float:
        return self._schedule.now

    def call_soon(
        self,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        if self.executor.in_thread:
            raise RuntimeError("call_soon from an executor job: use call_soon_threadsafe")
        return self.call_soon_threadsafe(callback, *args, context=context)

    def call_soon_threadsafe(
        self,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        handle = SimHandle(callback, args, self, context)
        handle.host = self.current_host(context)
        self._handles += 1
        handle.number = self._handles
        if not self._closed:
            self._schedule.ready.push(handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._schedule.now + max(0.0, delay), callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        if self.executor.in_thread:
            raise RuntimeError("a timer set from an executor job: use call_soon_threadsafe")
        timer = SimTimer(when, callback, args, self, context)
        timer.host = self.current_host(context)
        self._handles += 1
        timer.number = self._handles
        timer.queued = False
        if not self._closed:
            self._schedule.timers.push(timer)
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        if isinstance(handle, SimTimer):
            self._schedule.timers.on_cancel(handle)

    # -- futures, tasks, executor -------------------------------------------------------------

    def create_future(self) -> SimFuture:
        future = SimFuture(loop=self)
        future.host = self.current_host()
        return future

    def create_task(
        self,
        coro: Generator[Any, None, _T] | Coroutine[Any, Any, _T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
        **kwargs: Any,
    ) -> asyncio.Task[_T]:
        self._tasks += 1  # asyncio's own counter goes on from run to run
        name = name or f"task-{self._tasks}"
        task = SimTask(coro, self._tasks, loop=self, name=name, context=context, **kwargs)
        self.current_host(context).adopt(task)
        return task

    def get_task_factory(self) -> None:
        return None

    def run_in_executor(  # type: ignore[override]  # asyncio declares a Future of the result's type
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> SimFuture:
        return self.executor.submit(self.current_host(), executor, func, args)

    def set_default_executor(self, executor: object) -> None:
        """All pools are simulated; there is none to replace."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - asyncio's signature
        """No threads to wait for."""

    async def shutdown_asyncgens(self) -> None:
        """Generators are ended as they are dropped; none is left behind on purpose."""

    # -- network ------------------------------------------------------------------------------

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **kwargs: Any
    ) -> Any:
        return await self.network.connect(protocol_factory, host, port, **kwargs)

    async def create_server(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **kwargs: Any
    ) -> Any:
        return self.network.listen(protocol_factory, host, port, **kwargs)

    # -- running ------------------------------------------------------------------------------

    def run_until_complete(self, future: Any) -> Any:
        if not asyncio.isfuture(future):
            future = self.create_task(future)
        with self._as_running_loop():
            while not future.done():
                self._schedule.run_next()
        return future.result()

    def run_until(self, condition: Callable[[], bool]) -> None:
        """Run step by step until the condition holds."""
        with self._as_running_loop():
            while not condition():
                self._schedule.run_next()

    def run_for(self, seconds: float) -> None:
        """Let that much virtual time pass, also when nothing happens in it."""
        done = self.create_future()
        self.call_later(seconds, done.set_result, None)
        self.run_until_complete(done)

    def run_forever(self) -> None:
        self._stopping = False
        with self._as_running_loop():
            while not self._stopping:
                self._schedule.run_next()

    def stop(self) -> None:
        self._stopping = True

    @contextmanager
    def _as_running_loop(self) -> Iterator[None]:
        if self._closed:
            raise RuntimeError("the loop is closed")
        if self._running:
            raise RuntimeError("the loop is running already")
        with self._asyncgens.noticed():
            self._running = True
            asyncio.events._set_running_loop(self)  # noqa: SLF001 - how a loop announces itself
            try:
                yield
                self._failures.raise_first()
            finally:
                asyncio.events._set_running_loop(None)  # noqa: SLF001
                self._running = False

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        if self._running:
            raise RuntimeError("cannot close a running loop")
        if not self._closed:
            self._closed = True
            self._schedule.clear()
            self.executor.close()
            for host in self._all_hosts:
                host.bury()

    # -- failures -----------------------------------------------------------------------------

    def get_exception_handler(self) -> Any:
        return self._exception_handler

    def set_exception_handler(self, handler: Any) -> None:
        self._exception_handler = handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self._failures.note(str(context.get("message")), context.get("exception"))

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        culprit = context.get("future") or context.get("task")
        host = getattr(culprit, "host", None)
        if self._closed or (isinstance(host, Host) and not host.alive):
            return
        if self._exception_handler is None:
            self.default_exception_handler(context)
        else:
            self._exception_handler(self, context)
