"""Large requests share one budget of memory: reading waits past it, nobody waits for ever, small ones never do."""

import asyncio
import gc
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop
from tests.unit.server.unlistened import Unlistened, connections, real_listener

from penstock.core.descriptors import Descriptors, Shares
from penstock.core.errors import ProtocolError
from penstock.core.limits import RECEIVE_BUFFER_BYTES, RECEIVE_CHECK_SECONDS, TURN_BYTES_MAX
from penstock.core.stats import RequestStats
from penstock.server.idle_poll import IdlePoll
from penstock.server.kafka_connection import KafkaConnection
from penstock.server.receiving import ReceiveBudget
from penstock.server.sending import SendBudget
from penstock.server.writer import Part

MEGABYTE = 1 << 20
BUDGET_BYTES = 8 * MEGABYTE
LARGE_BYTES = 6 * MEGABYTE
ORDINARY_BYTES = 300 * 1024
PIECE_BYTES = 256 * 1024


class Timer:
    def __init__(self, cancel: Callable[[], object]) -> None:
        self.cancel = cancel


class Steps(asyncio.AbstractEventLoop):
    """A loop whose turns and time are the test's."""

    def __init__(self) -> None:
        self.now = 0.0
        self._soon: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self._later: list[tuple[float, Callable[..., object], tuple[Any, ...]]] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[..., object], *args: Any, **_: Any) -> Any:
        self._soon.append((callback, args))

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any, **_: Any) -> Any:
        timer = (self.now + delay, callback, args)
        self._later.append(timer)
        return Timer(lambda: timer in self._later and self._later.remove(timer))

    def turn(self, seconds: float = 0.0) -> None:
        self.now += seconds
        due = [timer for timer in self._later if timer[0] <= self.now]
        self._later = [timer for timer in self._later if timer not in due]
        self._soon += [(callback, args) for _, callback, args in due]
        while self._soon:
            soon, self._soon = self._soon, []
            for callback, args in soon:
                callback(*args)


class Server:
    """Host and dispatcher; request 0 may be of any size, as Produce."""

    request_bytes_max = 100 * MEGABYTE
    bytes_in = bytes_out = held_bytes = 0

    def __init__(self, loop: asyncio.AbstractEventLoop, budget_bytes: int = BUDGET_BYTES) -> None:
        self.requests = RequestStats()
        self.idle_poll = IdlePoll(loop, 0)
        self.descriptors = Descriptors(Shares(100, 100))
        self.receive_budget = ReceiveBudget(loop, budget_bytes)
        self.send_budget = SendBudget(loop)
        self.answered: list[int] = []

    def opened(self, connection: KafkaConnection) -> bool:
        return True

    def closed(self, connection: KafkaConnection) -> None: ...

    def run(self, work: Coroutine[object, object, None]) -> None: ...

    def admit(self, api_key: int, size_bytes: int) -> None:
        if api_key:
            raise ProtocolError("too large")

    def dispatch(self, connection: KafkaConnection, frame: memoryview) -> list[Part] | None:
        self.answered.append(len(frame))
        return [b"answer"]

    def write_held(self) -> None: ...


class Client(asyncio.Transport):
    """Sends one request after the other while it is read from."""

    def __init__(self, loop: Steps, server: Server, *requests: int, api_key: int = 0) -> None:
        super().__init__()
        self._data = b"".join(
            size.to_bytes(4, "big") + api_key.to_bytes(2, "big") + bytes(size - 2) for size in requests
        )
        self._sent = 0
        self.reading = True
        self.closed = False
        self.connection = KafkaConnection(loop, server, server, Unlistened())
        self.connection.connection_made(self)

    def send(self, size_bytes: int = PIECE_BYTES) -> int:
        """What was taken of it."""
        before = self._sent
        while self.reading and not self.closed and self._sent - before < size_bytes and not self.is_done:
            room = self.connection.get_buffer(-1)
            taken = min(len(room), size_bytes - (self._sent - before), len(self._data) - self._sent)
            room[:taken] = self._data[self._sent : self._sent + taken]
            self._sent += taken
            self.connection.buffer_updated(taken)
        return self._sent - before

    @property
    def is_done(self) -> bool:
        return self._sent == len(self._data)

    @property
    def buffer_bytes(self) -> int:
        return len(self.connection._buffer)

    def abort(self) -> None:
        if not self.closed:
            self.closed = True
            self.connection.connection_lost(None)

    close = abort

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def is_closing(self) -> bool:
        return self.closed

    def write(self, data: object) -> None: ...

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


@pytest.fixture
def loop() -> Steps:
    return Steps()


@pytest.fixture
def server(loop: Steps) -> Server:
    return Server(loop)


def received_in_all(clients: list[Client]) -> int:
    return sum(max(0, client.connection.received_bytes()) for client in clients)


def test_many_large_requests_never_hold_more_than_the_budget_and_one(loop: Steps, server: Server) -> None:
    clients = [Client(loop, server, LARGE_BYTES, LARGE_BYTES) for _ in range(6)]
    peak = 0
    while not all(client.is_done for client in clients):
        assert sum([client.send() for client in clients]), "a standstill"
        loop.turn()
        peak = max(peak, received_in_all(clients))
    assert server.answered == [LARGE_BYTES] * 12
    assert peak <= BUDGET_BYTES + LARGE_BYTES + TURN_BYTES_MAX
    assert server.receive_budget.used_bytes == 0
    assert {client.buffer_bytes for client in clients} == {RECEIVE_BUFFER_BYTES}


def test_ordinary_requests_share_the_budget_too(loop: Steps, server: Server) -> None:
    clients = [Client(loop, server, *[ORDINARY_BYTES] * 3) for _ in range(100)]
    peak = 0
    while not all(client.is_done for client in clients):
        assert sum([client.send(50_000) for client in clients]), "a standstill"
        loop.turn()
        peak = max(peak, server.receive_budget.used_bytes)
    assert server.answered == [ORDINARY_BYTES] * 300
    assert peak <= BUDGET_BYTES


def test_large_requests_leave_room_for_ordinary_ones(loop: Steps, server: Server) -> None:
    clients = [Client(loop, server, LARGE_BYTES) for _ in range(6)]
    while sum(
        [client.send() for client in clients[1:]]
    ):  # the first, which is favoured, says nothing any more
        loop.turn()
    ordinary = Client(loop, server, ORDINARY_BYTES)
    ordinary.send(ORDINARY_BYTES + 4)
    assert server.answered[-1] == ORDINARY_BYTES


def test_small_requests_never_wait(loop: Steps) -> None:
    server = Server(loop, budget_bytes=0)
    small = Client(loop, server, *[60_000] * 10)
    small.send(MEGABYTE)
    assert server.answered == [60_000] * 10


def test_whoever_holds_what_others_wait_for_and_stops_sending_is_dropped(loop: Steps, server: Server) -> None:
    idlers = [Client(loop, server, LARGE_BYTES) for _ in range(4)]
    for client in idlers:
        client.send(5 * MEGABYTE)
        loop.turn()
    good = Client(loop, server, *[LARGE_BYTES] * 10)
    while not good.is_done and loop.now < 20 * RECEIVE_CHECK_SECONDS:
        good.send(LARGE_BYTES)
        loop.turn(RECEIVE_CHECK_SECONDS / 10)
    assert good.is_done
    assert not good.closed
    assert any(client.closed for client in idlers)


def test_buffers_that_are_only_kept_are_given_back_when_others_need_them(loop: Steps, server: Server) -> None:
    keepers = [Client(loop, server, MEGABYTE) for _ in range(6)]
    for client in keepers:
        client.send(2 * MEGABYTE)
    loop.turn()
    assert server.receive_budget.used_bytes > BUDGET_BYTES // 2
    large = Client(loop, server, LARGE_BYTES)
    for _ in range(LARGE_BYTES // PIECE_BYTES + 2):
        large.send()
        loop.turn()
    assert large.is_done
    assert {client.buffer_bytes for client in keepers} == {RECEIVE_BUFFER_BYTES}


def test_one_that_is_refused_room_and_then_needs_a_smaller_buffer_goes_on(loop: Steps) -> None:
    """Its buffer, kept from before, has requests in front that are done: giving that back ends its wait."""
    server = Server(loop, budget_bytes=2 * MEGABYTE)
    other = Client(loop, server, 1000 * 1024, 1900 * 1024)
    client = Client(loop, server, 1000 * 1024, 500 * 1024, 1500 * 1024, 10)
    for sender in (other, client):
        sender.send(1000 * 1024 + 4)
        loop.turn()
    other.send(500 * 1024)
    for sender in (client, other):
        while not sender.is_done:
            assert sender.send(), "a standstill"
            loop.turn()
    assert sorted(server.answered) == [10, *(size * 1024 for size in (500, 1000, 1000, 1500, 1900))]


def test_one_that_is_refused_room_while_its_request_is_worked_on_goes_on_behind_it(loop: Steps) -> None:
    """The request has come whole with the last read of a turn: it needs no more, and gives back what it held."""

    class Working(Server):
        def run(self, work: Coroutine[object, object, None]) -> None:
            self.work = work

        def dispatch(self, connection: KafkaConnection, frame: memoryview) -> list[Part] | None:
            async def answer() -> list[Part]:
                return [b"answer"]

            self.answered.append(len(frame))
            connection.run(answer())
            return None

    server = Working(loop)
    client = Client(loop, server, LARGE_BYTES - 4, 10)
    for size in (LARGE_BYTES - 4, 10):
        while size not in server.answered:
            assert client.send(), "a standstill"
            loop.turn()
        with pytest.raises(StopIteration):
            server.work.send(None)
    assert server.receive_budget.used_bytes == 0


def test_a_connection_that_is_lost_makes_room(loop: Steps, server: Server) -> None:
    clients = [Client(loop, server, LARGE_BYTES) for _ in range(4)]
    for client in clients:
        client.send(5 * MEGABYTE)
    loop.turn()
    for client in clients:
        client.abort()
    assert server.receive_budget.used_bytes == 0
    loop.turn()
    last = Client(loop, server, LARGE_BYTES)
    while last.send():
        loop.turn()
    assert last.is_done


def test_a_request_too_large_for_its_kind_is_refused_before_it_has_come(loop: Steps, server: Server) -> None:
    client = Client(loop, server, 90 * MEGABYTE, api_key=3)
    while client.send():
        loop.turn()
    assert client.closed
    assert client._sent <= 4 * MEGABYTE


@pytest.mark.parametrize("size", [1000, LARGE_BYTES])
def test_a_connection_and_its_buffer_go_when_its_client_does(size: int) -> None:
    """Without waiting for the garbage collector."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        kept: list[weakref.ref[KafkaConnection]] = []
        gone = asyncio.Event()

        class Watched(Server):
            def dispatch(self, connection: KafkaConnection, frame: memoryview) -> list[Part] | None:
                kept.append(weakref.ref(connection, lambda _: gone.set()))
                return super().dispatch(connection, frame)

        host = connections(loop, Server.request_bytes_max)
        listener = real_listener(loop, host, Watched(loop))
        await listener.bind(10)
        await listener.serve()
        reader, writer = await asyncio.open_connection(*listener.address)
        writer.write(size.to_bytes(4, "big") + bytes(size) + size.to_bytes(4, "big") + bytes(size // 2))
        await reader.readexactly(6)
        writer.close()
        try:
            await asyncio.wait_for(gone.wait(), 20)
        finally:
            listener.stop_accepting()
            await host.close()

    gc.collect()
    gc.disable()
    try:
        uvloop.run(story())
    finally:
        gc.enable()
