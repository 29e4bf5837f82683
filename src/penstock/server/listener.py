"""One address that clients connect to, under the name it has in `listeners`."""

import asyncio
from collections.abc import Callable

from penstock.core.errors import PenstockError
from penstock.server.stream import Stream
from penstock.server.writer import SocketWriter, TransportWriter, Writer, set_buffers


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
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        name: str,
        accept: Callable[["Listener"], Stream],
        *,
        past_transport: bool,
        socket_buffers: tuple[int, int] = (-1, -1),
    ) -> None:
        """`accept` makes the protocol of a new connection. `past_transport`: answers go straight to its socket (ADR 4).

        `socket_buffers` are the kernel's for receiving and sending, in bytes; negative: as the system has them.
        """
        self._loop = loop
        self.name = name
        self._accept = accept
        self._past_transport = past_transport
        self._socket_buffers = socket_buffers
        self._server: asyncio.AbstractServer | None = None

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

    def stop_accepting(self) -> None:
        if self._server is not None:
            self._server.close()

    def _connection(self) -> Stream:
        return self._accept(self)

    def writer(self, transport: asyncio.Transport, drained: Callable[[], None]) -> Writer:
        """Never by what the transport reveals: one that encrypts has a socket, too, which must not be written to."""
        if not self._past_transport:
            return TransportWriter(transport)
        descriptor = transport.get_extra_info("socket").fileno()
        set_buffers(descriptor, *self._socket_buffers)
        return SocketWriter(self._loop, transport, descriptor, drained)
