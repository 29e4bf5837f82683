"""Connections that are looked at from time to time: who reads is not idle, who waits for little is not closed."""

import asyncio
from struct import pack

import pytest
from tests.unit.server.test_favours import Read
from tests.unit.server.test_receiving import Steps
from tests.unit.server.test_sending import MEGABYTE, Idle
from tests.unit.server.unlistened import Unlistened, connections

from penstock.core.limits import (
    OWED_TOO_MUCH_SECONDS_MAX,
    REQUESTS_HELD_BYTES_ALL_MAX,
    REQUESTS_HELD_BYTES_MAX,
)
from penstock.server.connections import Connections
from penstock.server.kafka_connection import KafkaConnection

FETCH, METADATA = 1, 0
SWEEP_SECONDS = 2.0


class Closing(Read):
    is_closed = False

    def close(self) -> None:
        self.is_closed = True


def connected(loop: asyncio.AbstractEventLoop, answer: bytes) -> tuple[Connections, KafkaConnection, Closing]:
    host, wire = connections(loop), Closing()
    connection = KafkaConnection(loop, host, Idle(answer), Unlistened())
    connection.connection_made(wire)
    host.start_sweeping()
    return host, connection, wire


def ask(connection: KafkaConnection, *keys: int) -> None:
    data = b"".join(pack(">ihhi", 8, key, 0, 0) for key in keys)
    connection.get_buffer(-1)[: len(data)] = data
    connection.buffer_updated(len(data))


@pytest.mark.parametrize("reads", [True, False])
def test_a_client_that_takes_long_to_read_an_answer_is_not_idle(reads: bool) -> None:
    loop = Steps()
    host, connection, wire = connected(loop, bytes(MEGABYTE))
    ask(connection, METADATA)
    idle_seconds = host.idle_ms_max / 1000
    while loop.now < 2 * idle_seconds:
        wire.taken_bytes += 100 if reads else 0
        loop.turn(SWEEP_SECONDS)
    assert wire.is_closed is not reads
    while loop.now < 3 * idle_seconds + 2 * SWEEP_SECONDS:
        loop.turn(SWEEP_SECONDS)
    assert wire.is_closed, "it does not go on"


@pytest.mark.parametrize("is_crowded", [True, False])
def test_an_answer_behind_a_long_poll_is_too_much_only_where_much_waits(is_crowded: bool) -> None:
    """Metadata of some thousand partitions, say, behind a fetch that waits for half a minute."""
    loop = Steps()
    host, connection, wire = connected(loop, bytes(REQUESTS_HELD_BYTES_MAX + 1))
    host.held_bytes += REQUESTS_HELD_BYTES_ALL_MAX if is_crowded else 0
    ask(connection, FETCH, METADATA)
    while loop.now < OWED_TOO_MUCH_SECONDS_MAX + 2 * SWEEP_SECONDS:
        loop.turn(SWEEP_SECONDS)
    assert wire.aborted is is_crowded
