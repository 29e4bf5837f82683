"""The simulation itself, end to end: one seed is one story, with crashes, cuts, stalls and slow disks in it."""

import asyncio
from pathlib import Path
from random import Random

import pytest

from penstock.testing.mem_files import MemFiles
from penstock.testing.sim_loop import SimLoop

PORT = 7000
LOG = Path("/journal")
LINE_BYTES = 8


class LineProtocol(asyncio.BufferedProtocol):
    """Frames of a fixed size out of a buffer that is used again and again, as in the broker."""

    def __init__(self) -> None:
        self._buffer = bytearray(64)
        self._filled = 0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        whole = self._filled - self._filled % LINE_BYTES
        lines = bytes(self._buffer[:whole])
        self._buffer[: self._filled - whole] = self._buffer[whole : self._filled]
        self._filled -= whole
        for at in range(0, whole, LINE_BYTES):
            self.on_line(lines[at : at + LINE_BYTES])

    def on_line(self, line: bytes) -> None:
        raise NotImplementedError


class Journal:
    """Writes lines to a file and answers each after its sync, many per sync."""

    def __init__(self, loop: SimLoop, files: MemFiles, *, ack_before_sync: bool) -> None:
        self._loop = loop
        self._file = files.open(LOG, create=True)
        files.sync_dir(LOG.parent)
        self._end = self._file.size() - self._file.size() % LINE_BYTES
        self._waiting: list[tuple[asyncio.Transport, bytes]] = []
        self._syncing = False
        self._ack_before_sync = ack_before_sync

    def append(self, transport: asyncio.Transport, line: bytes) -> None:
        self._file.pwrite(line, self._end)
        self._end += len(line)
        if self._ack_before_sync:
            self._acknowledge(transport, line)
        else:
            self._waiting.append((transport, line))
        if not self._syncing:
            self._sync()

    def _sync(self) -> None:
        self._syncing = True
        batch, self._waiting = self._waiting, []
        self._loop.run_in_executor(None, self._file.sync).add_done_callback(lambda _: self._on_sync(batch))

    def _on_sync(self, batch: list[tuple[asyncio.Transport, bytes]]) -> None:
        self._syncing = False
        for transport, line in batch:
            self._acknowledge(transport, line)
        if self._waiting:
            self._sync()

    @staticmethod
    def _acknowledge(transport: asyncio.Transport, line: bytes) -> None:
        if not transport.is_closing():
            transport.write(line)


class JournalConnection(LineProtocol):
    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal = journal

    def on_line(self, line: bytes) -> None:
        assert self.transport is not None
        self._journal.append(self.transport, line)


class Writer(LineProtocol):
    """Sends lines ahead and remembers which were acknowledged."""

    def __init__(self, acknowledged: list[bytes], lost: asyncio.Event) -> None:
        super().__init__()
        self._acknowledged = acknowledged
        self._lost = lost

    def on_line(self, line: bytes) -> None:
        self._acknowledged.append(line)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost.set()


async def _write_lines(loop: SimLoop, rng: Random, acknowledged: list[bytes]) -> None:
    number = 0
    while True:
        lost = asyncio.Event()
        try:
            transport, _ = await loop.create_connection(
                lambda lost=lost: Writer(acknowledged, lost), "server", PORT
            )
        except ConnectionRefusedError:
            await asyncio.sleep(0.1)
            continue
        while not lost.is_set():
            transport.write(b"%08d" % number)
            number += 1
            try:
                await asyncio.wait_for(lost.wait(), rng.uniform(0.0001, 0.01))
            except TimeoutError:
                continue


async def _serve(loop: SimLoop, files: MemFiles, *, ack_before_sync: bool) -> None:
    journal = Journal(loop, files, ack_before_sync=ack_before_sync)
    await loop.create_server(lambda: JournalConnection(journal), None, PORT)


def run_story(seed: int, *, ack_before_sync: bool = False) -> tuple[str, list[bytes], bytes]:
    """A server that syncs, a client that writes, and everything that can happen to them."""
    with SimLoop(seed) as loop:
        rng = loop.random("story")
        files = MemFiles(seed)
        acknowledged: list[bytes] = []
        loop.spawn("client", _write_lines(loop, loop.random("client"), acknowledged))
        for _ in range(6):
            loop.spawn("server", _serve(loop, files, ack_before_sync=ack_before_sync))
            loop.run_for(rng.uniform(0.1, 0.5))
            match rng.choice(["cut", "stall", "one way", "slow", "nothing"]):
                case "cut":
                    loop.network.cut("client", "server")
                case "stall":
                    loop.network.stall("client", "server")
                case "one way":
                    loop.network.stall("server", "client", one_way=True)
                case "slow":
                    loop.slow_down("server", 20)
            loop.run_for(rng.uniform(0.1, 0.5))
            loop.network.heal_all()
            loop.run_for(rng.uniform(0, 0.2))
            loop.crash("server")
            files = files.crash(rng)
            loop.note_bytes("disk", files.read(LOG))
        return loop.trace_hash, acknowledged, files.read(LOG)


@pytest.mark.parametrize("seed", range(20))
def test_what_was_acknowledged_after_its_sync_survives_power_cuts(seed: int) -> None:
    _, acknowledged, disk = run_story(seed)
    lines = {disk[at : at + LINE_BYTES] for at in range(0, len(disk), LINE_BYTES)}
    assert len(acknowledged) > 20
    assert [line for line in acknowledged if line not in lines] == []


def test_acknowledging_before_the_sync_is_found_out() -> None:
    losses = 0
    for seed in range(20):
        _, acknowledged, disk = run_story(seed, ack_before_sync=True)
        lines = {disk[at : at + LINE_BYTES] for at in range(0, len(disk), LINE_BYTES)}
        losses += any(line not in lines for line in acknowledged)
    assert losses > 5


def test_one_seed_is_one_story() -> None:
    stories = [run_story(seed) for seed in range(10)]
    assert [run_story(seed) for seed in range(10)] == stories
    assert len({trace for trace, _, _ in stories}) == len(stories)
