"""Links between simulated hosts, and the two one-way pipes of a connection.

A pipe keeps the order of what is sent, cuts it into seeded pieces and delays each by the link's latency.
While the link is stalled, what arrives stays in the pipe: every item has one arrival event, and an event
that meets a stalled link is counted and repeated when the link heals.
"""

import itertools
import random
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.testing.sim_loop import SimLoop
    from penstock.testing.sim_transport import SimTransport

LOOPBACK_SECONDS = (20e-6, 60e-6)
NETWORK_SECONDS = (100e-6, 1e-3)
# One piece mostly, as on a quiet network; small reads and frames that straddle reads often enough.
PIECES = (1, 1, 1, 2, 3, 5)
WINDOW_BYTES = (16 * 1024, 64 * 1024, 256 * 1024)


class Signal(Enum):
    """What travels beside bytes."""

    EOF = "eof"
    RESET = "reset"
    WINDOW = "window"


class Link:
    """One direction between two hosts."""

    def __init__(self, loop: "SimLoop", rng: random.Random, source: str, target: str) -> None:
        self._loop = loop
        self._rng = rng
        self.source = source
        self.target = target
        self.latency_seconds = LOOPBACK_SECONDS if source == target else NETWORK_SECONDS
        self.stalled = False
        self.choked = False  # the target reads nothing: what is sent from now on waits at its sender
        self.pipes: dict[Pipe, None] = {}
        self._waiters: list[Pipe | _Crossing] = []

    def delay(self) -> float:
        return self._rng.uniform(*self.latency_seconds)

    def pieces(self, data: bytes) -> list[bytes]:
        count = min(self._rng.choice(PIECES), len(data))
        cuts = sorted(self._rng.randrange(1, len(data)) for _ in range(count - 1)) if count > 1 else []
        edges = [0, *cuts, len(data)]
        return [data[a:b] for a, b in itertools.pairwise(edges) if b > a]

    def wait_until_healed(self, waiter: "Pipe | _Crossing") -> None:
        self._waiters.append(waiter)

    def heal(self) -> None:
        self.stalled = False
        if self.choked:
            self.choked = False
            for pipe in self.pipes:
                pipe.room_again()
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.again()

    async def cross(self) -> None:
        """The time a handshake packet takes; as long as the stall when the link is stalled."""
        crossing = _Crossing(self._loop, self)
        crossing.again()
        await crossing.done


class _Crossing:
    def __init__(self, loop: "SimLoop", link: Link) -> None:
        self._loop = loop
        self._link = link
        self.done = loop.create_future()

    def again(self) -> None:
        self._loop.call_later(self._link.delay(), self._arrive, context=self._loop.network.context)

    def _arrive(self) -> None:
        if self._link.stalled:
            self._link.wait_until_healed(self)
        elif not self.done.done():
            self.done.set_result(None)


class Pipe:
    """What one end of a connection sends to the other."""

    def __init__(self, loop: "SimLoop", link: Link, number: int, window_bytes: int) -> None:
        self._loop = loop
        self.link = link
        self.number = number
        self.window_bytes = window_bytes
        self.unread_bytes = 0
        self.source: SimTransport | None = None
        self.target: SimTransport | None = None
        self._items: deque[bytes | Signal] = deque()
        self._last_arrival = 0.0
        link.pipes[self] = None

    def room_bytes(self) -> int:
        return 0 if self.link.choked else max(0, self.window_bytes - self.unread_bytes)

    def room_again(self) -> None:
        if self.source is not None:
            self.source.receive(Signal.WINDOW)

    def send(self, data: bytes) -> None:
        self.unread_bytes += len(data)
        for piece in self.link.pieces(data):
            self.signal(piece)

    def signal(self, item: bytes | Signal) -> None:
        self._items.append(item)
        self.again()

    def lose(self) -> None:
        """Drop what is on the way."""
        self._items.clear()

    def again(self) -> None:
        self._last_arrival = max(self._last_arrival, self._loop.time() + self.link.delay())
        self._loop.call_at(self._last_arrival, self._arrive, context=self._loop.network.context)

    def _arrive(self) -> None:
        if self.link.stalled:
            self.link.wait_until_healed(self)
            return
        if not self._items or self.target is None:
            return
        item = self._items.popleft()
        if isinstance(item, Signal):
            self._loop.note(f"pipe {self.number} {item.value}")
        else:
            self._loop.note_bytes(f"pipe {self.number}", item)
        self.target.receive(item)

    def remove(self) -> None:
        self.link.pipes.pop(self, None)
