"""What does not matter to a good client, and must not begin to: a little of everything, and much of each."""

from dataclasses import replace

import pytest
from tests.abuse.harmless import (
    MEGABYTE,
    Hostile,
    compression_bombs,
    deletions_under_load,
    producer_ids,
    silent_connections,
    slow_readers,
    stopped_for_a_while,
    told_to_end_under_load,
    wild_values,
)
from tests.abuse.scene import STRICT, Bounds, Scene, unhurt


def test_a_little_of_everything(scene: Scene) -> None:
    silent_connections(scene, 200)
    slow_readers(scene, 5)
    producer_ids(scene, 1000)
    compression_bombs(scene, 2)
    wild_values(scene, 1)
    deletions_under_load(scene, 3)
    unhurt(scene, Bounds())


@pytest.mark.soak
@pytest.mark.parametrize(
    ("hostile", "size"),
    [
        (silent_connections, 4000),
        (slow_readers, 200),
        (producer_ids, 200_000),
        (compression_bombs, 30),
        (wild_values, 20),
        (deletions_under_load, 50),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
@pytest.mark.parametrize("kill", [False, True], ids=["stop", "kill"])
def test_much_of_each(scene: Scene, hostile: Hostile, size: int, *, kill: bool) -> None:
    hostile(scene, size)
    # A new topic's file stays open while there is room for it (`core.descriptors`): a hundred of `wild_values`.
    unhurt(scene, replace(STRICT, memory_after_bytes=96 * MEGABYTE, descriptors_after=128), kill=kill)


@pytest.mark.soak
def test_stopped_for_a_while(scene: Scene) -> None:
    stopped_for_a_while(scene, 5)
    scene.wait_for_rounds(600)  # so that those who waited are one in a hundred
    unhurt(scene, Bounds(p99_ms=6000))


@pytest.mark.soak
def test_told_to_end_under_load(scene: Scene) -> None:
    told_to_end_under_load(scene, 20)
    unhurt(scene, Bounds(p99_ms=5000, errors=100))
