"""Answers that clients do not read share one budget of memory: who holds much and reads little is closed."""

import asyncio
import socket
from typing import cast

from tests.unit.server.test_receiving import Steps
from tests.unit.server.test_turns import Wire
from tests.unit.server.unlistened import Unlistened, connections

from penstock.core.limits import SEND_BYTES_PER_CHECK_MIN, SEND_CHECK_SECONDS
from penstock.server.kafka_connection import KafkaConnection
from penstock.server.sending import SendBudget
from penstock.server.writer import Part, SocketWriter

MEGABYTE = 1 << 20
LIMIT_BYTES = 8 * MEGABYTE


class Client:
    def __init__(self, budget: SendBudget, peer: str = "?") -> None:
        self._budget = budget
        self.peer = peer
        self.kept = self.sent = self.promised_bytes = 0
        self.aborted = False

    def gets(self, size_bytes: int) -> None:
        self.kept += size_bytes
        self._budget.hold(self, self.kept)

    def reads(self, size_bytes: int) -> None:
        """Nobody tells the budget."""
        self.sent += size_bytes
        self.kept -= size_bytes

    def promise(self, size_bytes: int) -> None:
        self.promised_bytes += size_bytes

    def answered(self) -> None:
        """What was promised to it is there."""
        size, self.promised_bytes = self.promised_bytes, 0
        self.gets(size)

    def kept_bytes(self) -> int:
        return self.kept + self.promised_bytes

    def sent_bytes(self) -> int:
        return self.sent

    def abort(self) -> None:
        self.aborted = True


def test_past_the_budget_those_that_hold_most_are_closed_and_no_others() -> None:
    budget = SendBudget(Steps(), LIMIT_BYTES)
    small = [Client(budget) for _ in range(4)]
    large = [Client(budget) for _ in range(4)]
    for client in small:
        client.gets(MEGABYTE // 2)
    for client in large:
        client.gets(2 * MEGABYTE)
        assert budget.used_bytes <= LIMIT_BYTES
    assert sum(client.aborted for client in large) == 2
    assert not any(client.aborted for client in small)


def test_what_was_read_meanwhile_is_found_before_anybody_is_closed() -> None:
    budget = SendBudget(Steps(), LIMIT_BYTES)
    readers = [Client(budget) for _ in range(8)]
    for _ in range(10):
        for reader in readers:
            reader.gets(MEGABYTE)
            reader.reads(MEGABYTE - 1)
    assert not any(reader.aborted for reader in readers)


def test_while_memory_is_short_a_client_must_read() -> None:
    loop = Steps()
    budget = SendBudget(loop, LIMIT_BYTES)
    slow, fast, patient = Client(budget), Client(budget), Client(budget)
    slow.gets(2 * MEGABYTE)
    fast.gets(2 * MEGABYTE)
    loop.turn(SEND_CHECK_SECONDS)
    loop.turn(SEND_CHECK_SECONDS)
    assert not slow.aborted, "there is enough for all"
    patient.gets(MEGABYTE)
    assert budget.is_short
    loop.turn(SEND_CHECK_SECONDS)
    fast.reads(SEND_BYTES_PER_CHECK_MIN)
    loop.turn(SEND_CHECK_SECONDS)
    assert slow.aborted
    assert not fast.aborted
    assert not patient.aborted, "no more are closed than must be"
    assert not budget.is_short


class Idle:
    """Answers everything with so many bytes, whether the client reads or not."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def dispatch(self, connection: KafkaConnection, frame: memoryview) -> list[Part] | None:
        if frame[1] == 1:
            connection.defer(held_bytes=len(frame))  # and never comes
            return None
        return [self._answer]

    def admit(self, api_key: int, size_bytes: int) -> None: ...

    def write_held(self) -> None: ...


class Full(Wire):
    def get_write_buffer_size(self) -> int:
        return len(self.written)


def ask(connection: KafkaConnection, api_key: int) -> None:
    data = (8).to_bytes(4, "big") + api_key.to_bytes(2, "big") + bytes(6)
    connection.get_buffer(-1)[: len(data)] = data
    connection.buffer_updated(len(data))


def test_connections_count_what_they_hold_also_behind_what_waits() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        host = connections(loop)
        made = []
        for _ in range(2):
            connection = KafkaConnection(loop, host, Idle(bytes(1000)), Unlistened())
            connection.connection_made(Full())
            made.append(connection)
        unread, behind = made
        ask(unread, 0)
        assert host.send_budget.used_bytes == 1000
        ask(behind, 1)
        ask(behind, 0)
        assert host.send_budget.used_bytes == 2000
        for connection in made:
            connection.connection_lost(None)
        assert host.send_budget.used_bytes == 0

    asyncio.run(story())


def test_an_answer_counts_whole_until_its_last_byte_has_gone() -> None:
    """So long its memory is taken: a client that reads all but the end holds it all."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        gone = loop.create_future()
        with ours, theirs:
            ours.setblocking(False)
            theirs.setblocking(False)
            writer = SocketWriter(
                loop, cast(asyncio.Transport, None), ours.fileno(), lambda: gone.set_result(None)
            )
            answer = bytes(4 * MEGABYTE)
            writer.send([answer])
            before = writer.unsent_bytes
            assert 0 < before < len(answer) == writer.kept_bytes
            while writer.unsent_bytes == before:
                await loop.sock_recv(theirs, 64 * 1024)
            assert writer.kept_bytes == len(answer)
            assert writer.sent_bytes == before - writer.unsent_bytes
            while not gone.done():
                await loop.sock_recv(theirs, MEGABYTE)
            assert writer.kept_bytes == writer.unsent_bytes == 0
            writer.close()

    asyncio.run(story())
