"""Large answers are made when there is room for them: one of them past the budget, and who does not read is closed."""

import asyncio

import pytest
from tests.unit.server.test_receiving import Steps
from tests.unit.server.test_sending import LIMIT_BYTES, MEGABYTE, Client, Full, Idle
from tests.unit.server.unlistened import Unlistened, connections
from tests.unit.waiting import until

from penstock.core.errors import ClientGoneError
from penstock.core.limits import (
    ANSWER_FAVOURED_BYTES_MIN,
    ANSWER_FAVOURED_SECONDS,
    SEND_BYTES_PER_CHECK_MIN,
    SEND_CHECK_SECONDS,
    SEND_CHECKS_BEHIND_MAX,
    UNSENT_BYTES_MAX,
)
from penstock.server.kafka_connection import KafkaConnection
from penstock.server.sending import SendBudget
from penstock.server.writer import Part

ROOM_BYTES = LIMIT_BYTES // 2
HUGE = 10 * LIMIT_BYTES


class Loop(Steps):
    def create_future(self) -> "asyncio.Future[None]":
        return asyncio.Future(loop=self)

    def get_debug(self) -> bool:
        return False


def checks(loop: Loop, number: int = SEND_CHECKS_BEHIND_MAX + 1) -> None:
    for _ in range(number):
        loop.turn(SEND_CHECK_SECONDS)


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def budget(loop: Loop) -> SendBudget:
    return SendBudget(loop, LIMIT_BYTES)


def test_what_fits_is_admitted_at_once_and_counts_before_it_is_made(budget: SendBudget) -> None:
    client = Client(budget)
    assert budget.admit(client, ROOM_BYTES) is None
    assert budget.used_bytes == ROOM_BYTES
    client.answered()
    assert budget.used_bytes == ROOM_BYTES
    assert not budget.is_short


def test_one_goes_past_the_budget_and_the_next_when_that_was_read(budget: SendBudget) -> None:
    clients = [Client(budget) for _ in range(4)]
    waiting = [budget.admit(client, HUGE) for client in clients]
    assert waiting[0] is None
    for client, turn in zip(clients, waiting[1:], strict=False):
        assert turn is not None
        assert not turn.done()
        client.answered()
        client.reads(HUGE)
        client.gets(0)
        assert turn.done()
    assert not any(client.aborted for client in clients)
    assert budget.used_bytes == 0, "it is counted apart"


def test_those_that_fit_do_not_wait_for_those_that_do_not(budget: SendBudget) -> None:
    favoured, huge, small = Client(budget), Client(budget), Client(budget)
    assert budget.admit(favoured, HUGE) is None
    assert budget.admit(huge, HUGE) is not None
    assert budget.admit(small, MEGABYTE) is None


def test_addresses_have_their_turn(budget: SendBudget) -> None:
    greedy = [Client(budget, "greedy") for _ in range(10)]
    other = Client(budget, "other")
    turns = [budget.admit(client, HUGE) for client in greedy]
    after = budget.admit(other, HUGE)
    for client in greedy[:2]:
        client.answered()
        client.reads(HUGE)
        client.gets(0)
    assert after is not None
    assert after.done()
    assert [turn is None or turn.done() for turn in turns] == [True] * 2 + [False] * 8


def test_a_favoured_client_that_does_not_read_is_closed_while_others_wait(
    budget: SendBudget, loop: Loop
) -> None:
    idle, honest, last = Client(budget), Client(budget), Client(budget)
    budget.admit(idle, HUGE)
    idle.answered()
    checks(loop)
    assert not idle.aborted, "nobody waits for it"
    turn = budget.admit(honest, HUGE)
    assert turn is not None
    loop.turn(ANSWER_FAVOURED_SECONDS)
    assert idle.aborted
    assert turn.done()
    budget.admit(last, HUGE)
    checks(loop)
    assert not honest.aborted, "there is nothing to read yet"
    honest.answered()
    for _ in range(5):
        honest.reads(ANSWER_FAVOURED_BYTES_MIN)
        loop.turn(ANSWER_FAVOURED_SECONDS)
    assert not honest.aborted


def test_the_favour_ends_with_the_answer_that_it_was_given_for(budget: SendBudget, loop: Loop) -> None:
    """Small answers that follow are as everybody's: a client with always one of them kept the favour for ever."""
    clients = [Client(budget) for _ in range(3)]
    turns = [budget.admit(client, HUGE) for client in clients]
    for client, turn, is_told in zip(clients, turns[1:], (True, False), strict=False):
        assert turn is not None
        client.answered()
        client.gets(1000)
        client.reads(HUGE - 1)
        client.gets(1)
        loop.turn(ANSWER_FAVOURED_SECONDS)
        assert not turn.done(), "the last byte of it is not read yet"
        client.reads(1)
        client.gets(1) if is_told else loop.turn(ANSWER_FAVOURED_SECONDS)
        assert turn.done()
    assert budget.used_bytes == 1002 + 1001
    assert not any(client.aborted for client in clients)


def test_while_others_wait_who_holds_room_must_read(budget: SendBudget, loop: Loop) -> None:
    idle, reader, favoured, waits = (Client(budget) for _ in range(4))
    for client in idle, reader:
        budget.admit(client, ROOM_BYTES // 2)
        client.answered()
    budget.admit(favoured, MEGABYTE)
    turn = budget.admit(waits, MEGABYTE)
    assert turn is not None
    for _ in range(SEND_CHECKS_BEHIND_MAX):
        checks(loop, 1)
        reader.reads(SEND_BYTES_PER_CHECK_MIN)
        reader.gets(SEND_BYTES_PER_CHECK_MIN)
    checks(loop, 1)
    assert idle.aborted
    assert turn.done()
    assert not reader.aborted
    assert not favoured.aborted


def test_who_left_waits_no_longer(budget: SendBudget) -> None:
    favoured, gone, next_ = Client(budget), Client(budget), Client(budget)
    budget.admit(favoured, HUGE)
    left = budget.admit(gone, HUGE)
    turn = budget.admit(next_, HUGE)
    budget.leave(gone)
    assert left is not None
    assert isinstance(left.exception(), ClientGoneError)
    favoured.promised_bytes = 0
    budget.hold(favoured, 0)
    assert turn is not None
    assert turn.done()
    assert gone.promised_bytes == 0


async def test_a_connection_gives_its_room_back_when_the_answer_has_gone_or_it_has() -> None:
    loop = asyncio.get_running_loop()
    host = connections(loop)
    made: list[KafkaConnection] = []
    for _ in range(3):
        connection = KafkaConnection(loop, host, Idle(b""), Unlistened())
        connection.connection_made(Full())
        made.append(connection)
    answered: list[KafkaConnection] = []

    async def answer(connection: KafkaConnection) -> list[Part]:
        room = connection.room_for(UNSENT_BYTES_MAX)
        if room is not None:
            await room
        answered.append(connection)
        return [bytes(1000)]

    for connection in made:
        connection.run(answer(connection))
    await until(lambda: made[0].kept_bytes() == 1000)
    assert answered == made[:1]
    made[1].connection_lost(None)
    made[0].connection_lost(None)
    await until(lambda: made[2].kept_bytes() == 1000)
    assert answered == [made[0], made[2]]
    made[2].connection_lost(None)
    assert host.send_budget.admit(Client(host.send_budget), UNSENT_BYTES_MAX) is None
