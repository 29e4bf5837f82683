"""The simulated network: named hosts, listeners, connections, and what can go wrong between them.

A host is reached by its name, or as localhost from itself. A process that crashes takes its listeners and
connections with it; the peers see a reset, and connecting is refused until it listens again.
"""

import asyncio
import contextvars
import errno
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.testing.sim_host import Host
from penstock.testing.sim_link import WINDOW_BYTES, Link, Pipe, Signal
from penstock.testing.sim_transport import Protocol, SimTransport

if TYPE_CHECKING:
    from penstock.testing.sim_loop import SimLoop

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0", "::", ""})
FIRST_FREE_PORT = 40_000

Factory = Callable[[], Protocol]


class SimNetwork:
    def __init__(self, loop: "SimLoop", rng: random.Random) -> None:
        self._loop = loop
        self._rng = rng
        self._links: dict[tuple[str, str], Link] = {}
        self._listeners: dict[tuple[str, int], SimServer] = {}
        self._ends: dict[Host, dict[SimTransport, None]] = {}
        self._next_port = FIRST_FREE_PORT
        self._pipes = 0
        # Packets belong to no process: they outlive the crash of the one that sent them.
        self.context = loop.host("network").context

    # -- faults -----------------------------------------------------------------------------------

    def link(self, source: str, target: str) -> Link:
        link = self._links.get((source, target))
        if link is None:
            link = self._links[source, target] = Link(self._loop, self._rng, source, target)
        return link

    def set_latency(self, a: str, b: str, low_seconds: float, high_seconds: float) -> None:
        for link in (self.link(a, b), self.link(b, a)):
            link.latency_seconds = (low_seconds, high_seconds)

    def stall(self, source: str, target: str, *, one_way: bool = False) -> None:
        """Hold everything back, new connections too, until `heal`."""
        self._loop.note(f"stall {source} {target} {one_way}")
        self.link(source, target).stalled = True
        if not one_way:
            self.link(target, source).stalled = True

    def choke(self, source: str, target: str) -> None:
        """As when the target does not read and its window is full: what the source sends stays there, until `heal`."""
        self._loop.note(f"choke {source} {target}")
        self.link(source, target).choked = True

    def heal(self, a: str, b: str) -> None:
        self._loop.note(f"heal {a} {b}")
        for link in (self.link(a, b), self.link(b, a)):
            link.heal()

    def heal_all(self) -> None:
        self._loop.note("heal all")
        for link in self._links.values():
            link.heal()

    def cut(self, a: str, b: str) -> None:
        """Reset every connection between the two; what was on the way is lost."""
        self._loop.note(f"cut {a} {b}")
        ways = [(a, b)] if a == b else [(a, b), (b, a)]
        for way in ways:
            for pipe in self.link(*way).pipes:
                pipe.lose()
                pipe.signal(Signal.RESET)

    def drop_host(self, host: Host) -> None:
        """The process is gone; called by `SimLoop.crash`."""
        for key in [key for key, server in self._listeners.items() if server.host is host]:
            del self._listeners[key]
        for end in list(self._ends.get(host, ())):
            end.die(lose_in_flight=self._rng.random() < 0.5)
        self._ends.pop(host, None)

    # -- bookkeeping of connection ends -------------------------------------------------------------

    def register(self, end: SimTransport) -> None:
        self._ends.setdefault(end.host, {})[end] = None

    def unregister(self, end: SimTransport) -> None:
        self._ends.get(end.host, {}).pop(end, None)

    def connection_count(self, name: str) -> int:
        return sum(len(ends) for host, ends in self._ends.items() if host.name == name)

    # -- listening and connecting -------------------------------------------------------------------

    def listen(
        self,
        factory: Factory,
        host: str | list[str] | None,
        port: int | None,
        *,
        ssl: object = None,
        sock: object = None,
        start_serving: bool = True,
        **_: object,
    ) -> "SimServer":
        if ssl is not None or sock is not None:
            raise NotImplementedError("TLS and ready-made sockets are not simulated")
        owner = self._loop.current_host()
        names = [host] if isinstance(host, str) or host is None else list(host)
        foreign = [name for name in names if name and name not in LOCAL_NAMES and name != owner.name]
        if foreign:
            raise OSError(errno.EADDRNOTAVAIL, f"{foreign[0]} is not an address of {owner.name}")
        if not port:
            port = self._free_port()
        server = SimServer(self._loop, self, owner, factory, port)
        if start_serving:
            self.open(server)
        return server

    def open(self, server: "SimServer") -> None:
        key = (server.host.name, server.port)
        if self._listeners.setdefault(key, server) is not server:
            raise OSError(errno.EADDRINUSE, f"address already in use: {key[0]}:{key[1]}")
        self._loop.note(f"listen {key[0]}:{key[1]}")

    def shut(self, server: "SimServer") -> None:
        key = (server.host.name, server.port)
        if self._listeners.get(key) is server:
            del self._listeners[key]

    def is_open(self, server: "SimServer") -> bool:
        return self._listeners.get((server.host.name, server.port)) is server

    async def connect(
        self,
        factory: Factory,
        host: str | None,
        port: int | None,
        *,
        ssl: object = None,
        sock: object = None,
        **_: object,
    ) -> tuple[SimTransport, Protocol]:
        if ssl or sock is not None:
            raise NotImplementedError("TLS and ready-made sockets are not simulated")
        source = self._loop.current_host().name
        target = source if host is None or host in LOCAL_NAMES else host
        await self.link(source, target).cross()
        server = self._listeners.get((target, port or 0))
        if server is None:
            await self.link(target, source).cross()
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"connection refused: {target}:{port}")
        end = self._join(source, server)
        try:
            await self.link(target, source).cross()
            protocol = factory()
            begun = self._loop.create_future()
            self._loop.call_soon(self._begin, end, protocol, begun, context=end.context)
            await begun
        except BaseException:
            end.abort()
            raise
        return end, protocol

    @staticmethod
    def _begin(end: SimTransport, protocol: Protocol, begun: asyncio.Future[None]) -> None:
        try:
            end.begin(protocol)
        finally:
            if not begun.done():
                begun.set_result(None)

    def _join(self, source: str, server: "SimServer") -> SimTransport:
        """The server's kernel accepts: both ends exist, each in its owner's process."""
        target = server.host.name
        window_bytes = self._rng.choice(WINDOW_BYTES)
        self._pipes += 2
        there = Pipe(self._loop, self.link(source, target), self._pipes - 1, window_bytes)
        back = Pipe(self._loop, self.link(target, source), self._pipes, window_bytes)
        client_address, server_address = (source, self._free_port()), (target, server.port)
        context = contextvars.copy_context()
        client = SimTransport(self._loop, context, there, back, _extra(client_address, server_address))
        accepted = SimTransport(
            self._loop, server.context.copy(), back, there, _extra(server_address, client_address)
        )
        server.accept(accepted)
        self._loop.note(f"connect {source} {target}:{server.port} pipes {there.number} {back.number}")
        return client

    def _free_port(self) -> int:
        self._next_port += 1
        return self._next_port


def _extra(own: tuple[str, int], peer: tuple[str, int]) -> dict[str, Any]:
    return {"sockname": own, "peername": peer, "socket": None}


class SimSocket:
    """As much of a listening socket as a server needs to tell its port."""

    def __init__(self, name: str, port: int) -> None:
        self._address = (name, port)

    def getsockname(self) -> tuple[str, int]:
        return self._address


class SimServer(asyncio.AbstractServer):
    def __init__(self, loop: "SimLoop", network: SimNetwork, host: Host, factory: Factory, port: int) -> None:
        self._loop = loop
        self._network = network
        self._factory = factory
        self._attached: dict[SimTransport, None] = {}
        self._closed = False
        self._waiters: list[asyncio.Future[None]] = []
        self.host = host
        self.port = port
        self.context = contextvars.copy_context()

    @property
    def sockets(self) -> tuple[SimSocket, ...]:
        return () if self._closed else (SimSocket(self.host.name, self.port),)

    def accept(self, end: SimTransport) -> None:
        self._loop.call_soon(self._begin, end, context=end.context)

    def _begin(self, end: SimTransport) -> None:
        if self._closed:
            end.abort()
        else:
            end.begin(self._factory(), self)

    def attach(self, end: SimTransport) -> None:
        self._attached[end] = None

    def detach(self, end: SimTransport) -> None:
        self._attached.pop(end, None)
        self._wake()

    def _wake(self) -> None:
        if self._closed and not self._attached:
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)
            self._waiters.clear()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def is_serving(self) -> bool:
        return self._network.is_open(self)

    async def start_serving(self) -> None:
        if not self.is_serving():
            self._network.open(self)

    async def serve_forever(self) -> None:
        await self.start_serving()
        try:
            await self._loop.create_future()
        finally:
            self.close()
            await self.wait_closed()

    def close(self) -> None:
        self._closed = True
        self._network.shut(self)
        self._wake()

    def close_clients(self) -> None:
        for end in list(self._attached):
            end.close()

    def abort_clients(self) -> None:
        for end in list(self._attached):
            end.abort()

    async def wait_closed(self) -> None:
        """Until the last accepted connection has ended, as asyncio since 3.12 and uvloop do."""
        if not self._closed or self._attached:
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter
