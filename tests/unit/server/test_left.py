"""Clients that leave while their connection is not read from: that is seen all the same, and soon."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest
import uvloop
from tests.unit.server.unlistened import connections, real_listener

from penstock.core.errors import ClientGoneError
from penstock.core.limits import REQUESTS_HELD_BYTES_MAX
from penstock.server import connections as module
from penstock.server.connections import Connections
from penstock.server.kafka_connection import KafkaConnection
from penstock.server.writer import Part
from penstock.wire.kafka.api_keys import ApiKey

SOON_SECONDS = 20
Story = Callable[["Server", Connections, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """A dispatcher whose requests take as long as the test wants."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.came = asyncio.Event()
        self.left = asyncio.Event()
        self.done = asyncio.Event()
        self.is_gone = False  # the client, as far as whoever works for it has seen

    def dispatch(self, connection: KafkaConnection, frame: memoryview) -> list[Part] | None:
        self.seen.append(frame[1])
        if frame[1] == ApiKey.FETCH:
            connection.defer(self.left.set, REQUESTS_HELD_BYTES_MAX + 1)
        else:
            connection.run(self._worked_on())
        self.came.set()
        return None

    async def _worked_on(self) -> list[Part]:
        await self.done.wait()
        if self.is_gone:
            raise ClientGoneError("the client has left")
        return [b"answer"]

    def admit(self, api_key: int, size_bytes: int) -> None: ...

    def write_held(self) -> None: ...


def told(story: Story) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        server, host = Server(), connections(loop)
        listener = real_listener(loop, host, server)
        await listener.bind(10)
        await listener.serve()
        host.start_sweeping()
        _, writer = await asyncio.open_connection(*listener.address)
        try:
            await story(server, host, writer)
        finally:
            writer.close()
            listener.stop_accepting()
            await host.close()

    uvloop.run(run())


def request(api_key: int) -> bytes:
    return (8).to_bytes(4, "big") + api_key.to_bytes(2, "big") + bytes(6)


async def sweeps(host: Connections, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Returns after so many of them."""
    swept: asyncio.Queue[None] = asyncio.Queue()
    start = host.start_sweeping  # the last that each does

    def counted() -> None:
        swept.put_nowait(None)
        start()

    monkeypatch.setattr(host, "start_sweeping", counted)
    for _ in range(number):
        await swept.get()


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SWEEP_SECONDS", 0.05)
    monkeypatch.setattr(module, "_FINISH_SECONDS", 0.05)


@pytest.mark.parametrize("key", [ApiKey.FETCH, ApiKey.METADATA], ids=["owed much", "worked on"])
def test_a_client_that_left_is_noticed_while_nothing_is_read_from_it(
    key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(server: Server, host: Connections, writer: asyncio.StreamWriter) -> None:
        closed = asyncio.Event()
        monkeypatch.setattr(host, "closed", lambda connection: closed.set())
        writer.write(request(key))
        await server.came.wait()
        writer.close()
        await asyncio.wait_for(closed.wait(), SOON_SECONDS)
        assert server.left.is_set() is (key == ApiKey.FETCH)

    told(story)


def test_what_a_producer_sent_before_it_left_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """With acks=0 nobody else tells it that all has come."""

    async def story(server: Server, host: Connections, writer: asyncio.StreamWriter) -> None:
        writer.write(request(ApiKey.PRODUCE) * 2)
        await server.came.wait()
        writer.close()
        await writer.wait_closed()
        await sweeps(host, 2, monkeypatch)
        server.came.clear()
        server.done.set()
        await asyncio.wait_for(server.came.wait(), SOON_SECONDS)
        assert server.seen == [ApiKey.PRODUCE] * 2

    told(story)


@pytest.mark.parametrize("is_gone", [False, True], ids=["worked on to the end", "dropped"])
def test_what_was_sent_behind_a_request_that_is_worked_on_is_taken(
    is_gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be a Produce with acks=0: the client has no reason to wait for anything."""

    async def story(server: Server, host: Connections, writer: asyncio.StreamWriter) -> None:
        writer.write(request(ApiKey.LIST_OFFSETS) + request(ApiKey.PRODUCE))
        await server.came.wait()
        writer.close()
        await writer.wait_closed()
        await sweeps(host, 2, monkeypatch)
        server.came.clear()
        server.is_gone = is_gone
        server.done.set()
        await asyncio.wait_for(server.came.wait(), SOON_SECONDS)
        assert server.seen == [ApiKey.LIST_OFFSETS, ApiKey.PRODUCE]

    told(story)


def test_a_request_that_takes_too_long_is_broken_off_in_silence_when_all_is_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ended: list[str] = []

    async def story(server: Server, host: Connections, writer: asyncio.StreamWriter) -> None:
        writer.write(request(ApiKey.METADATA))
        await server.came.wait()
        (task,) = host._tasks
        await host.close()
        assert task.cancelled()
        ended.append("by then")

    with caplog.at_level(logging.WARNING):
        told(story)
    assert ended
    assert not caplog.records
