"""Long lists from one client that come over many connections: others have their places in turn, leavers have none."""

import select
import socket

from tests.abuse.scene import Bounds, Scene, unhurt
from tests.integration.raw import HANG_SECONDS, RawClient, create_topic

from penstock.core.limits import PORTIONED_REQUEST_BYTES, PORTIONED_REQUESTS_MAX, REQUEST_ENTRIES_MAX
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

CONNECTIONS = 14  # 28 MB: more than 32 MB of such requests are not kept
HOST, ELSEWHERE = "127.0.0.1", "127.0.0.2"


def long_list(client: RawClient, partitions: int) -> bytes:
    wanted = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="x0", partitions=wanted)])
    return client.frame(ApiKey.LIST_OFFSETS, 6, request)


def requests(scene: Scene) -> tuple[bytes, bytes]:
    """One that takes long, and one that is just long enough to need a place."""
    with RawClient(scene.port) as client:
        create_topic(client, "x0", 1)
        longest, ordinary = long_list(client, REQUEST_ENTRIES_MAX - 10), long_list(client, 700)
    assert len(ordinary) > PORTIONED_REQUEST_BYTES
    return longest, ordinary


def ask(scene: Scene, request: bytes, source: str) -> socket.socket:
    asking = socket.create_connection((HOST, scene.port), HANG_SECONDS, (source, 0))
    asking.sendall(request)
    return asking


def answered(connections: list[socket.socket]) -> int:
    return len(select.select(connections, [], [], 0)[0])


def test_an_address_with_many_requests_leaves_others_their_turn(scene: Scene) -> None:
    longest, ordinary = requests(scene)
    crowd = [ask(scene, longest, HOST) for _ in range(CONNECTIONS)]
    try:
        with ask(scene, ordinary, ELSEWHERE) as other:
            assert other.recv(4)
        # Those under way may be done first, and some before it was asked: by no means all.
        assert answered(crowd) < CONNECTIONS - PORTIONED_REQUESTS_MAX
    finally:
        for connection in crowd:
            connection.close()
    unhurt(scene, Bounds())


def test_requests_of_clients_that_left_are_not_worked_on(scene: Scene) -> None:
    longest, ordinary = requests(scene)
    for _ in range(CONNECTIONS):
        ask(scene, longest, HOST).close()
    with ask(scene, ordinary, HOST) as other:
        assert other.recv(4)
    # Only some of so many equal lines are kept.
    assert scene.process.log_path.read_bytes().count(b"the client has left") >= CONNECTIONS // 4
    unhurt(scene, Bounds())
