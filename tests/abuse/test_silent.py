"""Connections that say nothing, too little, or too slowly cost nobody anything."""

from contextlib import ExitStack
from struct import pack

import pytest
from tests.abuse.scene import STRICT, Bounds, Scene, unhurt
from tests.integration.raw import RawClient


def silent_connections(scene: Scene, number: int, rounds: int) -> None:
    """A third sends nothing, a third a size and no more, a third a byte now and then."""
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(scene.port)) for _ in range(number)]
        for client in clients[number // 3 :]:
            client.send_bytes(pack(">i", 1000))
        for _ in range(rounds):
            for client in clients[2 * number // 3 :]:
                client.send_bytes(b"\0")
            scene.wait_for_rounds(1)


def test_hundreds_of_silent_connections(scene: Scene) -> None:
    silent_connections(scene, 300, 10)
    unhurt(scene, Bounds())


@pytest.mark.soak
def test_thousands_of_silent_connections(scene: Scene) -> None:
    silent_connections(scene, 3000, 200)
    unhurt(scene, STRICT, kill=True)
