"""Requests that are whole and take long: they keep nothing of what all connections may receive at once."""

from collections.abc import Coroutine

import pytest
from tests.unit.server.test_receiving import BUDGET_BYTES, MEGABYTE, Client, Server, Steps

from penstock.core.limits import RECEIVE_CHECK_SECONDS
from penstock.server.kafka_connection import KafkaConnection
from penstock.server.writer import Part

METADATA = 3


class Working(Server):
    """Produce is answered at once, all else is worked on without end."""

    def __init__(self, loop: Steps) -> None:
        super().__init__(loop)
        self._loop = loop
        self.work: list[Coroutine[object, object, None]] = []

    def run(self, work: Coroutine[object, object, None]) -> None:
        self.work.append(work)

    def queue(self, connection: KafkaConnection) -> None:
        self._loop.call_soon(connection.take_turn)

    def dispatch(self, connection: KafkaConnection, frame: memoryview) -> list[Part] | None:
        if frame[1] == 0:
            return super().dispatch(connection, frame)

        async def answer() -> list[Part]:
            return [b"answer"]

        connection.run(answer())
        return None


class Opening(Working):
    """Produce is worked on, too, and leaves its batches where they were received."""

    def dispatch(self, connection: KafkaConnection, frame: memoryview) -> list[Part] | None:
        async def answer() -> list[Part]:
            return [b"answer" if frame else b""]

        connection.run(answer())
        return None


@pytest.fixture
def loop() -> Steps:
    return Steps()


@pytest.fixture
def server(loop: Steps) -> Working:
    return Working(loop)


def finish(server: Working) -> None:
    for work in server.work:
        with pytest.raises(StopIteration):
            work.send(None)


def test_requests_that_are_worked_on_keep_nobody_from_sending(loop: Steps, server: Working) -> None:
    slow = [Client(loop, server, 3 * MEGABYTE, api_key=METADATA) for _ in range(20)]
    while not all(client.is_done for client in slow):
        assert sum([client.send(MEGABYTE) for client in slow]), "a standstill"
        loop.turn(0.1)
    assert len(server.work) == len(slow)
    good = Client(loop, server, 3 * MEGABYTE)
    while not good.is_done:
        assert good.send(MEGABYTE), "a standstill"
        loop.turn(0.1)
    assert server.answered == [3 * MEGABYTE]
    assert server.receive_budget.used_bytes <= BUDGET_BYTES
    finish(server)
    assert not any(client.closed for client in slow)


def test_a_request_counts_until_its_work_ends_also_if_its_client_is_gone(loop: Steps) -> None:
    server = Opening(loop)
    gone = [Client(loop, server, 3 * MEGABYTE) for _ in range(2)]
    for client in gone:
        while not client.is_done:
            assert client.send(MEGABYTE), "a standstill"
            loop.turn(0.1)
        client.abort()
    assert len(server.work) == 2
    assert server.receive_budget.used_bytes >= 6 * MEGABYTE, "both are still in memory"
    finish(server)
    assert server.receive_budget.used_bytes == 0


def test_what_a_client_sends_behind_a_request_that_takes_long_is_not_kept_while_others_wait(
    loop: Steps, server: Working
) -> None:
    slow = [Client(loop, server, 4 * MEGABYTE - 4) for _ in range(2)]
    for client in slow:
        while not client.is_done:
            client.send()
            loop.turn()
        assert client.buffer_bytes == 4 * MEGABYTE, "it is kept"
        room = client.connection.get_buffer(-1)
        head = (8).to_bytes(4, "big") + METADATA.to_bytes(2, "big") + bytes(6)
        room[: len(head)] = head
        client.connection.buffer_updated(len(room))
    good = [Client(loop, server, *[3 * MEGABYTE] * 20) for _ in range(3)]
    while loop.now < 4 * RECEIVE_CHECK_SECONDS:
        for client in good:
            client.send(MEGABYTE)
        loop.turn(0.5)
    assert all(client.closed for client in slow)
    assert not any(client.closed for client in good)
    finish(server)
