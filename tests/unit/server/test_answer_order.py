"""Who is answered first when a produce request ends the wait of consumers."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from penstock.core.limits import ANSWERS_AHEAD_MAX
from penstock.core.stats import RequestStats
from penstock.server.awake import Awake
from penstock.server.connection import Connection, Reply
from penstock.server.writer import Part

FETCH, PRODUCE = b"\0\0\0\x08\0\x01\0\0\0\0\0\0", b"\0\0\0\x08\0\0\0\0\0\0\0\0"


class Server:
    """Host and dispatcher: a produce request answers every fetch request that waits."""

    request_bytes_max = 1000
    socket_buffers = (-1, -1)
    bytes_in = bytes_out = answers_due = 0

    def __init__(self) -> None:
        self.requests = RequestStats()
        self.awake = Awake(asyncio.get_running_loop(), 0)
        self.waiting: list[Reply] = []
        self.arrived: list[Reply] = []

    def opened(self, connection: Connection) -> bool:
        return True

    def closed(self, connection: Connection) -> None: ...

    def run(self, work: Coroutine[object, object, None]) -> None: ...

    def dispatch(self, connection: Connection, frame: memoryview) -> list[Part] | None:
        if frame[1]:
            self.waiting.append(connection.defer())
            return None
        self.arrived, self.waiting = self.waiting, []
        return [b"stored"]

    def settle(self) -> None:
        for reply in self.arrived:
            reply.send([b"records"])
        self.arrived = []


class Wire(asyncio.Transport):
    def __init__(self, name: str, sent: list[str]) -> None:
        super().__init__()
        self._name, self._sent = name, sent

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: object) -> None:
        self._sent.append(self._name)


def connect(server: Server, name: str, sent: list[str]) -> Connection:
    connection = Connection(asyncio.get_running_loop(), server, server)
    connection.connection_made(Wire(name, sent))
    return connection


def receive(connection: Connection, frame: bytes) -> None:
    connection.get_buffer(-1)[: len(frame)] = frame
    connection.buffer_updated(len(frame))


@pytest.mark.parametrize(("consumers", "first"), [(2, "consumer"), (ANSWERS_AHEAD_MAX + 1, "producer")])
def test_waiting_consumers_come_before_their_producer_unless_they_are_many(
    consumers: int, first: str
) -> None:
    async def answers() -> list[str]:
        server, sent = Server(), list[str]()
        for _ in range(consumers):
            receive(connect(server, "consumer", sent), FETCH)
        receive(connect(server, "producer", sent), PRODUCE)
        await asyncio.sleep(0)  # to the end of this turn of the loop
        return sent

    sent = asyncio.run(answers())
    assert sent[0] == first
    assert sorted(sent) == ["consumer"] * consumers + ["producer"]
