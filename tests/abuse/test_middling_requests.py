"""Requests of some 50 KB from hundreds of connections at one address: who is elsewhere waits for few of them."""

import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from statistics import median

import pytest
from tests.abuse.scene import Bounds, Scene, unhurt
from tests.integration.raw import HANG_SECONDS, HOST, RawClient, create_topic, wait_until

from penstock.core.limits import LARGE_REQUEST_BYTES, REQUEST_AT_ONCE_BYTES_MAX
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import find_coordinator, init_producer_id, list_groups, offset_commit

HOSTILE, ELSEWHERE = "127.0.0.66", "127.0.0.2"
ENTRIES = 3000
ROUNDS = 15
# Groups keep the files of fifty partitions open.
_BOUNDS = Bounds(descriptors_after=100)


def middling(client: RawClient) -> bytes:
    offsets = [
        offset_commit.OffsetCommitRequestPartition(partition_index=index, committed_offset=1)
        for index in range(ENTRIES)
    ]
    request = offset_commit.OffsetCommitRequest(
        group_id="middling",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[offset_commit.OffsetCommitRequestTopic(name="middling", partitions=offsets)],
    )
    frame = client.frame(ApiKey.OFFSET_COMMIT, 7, request)
    assert REQUEST_AT_ONCE_BYTES_MAX < len(frame) < LARGE_REQUEST_BYTES
    return frame


def small(client: RawClient) -> dict[str, bytes]:
    """What is not answered on the spot, by its name."""
    producer = init_producer_id.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    return {
        "ListGroups": client.frame(ApiKey.LIST_GROUPS, 2, list_groups.ListGroupsRequest()),
        "InitProducerId": client.frame(ApiKey.INIT_PRODUCER_ID, 1, producer),
    }


class Crowd(threading.Thread):
    """Connections of one address: each sends the same request again when it was answered."""

    def __init__(self, port: int, frame: bytes, number: int) -> None:
        super().__init__()
        self._frame = frame
        self._selector = selectors.DefaultSelector()
        self._over = threading.Event()
        self.answered = 0
        self._connections = []
        for _ in range(number):
            connection = socket.create_connection((HOST, port), HANG_SECONDS, (HOSTILE, 0))
            self._connections.append(connection)
            self._selector.register(connection, selectors.EVENT_READ)

    def run(self) -> None:
        for connection in self._connections:
            connection.sendall(self._frame)
        while not self._over.is_set():
            for key, _ in self._selector.select(0.1):
                connection = key.fileobj
                assert isinstance(connection, socket.socket)
                receive(connection)
                self.answered += 1
                connection.sendall(self._frame)

    def stop(self) -> None:
        self._over.set()
        self.join()
        for connection in self._connections:
            connection.close()


def receive(connection: socket.socket) -> None:
    """One answer, whatever it says."""
    left = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
    while left:
        left -= len(connection.recv(left))


@contextmanager
def crowded(scene: Scene, number: int) -> Iterator[tuple[Crowd, dict[str, bytes]]]:
    """All of them at work, and what the others ask for."""
    with RawClient(scene.port) as client:
        create_topic(client, "middling", 1)
        key = find_coordinator.FindCoordinatorRequest(key="middling", key_type=0)
        wait_until(
            lambda: client.call(ApiKey.FIND_COORDINATOR, 2, key).error_code == 0, "there is a coordinator"
        )
        frame = middling(client)
        asked = {**small(client), "OffsetCommit": frame}
    crowd = Crowd(scene.port, frame, number)
    crowd.start()
    try:
        wait_until(lambda: crowd.answered > 10, "the crowd is served")
        yield crowd, asked
    finally:
        crowd.stop()


def others_wait_for_few(scene: Scene, number: int) -> None:
    """Counted in requests of the crowd, however long one of them takes here: before, all of them went first."""
    with crowded(scene, number) as (crowd, asked), ExitStack() as links:
        waited: dict[str, float] = {}
        for name, frame in asked.items():
            client = links.enter_context(
                socket.create_connection((HOST, scene.port), HANG_SECONDS, (ELSEWHERE, 0))
            )
            counts = []
            for _ in range(ROUNDS):
                before = crowd.answered
                client.sendall(frame)
                receive(client)
                counts.append(crowd.answered - before)
            waited[name] = median(counts)
    print(waited)
    assert max(waited.values()) <= number / 4, waited


def test_many_middling_requests_of_one_address_hold_up_nobody_elsewhere(scene: Scene) -> None:
    others_wait_for_few(scene, 80)
    unhurt(scene, _BOUNDS)


@pytest.mark.soak
def test_very_many_middling_requests_of_one_address_hold_up_nobody_elsewhere(scene: Scene) -> None:
    others_wait_for_few(scene, 600)
    unhurt(scene, _BOUNDS)
