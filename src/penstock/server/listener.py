"""The addresses that clients connect to, each under the name it has in `listeners`."""

import asyncio
import socket
from collections.abc import Callable

from penstock.config.broker import BrokerConfig
from penstock.config.listeners import PLAINTEXT, ListenerConfig
from penstock.core.endpoints import WILDCARDS, Address, Endpoint
from penstock.core.errors import PenstockError
from penstock.server.connections import Connections
from penstock.server.stream import Stream
from penstock.server.writer import SendingTurn, SocketWriter, TransportWriter, Writer, set_buffers


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
        config: ListenerConfig,
        accept: Callable[["Listener"], Stream],
        *,
        past_transport: bool,
        socket_buffers: tuple[int, int] = (-1, -1),
    ) -> None:
        """`accept` makes the protocol of a new connection. `past_transport`: answers go straight to its socket (ADR 4).

        `socket_buffers` are the kernel's for receiving and sending, in bytes; negative: as the system has them.
        """
        self._loop = loop
        self.name = config.name
        self.address = config.address
        self._config = config
        self._accept = accept
        self._past_transport = past_transport
        self._socket_buffers = socket_buffers
        self._sending_turn = SendingTurn(loop)
        self._server: asyncio.AbstractServer | None = None

    async def bind(self, backlog: int) -> None:
        """Take the address; from now on `address` has the port, also where any free one would do."""
        host, port = self.address
        self._server = await self._loop.create_server(
            self._connection, host, port, backlog=backlog, start_serving=False
        )
        self.address = Address(host, bound_port(self._server, host, port))

    async def serve(self) -> None:
        """Let clients in."""
        assert self._server is not None
        await self._server.start_serving()

    def stop_accepting(self) -> None:
        if self._server is not None:
            self._server.close()

    @property
    def endpoint(self) -> Endpoint | None:
        """Where clients are told to connect. A wildcard address stands for the machine's name."""
        advertised = self._config.advertised
        if advertised is None:
            return None
        host = socket.gethostname() if advertised.host in WILDCARDS else advertised.host
        return Endpoint(self.name, self._config.protocol, host, advertised.port or self.address.port)

    def _connection(self) -> Stream:
        return self._accept(self)

    def writer(self, transport: asyncio.Transport, drained: Callable[[], None]) -> Writer:
        """Never by what the transport reveals: one that encrypts has a socket, too, which must not be written to."""
        if not self._past_transport:
            return TransportWriter(transport)
        descriptor = transport.get_extra_info("socket").fileno()
        set_buffers(descriptor, *self._socket_buffers)
        return SocketWriter(self._loop, transport, descriptor, drained, self._sending_turn)


class Listeners:
    """All of one broker, in the order of the setting."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: BrokerConfig,
        connections: Connections,
        accept: Callable[[Listener], Stream],
        *,
        has_sockets: bool,
    ) -> None:
        self._connections = connections
        self.all = [
            Listener(
                loop,
                listener,
                accept,
                past_transport=has_sockets and listener.protocol == PLAINTEXT,
                socket_buffers=(config.socket_receive_buffer_bytes, config.socket_send_buffer_bytes),
            )
            for listener in config.listeners
        ]

    async def bind(self, backlog: int) -> None:
        for listener in self.all:
            await listener.bind(backlog)

    async def serve(self) -> None:
        for listener in self.all:
            await listener.serve()
        self._connections.start_sweeping()

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Those that are advertised."""
        return tuple(endpoint for listener in self.all if (endpoint := listener.endpoint) is not None)

    async def close(self) -> None:
        """No new connections, and none that are left."""
        for listener in self.all:
            listener.stop_accepting()
        await self._connections.close()
