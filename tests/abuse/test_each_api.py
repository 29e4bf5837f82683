"""Eight clients at once that ask for as much as one request may, of each API that is served: nobody else is hurt."""

import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.abuse.asked import Stock, for_brokers, for_clients, foreign_frame, frames
from tests.abuse.scene import MEGABYTE, STRICT, Bounds, Scene, scene, unhurt, unhurt_so_far
from tests.abuse.stock import stocked
from tests.integration.raw import HANG_SECONDS, HOST, wait_until

from penstock.frontends.kafka.registry import REGISTRY
from penstock.testing import BrokerProcess, broker
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.messages import api_name

_CLIENTS = 8
_ROUNDS = 10  # of the good client, beside each kind of request: half a second
_BOUNDS = Bounds(
    # Eight that ask without pause have nine turns of ten, and a round of the good client takes several.
    p99_ms=STRICT.p99_ms * 40,
    stall_s=0.1,
    memory_peak_bytes=256 * MEGABYTE,
    memory_after_bytes=64 * MEGABYTE,
    descriptors_after=5000,
)
# Each batch to another partition is another file to sync: the good client's waits in the same row, for the disk. Eight
# requests that come at once with 18,000 batches are taken apart one after the other, in some 20 ms each.
_BOUNDS_OF_PRODUCE = replace(_BOUNDS, p99_ms=60_000.0, stall_s=0.2)
# Of the short form: in portions, as a whole, and with a large answer.
_SOME = (ApiKey.LIST_OFFSETS, ApiKey.CREATE_PARTITIONS, ApiKey.DESCRIBE_TOPIC_PARTITIONS)


class Hostile(threading.Thread):
    """Sends a frame, takes the answer, sends it again; connects again where it was turned away."""

    def __init__(self, port: int, frame: bytes) -> None:
        super().__init__()
        self._port = port
        self._frame = frame
        self._stopped = threading.Event()
        self._link: socket.socket | None = None
        self.answered = 0
        self.refused = 0

    def run(self) -> None:
        while not self._stopped.is_set():
            with suppress(OSError), socket.create_connection((HOST, self._port), HANG_SECONDS) as link:
                self._link = link
                while not self._stopped.is_set():
                    link.sendall(self._frame)
                    if not _took_answer(link):
                        break
                    self.answered += 1
            self.refused += not self._stopped.is_set()

    def stop(self) -> None:
        """Also where it waits for an answer: it leaves."""
        self._stopped.set()
        if self._link is not None:
            with suppress(OSError):
                self._link.shutdown(socket.SHUT_RDWR)


def _took_answer(link: socket.socket) -> bool:
    with link.makefile("rb") as stream:
        left = int.from_bytes(stream.read(4), "big")
        is_there = left > 0
        while left:
            data = stream.read(min(left, MEGABYTE))
            if not data:
                return False
            left -= len(data)
    return is_there


def ask(made: Scene, named: Iterable[tuple[str, bytes]], rounds: int) -> dict[str, int]:
    """How often each was answered: of all clients, and for so many rounds of the good one, or until some were."""
    answered = {}
    for name, frame in named:
        hostile = [Hostile(made.port, frame) for _ in range(_CLIENTS)]
        for client in hostile:
            client.start()
        try:
            made.wait_for_rounds(rounds)
            wait_until(
                lambda hostile=hostile: any(client.answered or client.refused for client in hostile),
                f"{name} is answered",
            )
        finally:
            for client in hostile:
                client.stop()
            for client in hostile:
                client.join()
        answered[name] = sum(client.answered for client in hostile)
        refused = sum(client.refused for client in hostile)
        print(f"{name} ({len(frame)} bytes): answered {answered[name]}, refused {refused}; {made.figures()}")
    return answered


@pytest.fixture(scope="module")
def full() -> Iterator[tuple[BrokerProcess, Stock]]:
    with broker() as process:
        yield process, stocked(process, 300, 300)


@pytest.fixture(scope="module")
def little(shared_process: BrokerProcess) -> Stock:
    return stocked(shared_process, 20, 10)


@pytest.mark.parametrize("key", _SOME, ids=api_name)
def test_some_apis(key: int, little: Stock, scene: Scene) -> None:
    assert all(ask(scene, frames(key, little), 5).values())
    unhurt(scene, Bounds(descriptors_after=5000))


@pytest.mark.soak
@pytest.mark.parametrize("key", for_clients(), ids=api_name)
def test_each_api(key: int, full: tuple[BrokerProcess, Stock], tmp_path: Path) -> None:
    process, stock = full
    with scene(process, tmp_path) as made:
        assert all(ask(made, frames(key, stock), _ROUNDS).values())
        unhurt_so_far(made, _BOUNDS_OF_PRODUCE if key == ApiKey.PRODUCE else _BOUNDS)


@pytest.mark.soak
def test_each_api_of_brokers_alone(full: tuple[BrokerProcess, Stock], tmp_path: Path) -> None:
    with scene(full[0], tmp_path) as made:
        answered = ask(made, ((api_name(key), foreign_frame(key)) for key in for_brokers()), _ROUNDS // 4)
        introduce = {api_name(key) for key in for_brokers() if REGISTRY[key].introduces}
        assert {name for name, times in answered.items() if times} <= introduce
        unhurt_so_far(made, _BOUNDS)


@pytest.mark.soak
def test_a_start_after_all_of_it(full: tuple[BrokerProcess, Stock], tmp_path: Path) -> None:
    with scene(full[0], tmp_path) as made:
        unhurt(made, _BOUNDS)
