"""Simulated connections call protocols as real transports do, and break as real networks do."""

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from penstock.testing.sim_loop import SimLoop
from penstock.testing.sim_transport import SimTransport

if TYPE_CHECKING:
    from penstock.testing.sim_network import SimServer

PORT = 9092


@pytest.fixture(params=range(8))
def loop(request: pytest.FixtureRequest) -> Iterator[SimLoop]:
    with SimLoop(request.param) as loop:
        yield loop


class Peer(asyncio.BufferedProtocol):
    """Keeps what it gets in a small buffer that is reused, and counts its callbacks."""

    def __init__(self, *, keep_open: bool = False) -> None:
        self._buffer = bytearray(1000)
        self._keep_open = keep_open
        self.transport: SimTransport | None = None
        self.received = bytearray()
        self.reads = 0
        self.calls: list[str] = []
        self.lost_with: list[Exception | None] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, SimTransport)
        self.transport = transport
        self.calls.append("made")

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.reads += 1
        self.received += self._buffer[:nbytes]
        self._buffer[:] = b"\xee" * len(self._buffer)

    def eof_received(self) -> bool:
        self.calls.append("eof")
        return self._keep_open

    def connection_lost(self, exc: Exception | None) -> None:
        self.calls.append("lost")
        self.lost_with.append(exc)

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")


class Pair:
    """A client and the server's end of its connection."""

    def __init__(self, loop: SimLoop, **server_options: bool) -> None:
        self.loop = loop
        self.accepted: list[Peer] = []

        def accept() -> Peer:
            self.accepted.append(Peer(**server_options))
            return self.accepted[-1]

        self.server: SimServer = loop.run_until_complete(
            loop.spawn("server", loop.create_server(accept, "0.0.0.0", PORT))
        )
        self.client = self.connect()
        loop.run_until(lambda: bool(self.accepted) and "made" in self.accepted[0].calls)
        self.there = self.accepted[0]

    def connect(self) -> Peer:
        connecting = self.loop.spawn("client", self.loop.create_connection(Peer, "server", PORT))
        _, protocol = self.loop.run_until_complete(connecting)
        assert isinstance(protocol, Peer)
        return protocol

    def settle(self) -> None:
        self.loop.run_for(1)


def transport(peer: Peer) -> SimTransport:
    assert peer.transport is not None
    return peer.transport


def test_bytes_arrive_in_order_and_in_pieces(loop: SimLoop) -> None:
    pair = Pair(loop)
    sent = b"".join(bytes([n % 251]) * 97 for n in range(100))
    for at in range(0, len(sent), 970):
        transport(pair.client).write(sent[at : at + 970])
    transport(pair.there).writelines([b"hello ", memoryview(b"back"), bytearray(b"!")])
    pair.settle()
    assert pair.there.received == sent
    assert pair.there.reads > 1
    assert pair.client.received == b"hello back!"


def test_ends_know_their_addresses(loop: SimLoop) -> None:
    pair = Pair(loop)
    assert pair.server.sockets[0].getsockname() == ("server", PORT)
    assert transport(pair.client).get_extra_info("peername") == ("server", PORT)
    assert transport(pair.there).get_extra_info("sockname") == ("server", PORT)
    assert transport(pair.there).get_extra_info("peername") == transport(pair.client).get_extra_info(
        "sockname"
    )
    assert transport(pair.client).get_extra_info("socket", "unset") is None
    assert transport(pair.client).get_protocol() is pair.client


def test_a_plain_protocol_is_served_too(loop: SimLoop) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def scenario() -> bytes:
        server = await asyncio.start_server(echo, "localhost", 0)
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"x" * 300_000)
        writer.write_eof()
        echoed = await reader.read()
        writer.close()
        await writer.wait_closed()
        server.close()
        await server.wait_closed()
        return echoed

    assert loop.run_until_complete(scenario()) == b"x" * 300_000


def test_close_sends_what_is_queued_and_then_ends_both_sides(loop: SimLoop) -> None:
    pair = Pair(loop)
    transport(pair.client).write(b"last words" * 50_000)
    transport(pair.client).close()
    assert transport(pair.client).is_closing()
    transport(pair.client).write(b"too late")
    pair.settle()
    assert pair.there.received == b"last words" * 50_000
    assert pair.there.calls == ["made", "eof", "lost"]
    assert pair.there.lost_with == [None]
    assert pair.client.lost_with == [None]
    assert loop.network.connection_count("server") == loop.network.connection_count("client") == 0


def test_a_write_after_the_end_is_refused_as_by_uvloop(loop: SimLoop) -> None:
    pair = Pair(loop)
    transport(pair.client).close()
    transport(pair.client).write(b"ignored while closing")
    pair.settle()
    with pytest.raises(RuntimeError, match="closed"):
        transport(pair.client).write(b"too late")
    transport(pair.client).close()
    transport(pair.client).abort()
    assert pair.client.calls == ["made", "lost"]


def test_abort_drops_what_is_queued(loop: SimLoop) -> None:
    pair = Pair(loop)
    transport(pair.there).pause_reading()
    transport(pair.client).write(b"x" * 1_000_000)
    pair.settle()
    transport(pair.client).abort()
    pair.settle()
    assert transport(pair.client).get_write_buffer_size() == 0
    assert pair.client.lost_with == [None]
    transport(pair.there).resume_reading()
    pair.settle()
    assert 0 < len(pair.there.received) < 1_000_000
    assert pair.there.calls[-1] == "lost"


def test_a_half_closed_connection_still_carries_the_answer(loop: SimLoop) -> None:
    pair = Pair(loop, keep_open=True)
    transport(pair.client).write(b"question")
    transport(pair.client).write_eof()
    with pytest.raises(RuntimeError):
        transport(pair.client).write(b"more")
    pair.settle()
    assert pair.there.calls == ["made", "eof"]
    transport(pair.there).write(b"answer")
    transport(pair.there).close()
    pair.settle()
    assert pair.client.received == b"answer"
    assert pair.there.calls == ["made", "eof", "lost"]
    assert pair.client.calls == ["made", "eof", "lost"]


def test_a_reader_that_stops_makes_the_writer_pause(loop: SimLoop) -> None:
    pair = Pair(loop)
    transport(pair.there).pause_reading()
    assert not transport(pair.there).is_reading()
    transport(pair.client).set_write_buffer_limits(high=10_000, low=1_000)
    sent = 0
    while "pause" not in pair.client.calls:
        transport(pair.client).write(b"y" * 5_000)
        sent += 5_000
        pair.settle()
    assert transport(pair.client).get_write_buffer_size() > 10_000
    assert pair.there.received == b""
    transport(pair.there).resume_reading()
    pair.settle()
    assert pair.client.calls == ["made", "pause", "resume"]
    assert len(pair.there.received) == sent


def test_pausing_inside_a_callback_holds_the_rest_back(loop: SimLoop) -> None:
    pair = Pair(loop)
    update = pair.there.buffer_updated

    def update_once(nbytes: int) -> None:
        update(nbytes)
        transport(pair.there).pause_reading()

    pair.there.buffer_updated = update_once  # type: ignore[method-assign]
    transport(pair.client).write(b"z" * 5_000)
    pair.settle()
    assert pair.there.reads == 1
    for _ in range(100):
        transport(pair.there).resume_reading()
        pair.settle()
    assert pair.there.received == b"z" * 5_000


def test_a_buffer_changed_after_write_sends_the_changed_bytes(loop: SimLoop) -> None:
    """uvloop keeps references: the simulation must show code that reuses a buffer too early."""
    pair = Pair(loop)
    buffer = bytearray(b"right")
    transport(pair.client).write(buffer)
    buffer[:] = b"wrong"
    pair.settle()
    assert pair.there.received == b"wrong"


def test_closing_with_unread_input_resets_the_peer(loop: SimLoop) -> None:
    pair = Pair(loop)
    transport(pair.there).pause_reading()
    transport(pair.client).write(b"unread")
    pair.settle()
    transport(pair.there).close()
    pair.settle()
    assert isinstance(pair.client.lost_with[0], ConnectionResetError)


def test_writing_to_a_closed_peer_is_reset(loop: SimLoop) -> None:
    pair = Pair(loop)
    pair.client.eof_received = lambda: True  # type: ignore[method-assign]
    transport(pair.there).close()
    pair.settle()
    assert pair.client.lost_with == []
    transport(pair.client).write(b"anyone there?")
    pair.settle()
    assert isinstance(pair.client.lost_with[0], ConnectionResetError)


def test_connecting_to_nobody_is_refused(loop: SimLoop) -> None:
    pair = Pair(loop)
    pair.server.close()
    assert not pair.server.is_serving()
    for target in ("server", "unheard-of"):
        with pytest.raises(ConnectionRefusedError):
            loop.run_until_complete(loop.create_connection(Peer, target, PORT))


def test_a_port_can_be_listened_on_once(loop: SimLoop) -> None:
    Pair(loop)
    with pytest.raises(OSError, match="already in use"):
        loop.run_until_complete(loop.spawn("server", loop.create_server(Peer, None, PORT)))


def test_a_server_is_closed_when_its_last_connection_has_ended(loop: SimLoop) -> None:
    pair = Pair(loop)
    pair.server.close()
    waiting = loop.spawn("server", pair.server.wait_closed())
    pair.settle()
    assert not waiting.done()
    transport(pair.there).close()
    loop.run_until_complete(waiting)


def test_a_cut_resets_both_ends_and_new_connections_work(loop: SimLoop) -> None:
    pair = Pair(loop)
    transport(pair.client).write(b"lost on the way")
    loop.network.cut("client", "server")
    pair.settle()
    for peer in (pair.client, pair.there):
        assert isinstance(peer.lost_with[0], ConnectionResetError)
        assert peer.calls == ["made", "lost"]
    pair.connect()


def test_a_stall_holds_everything_back_until_it_heals(loop: SimLoop) -> None:
    pair = Pair(loop)
    loop.network.stall("client", "server")
    transport(pair.client).write(b"one ")
    pair.settle()
    transport(pair.client).write(b"two")
    transport(pair.there).write(b"back")
    connecting = loop.spawn("client", loop.create_connection(Peer, "server", PORT))
    pair.settle()
    assert pair.there.received == b""
    assert pair.client.received == b""
    assert not connecting.done()
    loop.network.heal("client", "server")
    pair.settle()
    assert pair.there.received == b"one two"
    assert pair.client.received == b"back"
    assert connecting.done()


def test_a_one_way_stall_lets_the_other_way_pass(loop: SimLoop) -> None:
    pair = Pair(loop)
    loop.network.stall("server", "client", one_way=True)
    transport(pair.client).write(b"request")
    transport(pair.there).write(b"response")
    pair.settle()
    assert pair.there.received == b"request"
    assert pair.client.received == b""
    loop.network.heal_all()
    pair.settle()
    assert pair.client.received == b"response"


def test_latency_is_what_it_was_set_to(loop: SimLoop) -> None:
    pair = Pair(loop)
    loop.network.set_latency("client", "server", 5, 6)
    start = loop.time()
    transport(pair.client).write(b"slow")
    loop.run_until(lambda: pair.there.received == b"slow")
    assert 5 <= loop.time() - start < 6.1


def test_a_crash_resets_the_peers_and_calls_nothing_of_the_dead(loop: SimLoop) -> None:
    pair = Pair(loop)
    transport(pair.client).write(b"into the void")
    calls, received = list(pair.there.calls), bytes(pair.there.received)
    loop.crash("server")
    pair.settle()
    assert isinstance(pair.client.lost_with[0], ConnectionResetError)
    assert (pair.there.calls, bytes(pair.there.received)) == (calls, received)
    with pytest.raises(ConnectionRefusedError):
        pair.connect()
    Pair(loop)


def test_a_client_that_dies_while_connecting_leaves_no_connection(loop: SimLoop) -> None:
    pair = Pair(loop)
    connecting = loop.spawn("other", loop.create_connection(Peer, "server", PORT))
    loop.run_until(lambda: len(pair.accepted) == 2)
    loop.crash("other")
    pair.settle()
    assert not connecting.done()
    assert pair.accepted[1].calls == ["made", "lost"]
    connecting = loop.spawn("third", loop.create_connection(Peer, "server", PORT))
    loop.run_until(lambda: len(pair.accepted) == 3)
    connecting.cancel()
    pair.settle()
    assert pair.accepted[2].calls[-1] == "lost"


@pytest.mark.parametrize("broken", ["get_buffer", "buffer_updated", "eof_received"])
def test_a_protocol_that_fails_is_reported_and_disconnected(loop: SimLoop, broken: str) -> None:
    pair = Pair(loop)
    reports: list[str] = []
    loop.set_exception_handler(lambda _, context: reports.append(type(context["exception"]).__name__))

    def fail(*_: object) -> None:
        raise ValueError(broken)

    setattr(pair.there, broken, fail)
    transport(pair.client).write(b"x")
    transport(pair.client).write_eof()
    pair.settle()
    assert reports == ["ValueError"]
    assert isinstance(pair.there.lost_with[0], ValueError)
    assert pair.client.calls[-1] == "lost"


def test_a_process_may_not_listen_on_anothers_address(loop: SimLoop) -> None:
    listen: Callable[[], object] = lambda: loop.run_until_complete(loop.create_server(Peer, "server", PORT))  # noqa: E731
    with pytest.raises(OSError, match="not an address"):
        listen()
