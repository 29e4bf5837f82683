"""Ten times the usual load all at once: nothing acknowledged is lost, nobody is dropped, memory stays bounded.

`PENSTOCK_SURGE_SECONDS` is how long the surge lasts; `make soak` runs a minute.
"""

import os
import threading
from dataclasses import dataclass, field

import pytest
from tests.integration.raw import (
    RawClient,
    anonymous_bytes,
    create_topic,
    make_batch,
    neighbour,
    produce_request,
    read_log,
)

from penstock.core.error_codes import ErrorCode
from penstock.testing import BrokerProcess
from penstock.wire.kafka.api_keys import ApiKey

USUAL_CLIENTS = 2
TIMES = 10
PARTITIONS = 4
IN_FLIGHT = 20
VALUE_BYTES = 2000
MEMORY_SLACK_BYTES = 64 << 20


@dataclass
class Client(threading.Thread):
    """Keeps many requests in flight on one connection, and what it was told of each."""

    port: int
    number: int
    stopped: threading.Event
    topic: str = "surge"
    acknowledged: list[tuple[int, bytes]] = field(default_factory=list)  # (offset, value)
    failure: BaseException | None = None

    def __post_init__(self) -> None:
        super().__init__()

    @property
    def partition(self) -> int:
        return self.number % PARTITIONS

    def run(self) -> None:
        try:
            with RawClient(self.port) as client:
                sent: list[bytes] = []
                while not self.stopped.is_set() or len(self.acknowledged) < len(sent):
                    while not self.stopped.is_set() and len(sent) - len(self.acknowledged) < IN_FLIGHT:
                        value = b"%d:%d:" % (self.number, len(sent)) + bytes(VALUE_BYTES)
                        request = produce_request(self.topic, [(self.partition, make_batch([value]))])
                        client.send_bytes(client.frame(ApiKey.PRODUCE, 9, request))
                        sent.append(value)
                    answer = client.receive().responses[0].partition_responses[0]
                    assert answer.error_code == ErrorCode.NONE
                    self.acknowledged.append((answer.base_offset, sent[len(self.acknowledged)]))
        except BaseException as error:
            self.failure = error

    __hash__ = threading.Thread.__hash__


def run_clients(port: int, count: int, seconds: float) -> list[Client]:
    stopped = threading.Event()
    clients = [Client(port, number, stopped) for number in range(count)]
    for client in clients:
        client.start()
    threading.Event().wait(seconds)
    stopped.set()
    for client in clients:
        client.join()
        assert client.failure is None, f"client {client.number} was dropped: {client.failure!r}"
    return clients


def surge(running: BrokerProcess, seconds: float) -> None:
    with RawClient(running.port) as admin:
        assert create_topic(admin, "surge", PARTITIONS).error_code == 0
    usual = run_clients(running.port, USUAL_CLIENTS, seconds / 5)
    before = anonymous_bytes(running.pid)
    with neighbour(running.port, running.pid, "beside-the-surge") as other:
        rounds_before = other.acknowledged
        surging = run_clients(running.port, TIMES * USUAL_CLIENTS, seconds)
        assert other.acknowledged > rounds_before, "the event loop served nobody else meanwhile"
        other.wait_for_rounds(5)
    assert other.peak_bytes - before < MEMORY_SLACK_BYTES
    logs = [read_log(running.port, "surge", partition) for partition in range(PARTITIONS)]
    total = 0
    for client in (*usual, *surging):
        log = logs[client.partition]
        offsets = [offset for offset, _ in client.acknowledged]
        assert offsets == sorted(set(offsets)), "out of order or twice"
        lost = [offset for offset, value in client.acknowledged if log[offset] != value]
        assert not lost, (
            f"{len(lost)} of {len(offsets)} acknowledged records of client {client.number} are lost"
        )
        total += len(offsets)
    assert total == sum(len(log) for log in logs), "something is stored that nobody was told of"


def test_a_surge_of_ten_times_the_load(running: BrokerProcess) -> None:
    surge(running, 5.0)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_a_surge_for_a_minute(running: BrokerProcess) -> None:
    surge(running, float(os.environ.get("PENSTOCK_SURGE_SECONDS", "60")))
