"""One client that waits, and asks for more behind it: its answers take neither the broker's memory nor its files."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.abuse.scene import MEGABYTE, STRICT, Bounds, Scene, unhurt
from tests.integration.raw import (
    FETCH_VERSION,
    RawClient,
    create_topic,
    fetch_request,
    make_batch,
    produced,
)

from penstock.core.descriptors import Shares
from penstock.core.limits import SLICE_BYTES_MIN
from penstock.testing import BrokerProcess
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import create_topics, metadata

DESCRIPTORS = 256
FILES = Shares.of(DESCRIPTORS).files  # of segments, which stay open
PARTITIONS = 2 * FILES  # each has a file of its own
FOR_EVER_MS = 0x7FFFFFFF


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    few = ["sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$@"', "sh"]
    running = BrokerProcess(tmp_path_factory.mktemp("abused") / "data", prefix=few)
    running.start()
    with RawClient(running.port) as client:
        assert create_topic(client, "empty").error_code == 0
        assert create_topic(client, "many", PARTITIONS).error_code == 0
        for partition in range(PARTITIONS):
            batch = make_batch([bytes(SLICE_BYTES_MIN)])
            assert produced(client, "many", batch, partition=partition).error_code == 0
    yield running
    running.kill()


def wait_for_ever(client: RawClient) -> bytes:
    return client.frame(ApiKey.FETCH, FETCH_VERSION, fetch_request("empty", 0, max_wait_ms=FOR_EVER_MS))


def write_everywhere(port: int) -> None:
    with RawClient(port) as client:
        for partition in range(PARTITIONS):
            assert produced(client, "many", make_batch([b"x"]), partition=partition).error_code == 0


def fetch_behind(scene: Scene, clients: int, *, wait: bool) -> None:
    """Each asks for a file of each partition and reads nothing; what it asks for may stand behind what never comes."""
    links = [RawClient(scene.port) for _ in range(clients)]
    for link in links:
        data = wait_for_ever(link) if wait else b""
        for partition in range(PARTITIONS):
            request = fetch_request("many", 0, partition=partition, max_wait_ms=0)
            data += link.frame(ApiKey.FETCH, FETCH_VERSION, request)
        link.send_bytes(data)
    scene.wait_for_rounds(5)
    for _ in range(2):
        write_everywhere(scene.port)
    for link in links:
        link.close()


@pytest.mark.parametrize("wait", [True, False], ids=["owed", "unread"])
def test_fetches_that_are_not_read_hold_up_no_writes(scene: Scene, wait: bool) -> None:
    fetch_behind(scene, 2, wait=wait)
    unhurt(scene, Bounds(descriptors_after=FILES))


@pytest.mark.soak
def test_many_clients_that_do_not_read_hold_up_no_writes(scene: Scene) -> None:
    for wait in (True, False):
        fetch_behind(scene, 20, wait=wait)
    unhurt(scene, replace(STRICT, descriptors_after=FILES))


def ask_behind(scene: Scene, topics: int, requests: int) -> None:
    """Metadata of everything, over and over, behind a fetch that waits."""
    with RawClient(scene.port) as client:
        for first in range(0, topics, 50):
            wanted = [
                create_topics.CreatableTopic(name=f"{'x' * 200}-{n}", num_partitions=1, replication_factor=1)
                for n in range(first, first + 50)
            ]
            client.call(
                ApiKey.CREATE_TOPICS, 7, create_topics.CreateTopicsRequest(topics=wanted, timeout_ms=60_000)
            )
    with RawClient(scene.port) as client:
        everything = metadata.MetadataRequest(topics=None, allow_auto_topic_creation=False)
        client.send_bytes(wait_for_ever(client) + client.frame(ApiKey.METADATA, 9, everything) * requests)
        scene.wait_for_rounds(20)


def test_answers_behind_one_that_waits_take_no_memory(scene: Scene) -> None:
    ask_behind(scene, 300, 2000)  # they would be 150 MB
    unhurt(scene, Bounds(memory_peak_bytes=32 * MEGABYTE, descriptors_after=FILES))


@pytest.mark.soak
def test_many_answers_behind_one_that_waits_take_no_memory(scene: Scene) -> None:
    ask_behind(scene, 500, 20_000)
    unhurt(scene, replace(STRICT, descriptors_after=FILES))
