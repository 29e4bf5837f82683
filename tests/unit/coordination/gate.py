"""A gate between a session and ZooKeeper: connections pass through it, and it can hold back, cut and refuse."""

import asyncio
from contextlib import asynccontextmanager

_CHUNK_BYTES = 1 << 16


class Gate:
    def __init__(self, port):
        self._target = port
        self._writers = set()
        self._pumps = set()
        self._requests_pass = asyncio.Event()
        self._answers_pass = asyncio.Event()
        self._requests_pass.set()
        self._answers_pass.set()
        self._refuses = False
        self._ignores_next = False
        self.holds = asyncio.Event()  # something that was sent waits here
        self.port = 0

    def hold_requests(self):
        self._requests_pass.clear()

    def hold_answers(self):
        self._answers_pass.clear()

    def cut(self, *, refuse=False):
        """Close every connection with what is held back in it; later ones pass, or are refused."""
        self._refuses = refuse
        for pump in list(self._pumps):
            pump.cancel()
        for writer in list(self._writers):
            writer.transport.abort()
        self._requests_pass.set()
        self._answers_pass.set()

    def ignore_next(self):
        """Accept one more connection, and never answer it."""
        self._ignores_next = True

    def admit(self):
        self._refuses = False

    async def _serve(self, reader, writer):
        if self._refuses:
            writer.transport.abort()
            return
        if self._ignores_next:
            self._ignores_next = False
            while await reader.read(_CHUNK_BYTES):
                self.holds.set()
            writer.transport.abort()
            return
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers |= {writer, server_writer}
        pumps = [
            asyncio.ensure_future(self._pump(reader, server_writer, self._requests_pass)),
            asyncio.ensure_future(self._pump(server_reader, writer, self._answers_pass)),
        ]
        self._pumps |= set(pumps)
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        self._pumps -= set(pumps)
        for side in (writer, server_writer):
            side.transport.abort()
            self._writers.discard(side)

    async def _pump(self, reader, writer, passes):
        while data := await reader.read(_CHUNK_BYTES):
            if not passes.is_set():
                self.holds.set()
                await passes.wait()
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def gate(port):
    proxy = Gate(port)
    serving = set()

    async def serve(reader, writer):
        task = asyncio.current_task()
        serving.add(task)
        try:
            await proxy._serve(reader, writer)
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            serving.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        proxy.cut(refuse=True)
        await asyncio.gather(*serving, return_exceptions=True)
