"""The Kafka listener: accepts connections within limits, knows them all, closes the idle ones."""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Coroutine

from penstock.core.errors import PenstockError
from penstock.core.stats import RequestStats
from penstock.server.awake import Awake
from penstock.server.connection import Connection
from penstock.server.owing import Dispatcher
from penstock.server.receiving import ReceiveBudget

log = logging.getLogger(__name__)

# How often idle connections are looked for, at least; they may overstay by this much.
_SWEEP_SECONDS = 10.0
# After this long without a request a connection keeps no more memory than a new one.
_QUIET_SECONDS = 5.0


class NotListeningError(PenstockError):
    """No socket could be had for an address."""


def bound_port(server: asyncio.AbstractServer, host: str, port: int) -> int:
    """The port that a server listens on. A loop that finds no descriptor makes a server without sockets."""
    sockets = getattr(server, "sockets", None)
    if sockets is None:  # in the simulation
        return port
    if not sockets:
        raise NotListeningError(f"cannot listen on {host}:{port}: no socket is to be had; see `ulimit -n`")
    return int(sockets[0].getsockname()[1])


class Listener:
    """The `Host` of its connections."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        dispatcher: Dispatcher,
        *,
        request_bytes_max: int,
        receiving_bytes_max: int,
        socket_buffers: tuple[int, int],
        connections_max: int,
        connections_per_ip_max: int,
        idle_ms_max: int,
        awake_seconds: float = 0.0,
    ) -> None:
        self._loop = loop
        self._dispatcher = dispatcher
        self.request_bytes_max = request_bytes_max
        self.socket_buffers = socket_buffers
        self.connections_max = connections_max
        self.connections_per_ip_max = connections_per_ip_max
        self.idle_ms_max = idle_ms_max
        self.bytes_in = 0
        self.bytes_out = 0
        self.refused = 0
        self.requests = RequestStats()
        self.receive_budget = ReceiveBudget(loop, receiving_bytes_max)
        self.awake = Awake(loop, awake_seconds)
        self._connections: dict[Connection, None] = {}
        self._per_ip: Counter[str] = Counter()
        self._queue: deque[Connection] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.AbstractServer | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    async def bind(self, host: str, port: int, backlog: int) -> int:
        """Take the address, and return the port (the one chosen by the system where 0 was asked for)."""
        self._server = await self._loop.create_server(
            self._connection, host, port, backlog=backlog, start_serving=False
        )
        return bound_port(self._server, host, port)

    async def serve(self) -> None:
        """Let clients in."""
        assert self._server is not None
        await self._server.start_serving()
        self._sweeper = self._loop.call_later(self._sweep_seconds, self._sweep)

    def _connection(self) -> Connection:
        return Connection(self._loop, self, self._dispatcher)

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    # -- Host ----------------------------------------------------------------------------------------------

    def opened(self, connection: Connection) -> bool:
        if (
            len(self._connections) >= self.connections_max
            or self._per_ip[connection.peer] >= self.connections_per_ip_max
        ):
            self.refused += 1
            return False
        self._connections[connection] = None
        self._per_ip[connection.peer] += 1
        return True

    def closed(self, connection: Connection) -> None:
        if self._connections.pop(connection, self) is None:
            self._per_ip[connection.peer] -= 1
            if not self._per_ip[connection.peer]:
                del self._per_ip[connection.peer]

    def run(self, work: Coroutine[object, object, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def queue(self, connection: Connection) -> None:
        self._queue.append(connection)
        if len(self._queue) == 1:
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        """One per turn of the loop, however many have much to ask."""
        try:
            self._queue[0].take_turn()  # it may queue up again, at the end
        finally:
            self._queue.popleft()
            if self._queue:
                self._loop.call_soon(self._next_turn)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a request failed unexpectedly", exc_info=error)

    # -- closing -------------------------------------------------------------------------------------------

    def _sweep(self) -> None:
        now = self._loop.time()
        oldest = now - self.idle_ms_max / 1000
        for connection in [c for c in self._connections if c.last_active < max(oldest, now - _QUIET_SECONDS)]:
            if connection.last_active < oldest:
                log.info("closing the connection of %s: idle for too long", connection.peer)
                connection.close()
            else:
                connection.give_back_buffer()
        self._sweeper = self._loop.call_later(self._sweep_seconds, self._sweep)

    @property
    def _sweep_seconds(self) -> float:
        return min(_SWEEP_SECONDS, max(self.idle_ms_max / 1000, 0.1))

    async def stop_accepting(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._sweeper is not None:
            self._sweeper.cancel()

    async def close(self) -> None:
        """Close every connection and wait for the requests under way."""
        await self.stop_accepting()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=5)
        for connection in list(self._connections):
            connection.close()
