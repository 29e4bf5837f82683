"""A whole request that waits for its turn, while others wait for memory: its client is not slow, and it is answered."""

import asyncio

import pytest
from tests.unit.server.test_receiving import MEGABYTE, Client, Server, Steps

from penstock.core.limits import PLAIN_REQUEST_BYTES_MAX
from penstock.server.kafka_connection import KafkaConnection
from penstock.wire.kafka.api_keys import ApiKey

PIECE_BYTES = 32 * 1024


class Queue(Server):
    """Whose turns are the test's."""

    def __init__(self, loop: asyncio.AbstractEventLoop, budget_bytes: int) -> None:
        super().__init__(loop, budget_bytes)
        self.queued: list[KafkaConnection] = []

    def queue(self, connection: KafkaConnection) -> None:
        self.queued.append(connection)

    def admit(self, api_key: int, size_bytes: int) -> None:
        assert size_bytes <= PLAIN_REQUEST_BYTES_MAX or api_key == ApiKey.PRODUCE

    def next_turn(self) -> None:
        queued, self.queued = self.queued, []
        for connection in queued:
            connection.take_turn()


def test_a_favoured_client_is_not_slow_while_its_request_waits_for_its_turn() -> None:
    loop = Steps()
    server = Queue(loop, 2 * MEGABYTE)
    for _ in range(2):
        Client(loop, server, 1000 * 1024).send(700 * 1024)
    good = Client(loop, server, MEGABYTE, api_key=ApiKey.METADATA)
    good.send(MEGABYTE + 4)
    loop.turn()
    Client(loop, server, 2 * MEGABYTE).send(600 * 1024)
    for _ in range(100):
        if not good.is_done:
            good.send()
        loop.turn(0.01)
    assert server.queued == [good.connection]
    for _ in range(40):
        loop.turn(0.1)
    assert not good.closed
    server.next_turn()
    assert MEGABYTE in server.answered


@pytest.mark.parametrize("size", [4 * MEGABYTE - 4, 4 * MEGABYTE - 3, 4 * MEGABYTE])
def test_the_largest_request_without_records_is_answered_although_memory_is_short_at_its_end(
    size: int,
) -> None:
    loop = Steps()
    server = Queue(loop, 8 * MEGABYTE)
    good = Client(loop, server, size, api_key=ApiKey.METADATA)
    over = size + 4 - 4 * MEGABYTE
    good.connection._turn_bytes = MEGABYTE - over if over > 0 else 0  # of what it has sent before
    others: list[Client] = []
    for _ in range(1000):
        if good.is_done:
            break
        left = size + 4 - good._sent
        if left <= 2 * PIECE_BYTES and not others:
            others = [Client(loop, server, 3 * MEGABYTE) for _ in range(3)]
            for other in others:
                for _ in range(10):
                    other.send()
                    loop.turn()
        if left <= PIECE_BYTES:
            good.connection._turn_bytes = MEGABYTE - 1
        good.send(min(PIECE_BYTES, left))
        if not good.is_done:
            loop.turn()
    for _ in range(5):
        server.next_turn()
        loop.turn(0.01)
    for other in others:
        other.abort()
    for _ in range(20):
        if not good.is_done:
            good.send()
        loop.turn(0.5)
        server.next_turn()
    assert size in server.answered
