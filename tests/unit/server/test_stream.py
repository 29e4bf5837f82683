"""The part of a connection that knows no protocol: bytes in, turns, back-pressure, bytes out, and who is at the end."""

import asyncio
from struct import pack
from typing import Any

import pytest
from tests.unit.server.unlistened import Unlistened, connections, real_listener

from penstock.core.limits import SEND_BUFFER_BYTES
from penstock.core.session import ANONYMOUS
from penstock.server.connections import Connections
from penstock.server.kafka_connection import KafkaConnection
from penstock.server.stream import Stream
from penstock.server.writer import Part, SocketWriter, TransportWriter


class Wire(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.reading = True
        self.is_slow = False
        self.sent = b""
        self._kept = b""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("192.0.2.7", 1234)}.get(name, default)

    def get_write_buffer_size(self) -> int:
        return len(self._kept)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.is_slow:
            self._kept += data
        else:
            self.sent += data

    def taken(self) -> None:
        self.sent, self._kept = self.sent + self._kept, b""

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Lines(Stream):
    """Another protocol: every line is sent back. It stops at `stop` until it may go on."""

    stopped = False

    def _process(self) -> None:
        while not self.stopped:
            line, newline, _ = bytes(self._view[self._start : self._end]).partition(b"\n")
            if not newline:
                break
            self._start += len(line) + 1
            self.stopped = line == b"stop"
            self._send([line + newline])
            if self.session.muted_until:
                break
        self._make_room(1)
        self._regulate_reading()

    def _may_take_more(self) -> bool:
        return not self.stopped


class Answers:
    """A dispatcher that answers at once."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []

    def dispatch(self, connection: KafkaConnection, frame: memoryview) -> list[Part] | None:
        self.seen.append(bytes(frame))
        return [b"answer"]

    def admit(self, api_key: int, size_bytes: int) -> None: ...

    def write_held(self) -> None: ...


def receive(stream: Stream, data: bytes) -> None:
    stream.get_buffer(-1)[: len(data)] = data
    stream.buffer_updated(len(data))


async def lines() -> tuple[Lines, Wire, Connections]:
    loop = asyncio.get_running_loop()
    host = connections(loop)
    stream, wire = Lines(loop, host, Unlistened()), Wire()
    stream.connection_made(wire)
    return stream, wire, host


async def test_any_protocol_takes_what_is_whole() -> None:
    stream, wire, host = await lines()
    receive(stream, b"one\ntw")
    assert wire.sent == b"one\n"
    receive(stream, b"o\n")
    assert wire.sent == b"one\ntwo\n"
    assert (host.bytes_in, host.bytes_out, host.count) == (8, 8, 1)
    stream.connection_lost(None)
    assert host.count == 0


async def test_a_protocol_that_takes_no_more_is_not_read_from() -> None:
    stream, wire, _ = await lines()
    receive(stream, b"stop\nafter\n")
    assert (wire.sent, wire.reading) == (b"stop\n", False)
    stream.stopped = False
    stream._drained()
    assert (wire.sent, wire.reading) == (b"stop\nafter\n", True)


async def test_a_client_that_does_not_take_its_answers_is_not_read_from() -> None:
    stream, wire, _ = await lines()
    wire.is_slow = True
    stream._send([bytes(SEND_BUFFER_BYTES + 1)])
    receive(stream, b"one\n")
    assert not wire.reading
    wire.is_slow = False
    wire.taken()
    stream.resume_writing()
    assert wire.reading
    assert wire.sent.endswith(b"one\n")


async def test_a_muted_client_is_heard_when_its_time_is_over() -> None:
    stream, wire, _ = await lines()
    until = stream.loop.time() + 0.01
    stream.mute(until)
    assert (stream.session.muted_until, wire.reading) == (until, False)
    heard = stream.loop.create_future()
    stream.loop.call_at(until, heard.set_result, None)
    await heard
    assert (stream.session.muted_until, wire.reading) == (0.0, True)


async def test_who_is_muted_for_longer_stays_muted() -> None:
    stream, wire, _ = await lines()
    later = stream.loop.time() + 100
    stream.mute(later)
    stream.mute(later - 50)  # it was told to be silent for longer already
    stream._unmute(later - 50)
    assert (stream.session.muted_until, wire.reading) == (later, False)


async def test_requests_that_came_with_the_one_that_was_too_much_wait_too() -> None:
    class Mutes(Answers):
        def dispatch(self, connection: KafkaConnection, frame: memoryview) -> list[Part] | None:
            connection.mute(connection.loop.time() + 100)
            return super().dispatch(connection, frame)

    loop, mutes = asyncio.get_running_loop(), Mutes()
    connection, wire = KafkaConnection(loop, connections(loop), mutes, Unlistened()), Wire()
    connection.connection_made(wire)
    receive(connection, (pack(">i", 8) + bytes(8)) * 3)
    assert len(mutes.seen) == 1
    assert wire.sent == b"answer"  # what it is owed is sent
    connection._unmute(connection.session.muted_until)
    assert len(mutes.seen) == 2


async def test_a_session_knows_listener_and_peer() -> None:
    stream, _, _ = await lines()
    session = stream.session
    assert (session.listener, session.peer, str(session.principal)) == (
        "CLIENTS",
        "192.0.2.7",
        str(ANONYMOUS),
    )
    assert str(ANONYMOUS) == "User:ANONYMOUS"


@pytest.mark.parametrize(("past_transport", "kind"), [(True, SocketWriter), (False, TransportWriter)])
async def test_the_listener_says_what_writes_although_there_is_a_socket_either_way(
    past_transport: bool, kind: type
) -> None:
    """A transport that encrypts shows its socket: what was written there would go out in plaintext."""
    loop, accepted = asyncio.get_running_loop(), []
    host, answers = connections(loop), Answers()
    listener = real_listener(loop, host, answers, past_transport=past_transport)
    listener._accept = lambda server, accept=listener._accept: accepted.append(accept(server)) or accepted[-1]  # type: ignore[misc,func-returns-value]
    await listener.bind(10)
    await listener.serve()
    reader, writer = await asyncio.open_connection(*listener.address)
    try:
        writer.write(pack(">i", 8) + bytes(8))
        assert await reader.readexactly(6) == b"answer"
        assert type(accepted[0]._writer) is kind
    finally:
        writer.close()
        listener.stop_accepting()
        await host.close()
