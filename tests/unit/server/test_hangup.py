"""A client that leaves while its request is worked on: known although nothing is read from it."""

import asyncio
from struct import pack

import pytest
from tests.unit.server.unlistened import connections, real_listener

from penstock.server.kafka_connection import KafkaConnection
from penstock.server.writer import Part


class Works:
    """A dispatcher whose requests are worked on until their client has left."""

    def __init__(self) -> None:
        self.begun, self.noticed = asyncio.Event(), asyncio.Event()
        self.connection: KafkaConnection | None = None

    def dispatch(self, connection: KafkaConnection, frame: memoryview) -> list[Part] | None:
        self.connection = connection
        connection.run(self._work(connection))
        return None

    async def _work(self, connection: KafkaConnection) -> list[Part]:
        self.begun.set()
        while not connection.has_left():  # noqa: ASYNC110 - as portions do
            await asyncio.sleep(0)
        self.noticed.set()
        return []

    def admit(self, api_key: int, size_bytes: int) -> None: ...

    def write_held(self) -> None: ...


@pytest.mark.parametrize("sent_behind", [b"", b"x" * 100_000])
@pytest.mark.parametrize("past_transport", [True, False])
async def test_a_client_that_leaves_is_noticed_behind_all_that_it_sent(
    sent_behind: bytes, past_transport: bool
) -> None:
    loop, works = asyncio.get_running_loop(), Works()
    host = connections(loop)
    listener = real_listener(loop, host, works, past_transport=past_transport)
    await listener.bind(10)
    await listener.serve()
    try:
        _, writer = await asyncio.open_connection(*listener.address)
        writer.write(pack(">i", 8) + bytes(8))
        await works.begun.wait()
        writer.write(sent_behind)
        await writer.drain()
        assert works.connection is not None
        assert not works.connection.has_left()
        writer.close()
        await works.noticed.wait()
    finally:
        listener.stop_accepting()
        await host.close()
