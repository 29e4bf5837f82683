"""Clients that ask for more than they may be owed, and leave: nothing of them stays."""

import pytest
from tests.abuse.scene import STRICT, Bounds, Scene, unhurt
from tests.integration.raw import FETCH_VERSION, RawClient, create_topic, fetch_request

from penstock.core.limits import REQUESTS_HELD_BYTES_MAX
from penstock.wire.kafka.api_keys import ApiKey

FOR_EVER_MS = 0x7FFFFFFF


def leave(scene: Scene, clients: int) -> None:
    """Each waits for so much that it is not read from any more."""
    with RawClient(scene.port) as client:
        assert create_topic(client, "empty").error_code == 0
    for _ in range(clients):
        with RawClient(scene.port) as client:
            request = fetch_request("empty", 0, max_wait_ms=FOR_EVER_MS)
            frame = client.frame(ApiKey.FETCH, FETCH_VERSION, request)
            client.send_bytes(frame * (REQUESTS_HELD_BYTES_MAX // len(frame) + 100))
    scene.wait_for_rounds(20)


def test_clients_that_left_while_they_waited_for_much_are_gone(scene: Scene) -> None:
    leave(scene, 40)
    unhurt(scene, Bounds())


@pytest.mark.soak
def test_many_clients_that_left_while_they_waited_for_much_are_gone(scene: Scene) -> None:
    leave(scene, 400)
    unhurt(scene, STRICT)
