"""One broker for all bad input, and what must hold around every test: nothing stored, nobody disturbed, no memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import pytest
from tests.integration.raw import Neighbour, RawClient, anonymous_bytes, create_topic, end_offset, neighbour

from penstock.testing import BrokerProcess, broker

# What a broker's heap may move by on its own (arenas, caches, a metrics table); what is planted here asks for far more.
MEMORY_SLACK_BYTES = 48 << 20
PARTITIONS = 2

_names = count()


@dataclass
class Victim:
    """The broker, a topic nothing may be added to, and who must not notice."""

    process: BrokerProcess
    topic: str
    neighbour: Neighbour

    @property
    def port(self) -> int:
        return self.process.port


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker() as process:
        yield process


@pytest.fixture
def topic(running: BrokerProcess) -> str:
    """A new topic of two partitions."""
    name = f"topic-{next(_names)}"
    with RawClient(running.port) as client:
        assert create_topic(client, name, PARTITIONS).error_code == 0
    return name


@pytest.fixture
def client(running: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(running.port) as raw_client:
        yield raw_client


@pytest.fixture
def victim(running: BrokerProcess, topic: str) -> Iterator[Victim]:
    """For tests whose every request is refused: checks afterwards that nothing of them is left."""
    before_bytes = anonymous_bytes(running.pid)
    with neighbour(running.port, running.pid, f"{topic}-neighbour") as other:
        yield Victim(running, topic, other)
    assert other.peak_bytes - before_bytes < MEMORY_SLACK_BYTES
    with RawClient(running.port) as client:
        assert [end_offset(client, topic, number) for number in range(PARTITIONS)] == [0] * PARTITIONS
