"""A broker on the simulated loop: the production classes, with files in memory and faults on command."""

import asyncio
import random
from collections.abc import Mapping
from pathlib import Path

from penstock.config.broker import BrokerConfig
from penstock.coordination.memory import MemoryStore
from penstock.server.broker import Broker, Seams
from penstock.testing.mem_files import MemFiles
from penstock.testing.sim_clock import SimClock
from penstock.testing.sim_loop import SimLoop

PORT = 9092


class SimBroker:
    """One simulated machine: its disk and its metadata outlive the processes that run on it."""

    def __init__(
        self, loop: SimLoop, name: str = "broker", settings: Mapping[str, str] | None = None
    ) -> None:
        self._loop = loop
        self.name = name
        # Polling before sleep goes by the real clock, which has no place in a simulation.
        self._settings = {"log.dirs": "/data", "penstock.idle.poll.us": "0", **(settings or {})}
        self.files = MemFiles(loop.seed, cold_chance=0.05)
        self.store = MemoryStore()
        self.broker: Broker | None = None
        self.ready = False
        self._rng = loop.random(name)

    def start(self) -> None:
        task = self._loop.spawn(self.name, self._serve())
        task.add_done_callback(asyncio.Task.result)  # a broker that cannot start ends the run

    async def _serve(self) -> None:
        config = BrokerConfig.resolve(self._settings)
        seams = Seams(self.files, SimClock(self._loop), random.Random(self._rng.random()), None)
        self.broker = Broker(config, seams, await self.store.connect(), host=self.name, port=PORT)
        await self.broker.start()
        self.ready = True

    def kill(self) -> None:
        """kill -9: the process is gone, the page cache is not."""
        self._loop.crash(self.name)
        self.files = self.files.kill()
        self.broker, self.ready = None, False

    def power_cut(self) -> None:
        """What was not synced may be gone, torn or out of order."""
        self._loop.crash(self.name)
        self.files = self.files.crash(self._rng)
        self.broker, self.ready = None, False

    def stop(self) -> None:
        """A clean stop, waited for."""
        broker = self.broker
        assert broker is not None
        self._loop.run_until_complete(self._loop.spawn(self.name, broker.stop()))
        self.kill()

    @property
    def data(self) -> Path:
        return Path(self._settings["log.dirs"])
