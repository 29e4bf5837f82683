"""Answers that clients do not read share one budget of memory: who holds much and reads little is closed."""

import asyncio
import socket
from typing import cast

import pytest
from tests.unit.server.test_receiving import Steps
from tests.unit.server.test_turns import Wire
from tests.unit.server.unlistened import Unlistened, connections

from penstock.core.limits import SEND_BYTES_PER_CHECK_MIN, SEND_CHECK_SECONDS, SEND_CHECKS_BEHIND_MAX
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
        self.waits_for_its_own = False
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
        self._budget.answered(self)

    def kept_bytes(self) -> int:
        return self.kept + self.promised_bytes

    def sent_bytes(self) -> int:
        return self.sent

    def unsent_bytes(self) -> int:
        return 0 if self.waits_for_its_own else self.kept

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
    for _ in range(SEND_CHECKS_BEHIND_MAX + 1):
        loop.turn(SEND_CHECK_SECONDS)
    assert not slow.aborted, "there is enough for all"
    patient.gets(MEGABYTE)
    assert budget.is_short
    for _ in range(SEND_CHECKS_BEHIND_MAX):
        loop.turn(SEND_CHECK_SECONDS)
        assert not slow.aborted
        fast.reads(SEND_BYTES_PER_CHECK_MIN)
        fast.gets(SEND_BYTES_PER_CHECK_MIN)
    loop.turn(SEND_CHECK_SECONDS)
    assert slow.aborted
    assert not fast.aborted
    assert not patient.aborted, "no more are closed than must be"
    assert not budget.is_short


@pytest.mark.parametrize(("part", "is_closed"), [(1.0, False), (0.75, True)])
def test_what_counts_is_how_much_a_client_reads_not_how_smoothly_its_socket_takes_it(
    part: float, is_closed: bool
) -> None:
    """A full socket takes nothing for 25 s, then a third of its buffer at once."""
    loop = Steps()
    budget = SendBudget(loop, LIMIT_BYTES)
    client, rest = Client(budget), Client(budget)
    client.gets(LIMIT_BYTES // 2)
    rest.gets(MEGABYTE)
    for check in range(1, 100):
        if check % 5 == 0:
            leap = int(5 * SEND_BYTES_PER_CHECK_MIN * part)
            client.reads(leap)
            client.gets(leap)
        rest.reads(SEND_BYTES_PER_CHECK_MIN)
        rest.gets(SEND_BYTES_PER_CHECK_MIN)
        loop.turn(SEND_CHECK_SECONDS)
    assert client.aborted is is_closed


def test_nobody_is_closed_for_little_that_waits_for_an_answer_before_it() -> None:
    """Metadata behind a fetch, or behind a JoinGroup that takes minutes: there is nothing that it could read."""
    loop = Steps()
    budget = SendBudget(loop, LIMIT_BYTES)
    reader, little, much = Client(budget), Client(budget), Client(budget)
    little.waits_for_its_own = much.waits_for_its_own = True
    reader.gets(LIMIT_BYTES // 2 + MEGABYTE)
    little.gets(100)
    much.gets(MEGABYTE)
    for _ in range(SEND_CHECKS_BEHIND_MAX + 1):
        reader.reads(SEND_BYTES_PER_CHECK_MIN)
        reader.gets(SEND_BYTES_PER_CHECK_MIN)
        loop.turn(SEND_CHECK_SECONDS)
    assert budget.is_short
    assert much.aborted
    assert not little.aborted
    assert not reader.aborted


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
        assert [connection.unsent_bytes() for connection in made] == [1000, 0], "what may be read of it"
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
