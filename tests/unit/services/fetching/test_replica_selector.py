"""Which replica a consumer is sent to: in its rack, in sync, with what it asks for; the best of several."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.config.replication_settings import RACK_AWARE
from penstock.coordination.image import ClusterImage
from penstock.coordination.nodes import PartitionState
from penstock.coordination.registration import BrokerRegistration
from penstock.replication.leading import Leading
from penstock.services.fetching.replica_selector import LEADER, RackAwareSelector, selector

RACKS = {1: "north", 2: "south", 3: "south", 4: None}
STATE = PartitionState(replicas=(1, 2, 3, 4), isr=(1, 2, 3, 4), leader=1, leader_epoch=5, partition_epoch=9)


@pytest.fixture
def image() -> ClusterImage:
    image = ClusterImage()
    for number, rack in RACKS.items():
        image.brokers[number] = BrokerRegistration(number, f"dir-{number}", "host", 9092, rack)
    return image


def partition(state: PartitionState = STATE, **ends: tuple[int, int, float]) -> Any:
    """Led by 1; of each other `b2=(start, end, when it had all there was)`."""
    leading = Leading(1, state, 1, 0, 0.0)
    for name, (start, end, caught_up_at) in ends.items():
        progress = leading.progress[int(name[1:])]
        progress.start, progress.end, progress.caught_up_at = start, end, caught_up_at
    return SimpleNamespace(leading=leading)


def test_the_one_that_has_most_and_caught_up_last(image: ClusterImage) -> None:
    chosen = RackAwareSelector(1, image).choose
    assert chosen(partition(b2=(0, 50, 1.0), b3=(0, 60, 0.0)), b"south", 10) == 3
    assert chosen(partition(b2=(0, 50, 1.0), b3=(0, 50, 2.0)), b"south", 10) == 3
    assert chosen(partition(b2=(0, 50, 2.0), b3=(0, 50, 1.0)), b"south", 10) == 2
    assert chosen(partition(b2=(0, 50, 1.0), b3=(0, 50, 1.0)), b"south", 10) == 3


def test_only_who_has_the_offset(image: ClusterImage) -> None:
    chosen = RackAwareSelector(1, image).choose
    some = partition(b2=(20, 50, 1.0), b3=(0, 40, 0.0))
    assert chosen(some, b"south", 45) == 2
    assert chosen(some, b"south", 10) == 3
    assert chosen(some, b"south", 51) == LEADER


def test_only_who_is_in_sync_alive_and_staying(image: ClusterImage) -> None:
    chosen = RackAwareSelector(1, image).choose
    ends = {"b2": (0, 50, 1.0), "b3": (0, 60, 1.0)}
    assert chosen(partition(replace(STATE, isr=(1, 2)), **ends), b"south", 10) == 2
    image.brokers[3] = replace(image.brokers[3], stopping=True)
    assert chosen(partition(**ends), b"south", 10) == 2
    del image.brokers[2]
    assert chosen(partition(**ends), b"south", 10) == LEADER


def test_the_leader_where_it_is_near_or_nobody_is(image: ClusterImage) -> None:
    chosen = RackAwareSelector(1, image).choose
    ends = {"b2": (0, 50, 1.0), "b3": (0, 60, 1.0)}
    assert chosen(partition(**ends), b"north", 10) == LEADER
    assert chosen(partition(**ends), b"west", 10) == LEADER
    image.brokers[1] = replace(image.brokers[1], rack="south")
    assert chosen(partition(**ends), b"south", 10) == LEADER
    assert chosen(SimpleNamespace(leading=None), b"south", 10) == LEADER


def test_it_is_there_by_its_name(image: ClusterImage) -> None:
    assert isinstance(selector(RACK_AWARE, 1, image), RackAwareSelector)
    assert selector(None, 1, image) is None
    assert selector("", 1, image) is None
