"""A broker on the simulated loop: the production classes, with files in memory and faults on command."""

import asyncio
import random
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from penstock.config.broker import BrokerConfig
from penstock.coordination.memory import Fault, MemoryStore, MemoryTree
from penstock.coordination.tree import ConnectionLostError, CoordinationError
from penstock.server.broker import Broker
from penstock.server.seams import Seams
from penstock.testing.mem_files import MemFiles
from penstock.testing.sim_clock import SimClock
from penstock.testing.sim_loop import SimLoop

PORT = 9092
# As short as real ones may be; ten seconds of silence would make every story long.
SESSION_SECONDS = 1.0
# So few that segments are closed and opened again all the time.
_FILES_MAX = 16
# How long a process that could not start rests before it is started again.
_RESTART_SECONDS = 0.3


class SimBroker:
    """One simulated machine: its disk and its metadata outlive the processes that run on it."""

    def __init__(
        self,
        loop: SimLoop,
        name: str = "broker",
        settings: Mapping[str, str] | None = None,
        store: MemoryStore | None = None,
    ) -> None:
        """With a `store`, one broker of several that share it."""
        self._loop = loop
        self.name = name
        # Polling before sleep goes by the real clock, which has no place in a simulation.
        self._settings = {
            "log.dirs": "/data",
            "listeners": f"PLAINTEXT://{name}:{PORT}",
            "penstock.idle.poll.us": "0",
            **(settings or {}),
        }
        disk_seed = loop.seed if store is None else loop.random(f"{name}/disk").getrandbits(32)
        self.files = MemFiles(disk_seed, cold_chance=0.05)
        self.files.limit_files(_FILES_MAX)
        self.store = store or MemoryStore()
        self.clock = SimClock(loop)
        self.broker: Broker | None = None
        self.ready = False
        self.running = False
        self.tree: MemoryTree | None = None
        self._cut_off = False
        self.store_lag_s = 0.0  # what every word from and to the coordination store takes longer
        # What happens to the next session, and after how many calls that go well.
        self.store_fault: tuple[int, Fault] | None = None
        self.may_break = False  # whether a process whose task failed is started again, as a supervisor does
        self._rng = loop.random(name)

    def start(self) -> None:
        self.running = True
        task = self._loop.spawn(self.name, self._serve())
        task.add_done_callback(asyncio.Task.result)  # a broker that cannot start ends the run

    async def _serve(self) -> None:
        config = BrokerConfig.resolve(self._settings)
        while True:
            seams = Seams(self.files, self.clock, random.Random(self._rng.random()), None, has_sockets=False)
            try:
                tree = await self._connect()
                broker = Broker(config, seams, tree, connect=self._connect)
            except CoordinationError:
                await asyncio.sleep(_RESTART_SECONDS)
                continue
            try:
                await broker.start()
            except CoordinationError:
                await broker.abandon()
                await asyncio.sleep(_RESTART_SECONDS)
                continue
            self.broker = broker
            self.ready = True
            await broker.broken.wait()
            if not self.may_break:
                raise AssertionError(f"{self.name}: a task ended that never should")
            await broker.stop()
            with suppress(CoordinationError):
                await broker.metadata.tree.close()
            self.broker, self.ready = None, False
            await asyncio.sleep(_RESTART_SECONDS)

    async def _connect(self) -> MemoryTree:
        if self._cut_off:
            raise ConnectionLostError("the coordination store cannot be reached")
        delays = self._loop.random(f"{self.name}/store")
        self.tree = await self.store.connect(
            session_timeout_s=SESSION_SECONDS,
            delay_s=lambda: delays.uniform(0.0001, 0.003) + self.store_lag_s,
        )
        if self.store_fault is not None:
            after, fault = self.store_fault
            self.store_fault = None
            self.tree.fail_next(fault, after=after)
        return self.tree

    # -- faults ----------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """kill -9: the process is gone, the page cache is not."""
        self._end()
        self.files = self.files.kill()

    def power_cut(self) -> None:
        """What was not synced may be gone, torn or out of order."""
        self._end()
        self.files = self.files.crash(self._rng)

    def _end(self) -> None:
        self._loop.pause(self.name, resume=True)
        self._loop.crash(self.name)
        if self.tree is not None:
            self.tree.disconnect()
        self._cut_off = False
        self.broker, self.ready, self.running = None, False, False

    def stop(self) -> None:
        """A clean stop, waited for."""
        broker, tree = self.broker, self.tree
        assert broker is not None
        self._loop.run_until_complete(self._loop.spawn(self.name, broker.stop()))
        if tree is not None:
            self._loop.run_until_complete(tree.close())
        self.kill()

    def cut_off(self) -> None:
        """From the coordination store: unless it is reached again in time, the session is over."""
        self._cut_off = True
        if self.tree is not None:
            self.tree.disconnect()

    def reach_store(self) -> None:
        self._cut_off = False
        if self.tree is not None and self.running:
            self.tree.reconnect()

    def pause(self) -> None:
        """SIGSTOP: it does not ping the store either."""
        self._loop.pause(self.name)
        if self.tree is not None:
            self.tree.disconnect()

    def resume(self) -> None:
        self._loop.pause(self.name, resume=True)
        if not self._cut_off:
            self.reach_store()

    @property
    def data(self) -> Path:
        return Path(self._settings["log.dirs"])
