"""Who may go past the budget of large requests: not for long when it is slow, and never the same ones only."""

import pytest
from tests.unit.server.test_receiving import (
    BUDGET_BYTES,
    LARGE_BYTES,
    MEGABYTE,
    ORDINARY_BYTES,
    Client,
    Server,
    Steps,
)

from penstock.core.limits import RECEIVE_FAVOURED_BYTES_MIN, RECEIVE_FAVOURED_SECONDS

MOST_ORDINARY_BYTES = 3_900_000
HUGE_BYTES = 90 * MEGABYTE
TICK_SECONDS = 0.25
FAST_BYTES = int(RECEIVE_FAVOURED_BYTES_MIN * TICK_SECONDS)  # in a tick


@pytest.fixture
def loop() -> Steps:
    return Steps()


@pytest.fixture
def server(loop: Steps) -> Server:
    return Server(loop)


def crowd(loop: Steps, server: Server, peer: str = "") -> list[Client]:
    """So many that wait with a part of the budget in hand that nothing is left of it; they say nothing more."""
    clients: list[Client] = []
    while server.receive_budget.used_bytes < BUDGET_BYTES - ORDINARY_BYTES:
        client = Client(loop, server, MOST_ORDINARY_BYTES)
        client.connection.session.peer = peer
        client.send(600 * 1024)
        clients.append(client)
        loop.turn()
    for client in clients:
        client.send(1_600_000)
        loop.turn()
    return clients


def test_a_request_that_trickles_keeps_no_ordinary_one_out(loop: Steps, server: Server) -> None:
    crowd(loop, server)
    large = Client(loop, server, HUGE_BYTES)
    large.send(MEGABYTE)
    loop.turn()
    good = Client(loop, server, ORDINARY_BYTES)
    begun = loop.now
    while not server.answered:
        assert loop.now - begun < 5 * RECEIVE_FAVOURED_SECONDS, "it is kept out"
        large.send(20 * 1024)
        good.send(ORDINARY_BYTES)
        loop.turn(TICK_SECONDS)
    assert server.answered == [ORDINARY_BYTES]


@pytest.mark.parametrize(("tick_bytes", "is_dropped"), [(FAST_BYTES // 8, True), (FAST_BYTES, False)])
def test_a_favoured_one_must_send_fast_while_others_wait(
    loop: Steps, server: Server, tick_bytes: int, is_dropped: bool
) -> None:
    clients = [Client(loop, server, LARGE_BYTES) for _ in range(6)]
    while sum([client.send() for client in clients]) and server.receive_budget._favours[True].holder is None:
        loop.turn()
    favoured = next(
        client for client in clients if client.connection is server.receive_budget._favours[True].holder
    )
    for _ in range(12):
        favoured.send(tick_bytes)
        loop.turn(TICK_SECONDS)
    assert favoured.closed is is_dropped


def test_whoever_is_looked_at_late_was_not_slow(loop: Steps, server: Server) -> None:
    """The broker itself did not read for so long."""
    clients = [Client(loop, server, LARGE_BYTES) for _ in range(6)]
    while sum([client.send() for client in clients]) and server.receive_budget._favours[True].holder is None:
        loop.turn()
    loop.turn(3 * RECEIVE_FAVOURED_SECONDS)
    assert not any(client.closed for client in clients)


def test_of_ordinary_requests_the_smallest_goes_first(loop: Steps, server: Server) -> None:
    crowd(loop, server)
    budget = server.receive_budget
    budget.release(budget._favours[False].holder)  # type: ignore[arg-type]
    small = Client(loop, server, ORDINARY_BYTES)
    small.send(100 * 1024)
    loop.turn()
    assert budget._favours[False].holder is small.connection


def test_no_address_is_favoured_twice_in_a_row_while_another_waits(loop: Steps, server: Server) -> None:
    crowd(loop, server, "many")
    budget = server.receive_budget
    other = Client(loop, server, MOST_ORDINARY_BYTES)
    other.connection.session.peer = "other"
    other.send(2 * MEGABYTE)
    assert budget._favours[False].holder is not other.connection
    budget.release(budget._favours[False].holder)  # type: ignore[arg-type]
    loop.turn()
    assert budget._favours[False].holder is other.connection
