"""Clients that ask for more than they may be owed, and wait or leave: nobody is held up, and nothing of them stays."""

from contextlib import ExitStack
from dataclasses import replace

import pytest
from tests.abuse.scene import MEGABYTE, STRICT, Attacked, Bounds, Scene, unhurt
from tests.integration.raw import FETCH_VERSION, RawClient, create_topic, fetch_request

from penstock.core.limits import FETCH_HELD_BYTES_MIN, REQUESTS_HELD_BYTES_MAX
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
            client.send_bytes(frame * (REQUESTS_HELD_BYTES_MAX // FETCH_HELD_BYTES_MIN + 100))
    scene.wait_for_rounds(20)


def test_clients_that_left_while_they_waited_for_much_are_gone(scene: Scene) -> None:
    leave(scene, 40)
    unhurt(scene, Bounds())


def crowd(scene: Attacked, clients: int) -> None:
    """Fetches of the good client's topic, as many as are taken, that never have enough: each record looks at them."""
    request = fetch_request(scene.topic, 0, max_wait_ms=FOR_EVER_MS, min_bytes=FOR_EVER_MS)
    with ExitStack() as links:
        for _ in range(clients):
            link = links.enter_context(RawClient(scene.port))
            link.send_bytes(link.frame(ApiKey.FETCH, FETCH_VERSION, request) * 3500)
        scene.wait_for_rounds(40)


def test_fetches_that_wait_in_crowds_hold_up_no_producer(scene: Scene) -> None:
    crowd(scene, 30)  # 100,000 would wait, and take 130 MB
    unhurt(scene, Bounds(memory_peak_bytes=32 * MEGABYTE))


@pytest.mark.soak
def test_fetches_that_wait_in_large_crowds_hold_up_no_producer(scene: Scene) -> None:
    crowd(scene, 100)
    unhurt(scene, replace(STRICT, p99_ms=500.0))


@pytest.mark.soak
def test_many_clients_that_left_while_they_waited_for_much_are_gone(scene: Scene) -> None:
    leave(scene, 400)
    unhurt(scene, STRICT)
