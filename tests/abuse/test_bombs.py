"""Small batches that unpack to much, side by side: together they take what one may, and nobody waits for them."""

import threading
from contextlib import ExitStack

import pytest
from tests.abuse.scene import MEGABYTE, STRICT, Bounds, Scene, unhurt
from tests.integration.raw import RawClient, create_topic, produced

from penstock.records.builder import BatchOptions, build_batch
from penstock.records.compression import Codec
from penstock.records.reader import Record

TOPIC = "bombs"


def throw(port: int, bomb: bytearray, clients: int, times: int) -> None:
    """All of them are what they say, so all are stored."""
    with ExitStack() as stack:
        links = [stack.enter_context(RawClient(port)) for _ in range(clients)]
        create_topic(links[0], TOPIC, configs={"cleanup.policy": "compact"})
        codes: list[int] = []

        def send(link: RawClient) -> None:
            link.socket.settimeout(600)  # they wait for each other
            codes.extend(produced(link, TOPIC, bomb).error_code for _ in range(times))

        threads = [threading.Thread(target=send, args=(link,)) for link in links]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert codes == [0] * clients * times


def of_one_value(size_bytes: int) -> bytearray:
    record = Record(offset=0, timestamp=1, key=b"key", value=bytes(size_bytes))
    return build_batch([record], BatchOptions(codec=Codec.GZIP))


def of_empty_records(count: int) -> bytearray:
    records = [Record(offset=at, timestamp=1, key=b"", value=None) for at in range(count)]
    return build_batch(records, BatchOptions(codec=Codec.GZIP))


def test_bombs_side_by_side(scene: Scene) -> None:
    throw(scene.port, of_one_value(40 * MEGABYTE), 8, 1)
    unhurt(scene, Bounds(memory_peak_bytes=112 * MEGABYTE))


@pytest.mark.soak
def test_thirty_clients_with_the_largest_bombs(scene: Scene) -> None:
    throw(scene.port, of_one_value(98 * MEGABYTE), 30, 3)
    unhurt(scene, STRICT)


@pytest.mark.soak
def test_thirty_clients_with_many_tiny_records(scene: Scene) -> None:
    throw(scene.port, of_empty_records(500_000), 30, 1)
    unhurt(scene, STRICT)
