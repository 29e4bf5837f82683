"""Several brokers on one machine as one service: started together, watched, started again, stopped together.

Each worker is a process of its own, one core, one Kafka node. The supervisor holds no data and serves no client: it
keeps its workers alive, and its console port answers for all of them.

    starting -> ready -> ended by itself -> waiting (longer each time) -> starting …

What never was ready is not started again: its settings are wrong, and all others stop with it.
"""

import asyncio
import json
import logging
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from penstock import __version__
from penstock.core.errors import PenstockError
from penstock.server.http import Answer, HttpServer
from penstock.server.merged_metrics import merged_metrics

logger = logging.getLogger(__name__)

_PAUSE_SECONDS_MIN = 0.5
_PAUSE_SECONDS_MAX = 30.0
# A worker that ran so long is not one that ends at every start.
_STEADY_SECONDS = 60.0
_STOP_SECONDS = 60.0
_ASK_SECONDS = 5.0
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class WorkerError(PenstockError):
    """A worker that never came up; what it said is on stderr."""


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """How one worker is started. `command` is given the port it had the last time (or the one it shall have)."""

    id: int
    port: int
    command: Callable[[int], Sequence[str]]


@dataclass(slots=True)
class Worker:
    plan: WorkerPlan
    port: int
    process: asyncio.subprocess.Process | None = None
    console_port: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    restarts: int = 0

    @property
    def is_up(self) -> bool:
        return self.process is not None and self.process.returncode is None and bool(self.facts)


class Supervisor:
    def __init__(
        self,
        plans: Sequence[WorkerPlan],
        *,
        prepare: Callable[[], None],
        ready: Callable[["Supervisor"], None],
    ) -> None:
        """`prepare` runs in each new process before the worker does; `ready` is called once all serve."""
        self.workers = [Worker(plan, plan.port) for plan in plans]
        self._prepare = prepare
        self._ready = ready
        self._stopping = asyncio.Event()
        self._failed = False
        self._server = HttpServer({"/metrics": self._metrics, "/healthz": self._health})
        self.console_port = -1

    async def run(self, console: tuple[str, int] | None) -> None:
        """Until SIGTERM or SIGINT. WorkerError when one does not come up at all."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        telling = loop.create_task(self._tell_all())
        try:
            async with asyncio.TaskGroup() as tasks:
                for worker in self.workers:
                    tasks.create_task(self._start_first(worker))
            if self._failed:
                raise WorkerError("a worker did not start, so none runs: see what it said above")
            if not self._stopping.is_set():
                if console is not None:
                    self.console_port = await self._server.start(*console)
                self._ready(self)
            async with asyncio.TaskGroup() as tasks:
                for worker in self.workers:
                    tasks.create_task(self._keep(worker))
        finally:
            self._stopping.set()
            await telling
            await self._server.close()
            await self._end_all()

    async def _start_first(self, worker: Worker) -> None:
        if not await self._start(worker) and not self._stopping.is_set():
            self._failed = True
            self._stopping.set()

    # -- one worker ----------------------------------------------------------------------------------------------

    async def _start(self, worker: Worker) -> bool:
        """Started, and serving; False when it ended before, or we are about to stop."""
        worker.facts = {}
        worker.process = await asyncio.create_subprocess_exec(
            *worker.plan.command(worker.port),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            preexec_fn=self._prepare,
        )
        if self._stopping.is_set():
            worker.process.terminate()
        assert worker.process.stdout is not None
        while line := await worker.process.stdout.readline():
            try:
                facts = json.loads(line)
            except ValueError:
                continue
            if isinstance(facts, dict) and facts.get("event") == "ready":
                worker.facts = facts
                worker.port, worker.console_port = int(facts["port"]), facts["console_port"]
                return True
        await worker.process.wait()
        return False

    async def _keep(self, worker: Worker) -> None:
        """Wait for its end and start it again, until we stop."""
        pause = _PAUSE_SECONDS_MIN
        while not self._stopping.is_set():
            assert worker.process is not None
            began = time.monotonic()
            ended = asyncio.ensure_future(worker.process.wait())
            stopping = asyncio.ensure_future(self._stopping.wait())
            await asyncio.wait((ended, stopping), return_when=asyncio.FIRST_COMPLETED)
            for task in (ended, stopping):
                task.cancel()
            if self._stopping.is_set():
                return
            worker.facts = {}
            if time.monotonic() - began > _STEADY_SECONDS:
                pause = _PAUSE_SECONDS_MIN
            logger.error(
                "broker %d ended with code %s; it is started again in %.1f s",
                worker.plan.id,
                worker.process.returncode,
                pause,
            )
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stopping.wait()
            if self._stopping.is_set():
                return
            pause = min(pause * 2, _PAUSE_SECONDS_MAX)
            worker.restarts += 1
            if await self._start(worker):
                logger.info("broker %d serves again", worker.plan.id)

    async def _tell_all(self) -> None:
        """All at once: no two have replicas of one partition, so none waits for another to take over."""
        await self._stopping.wait()
        for worker in self.workers:
            if worker.process is not None and worker.process.returncode is None:
                worker.process.terminate()

    async def _end_all(self) -> None:
        """They were told to stop."""
        running = [worker.process for worker in self.workers if worker.process is not None]
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                for process in running:
                    await process.wait()
        except TimeoutError:
            logger.warning("some workers did not stop in %.0f s, and are killed", _STOP_SECONDS)
            for process in running:
                if process.returncode is None:
                    process.kill()
                    await process.wait()

    # -- the console port ----------------------------------------------------------------------------------------

    async def _metrics(self) -> Answer:
        pages = {}
        for worker, answer in zip(self.workers, await self._ask_all("/metrics"), strict=True):
            if answer is not None:
                pages[worker.plan.id] = answer[1].decode()
        own = [
            "# HELP penstock_worker_up Whether the worker serves.",
            "# TYPE penstock_worker_up gauge",
            *(
                f'penstock_worker_up{{broker="{worker.plan.id}"}} {int(worker.is_up)}'
                for worker in self.workers
            ),
            "# HELP penstock_worker_restarts_total How often the worker was started again.",
            "# TYPE penstock_worker_restarts_total counter",
            *(
                f'penstock_worker_restarts_total{{broker="{worker.plan.id}"}} {worker.restarts}'
                for worker in self.workers
            ),
        ]
        body = merged_metrics(pages) + "".join(f"{line}\n" for line in own)
        return HTTPStatus.OK, _CONTENT_TYPE, body.encode()

    async def _health(self) -> Answer:
        said = []
        well = True
        for worker, answer in zip(self.workers, await self._ask_all("/healthz"), strict=True):
            if answer is None:
                well = False
                said.append({"node": worker.plan.id, "status": "down"})
            else:
                well &= answer[0] == HTTPStatus.OK
                said.append(json.loads(answer[1]))
        facts = {"status": "ok" if well else "workers are not well", "version": __version__, "workers": said}
        status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
        return status, "application/json", json.dumps(facts).encode() + b"\n"

    async def _ask_all(self, path: str) -> list[tuple[int, bytes] | None]:
        return await asyncio.gather(*(self._ask(worker, path) for worker in self.workers))

    @staticmethod
    async def _ask(worker: Worker, path: str) -> tuple[int, bytes] | None:
        """(status, body); None when it does not answer."""
        if not worker.is_up or worker.console_port is None:
            return None
        try:
            async with asyncio.timeout(_ASK_SECONDS):
                reader, writer = await asyncio.open_connection("127.0.0.1", worker.console_port)
                try:
                    writer.write(f"GET {path} HTTP/1.1\r\nHost: worker\r\n\r\n".encode())
                    head = await reader.readuntil(b"\r\n\r\n")
                    return int(head.split(b" ", 2)[1]), await reader.read()
                finally:
                    writer.close()
        except (OSError, EOFError, TimeoutError, ValueError, asyncio.LimitOverrunError):
            return None
