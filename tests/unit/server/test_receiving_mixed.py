"""Clients that send requests of all sizes at once, in pieces, some of them worked on for a while: all are served."""

from collections.abc import Coroutine
from random import Random

import pytest
from tests.unit.server.test_receiving import MEGABYTE, Client, Server, Steps

from penstock.server.kafka_connection import KafkaConnection
from penstock.server.writer import Part

KILOBYTE = 1024
SMALL = (10, 500, 30 * KILOBYTE, 60 * KILOBYTE, 70 * KILOBYTE)
PIECES = (4 * KILOBYTE, 64 * KILOBYTE, 256 * KILOBYTE, MEGABYTE)
IDLE_TURNS_MAX = 200


class Mixed(Server):
    """Some requests are answered at once, some by a coroutine, and some of these not at all."""

    def __init__(self, loop: Steps, rng: Random) -> None:
        super().__init__(loop, budget_bytes=rng.choice([0, 1, 2, 4, 8]) * MEGABYTE)
        self.rng = rng
        self.under_way: list[Coroutine[object, object, None]] = []
        self.seen: dict[KafkaConnection, list[int]] = {}

    def run(self, work: Coroutine[object, object, None]) -> None:
        self.under_way.append(work)

    def finish(self, at: int) -> None:
        with pytest.raises(StopIteration):
            self.under_way.pop(at).send(None)

    def dispatch(self, connection: KafkaConnection, frame: memoryview) -> list[Part] | None:
        self.seen.setdefault(connection, []).append(len(frame))
        if self.rng.random() < 0.6:
            return [b"answer"]
        connection.run(self._answer())
        return None

    async def _answer(self) -> list[Part] | None:
        return [b"answer"] if self.rng.random() < 0.7 else None


def some_size(rng: Random) -> int:
    ordinary, large = rng.randrange(100 * KILOBYTE, 3 * MEGABYTE), rng.randrange(4 * MEGABYTE, 7 * MEGABYTE)
    return rng.choice([*SMALL, ordinary, MEGABYTE - 4, MEGABYTE, large, 5 * MEGABYTE - 4])


@pytest.mark.parametrize("seed", range(30))
def test_everybody_is_served_in_order_and_nothing_stays_held(seed: int) -> None:
    rng, loop = Random(seed), Steps()
    server = Mixed(loop, rng)
    wanted = [[some_size(rng) for _ in range(rng.randrange(1, 8))] for _ in range(rng.randrange(1, 7))]
    clients = [Client(loop, server, *sizes) for sizes in wanted]
    idle_turns = 0
    while [server.seen.get(client.connection) for client in clients] != wanted or server.under_way:
        moved = sum([client.send(rng.choice(PIECES)) for client in clients if rng.random() < 0.8])
        if server.under_way and rng.random() < 0.5:
            server.finish(rng.randrange(len(server.under_way)))
            moved += 1
        loop.turn()
        idle_turns = 0 if moved else idle_turns + 1
        assert idle_turns < IDLE_TURNS_MAX, "a standstill"
    assert not any(client.connection._owed or client.connection._starved for client in clients)
    budget = server.receive_budget
    assert not budget._waiting
    assert not any(favour.holder for favour in budget._favours.values())
    assert budget.used_bytes == sum(budget._held.values())
