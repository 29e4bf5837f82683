"""Requests whose lists are as long as a frame can hold: answered in portions, or refused; nobody else waits."""

from contextlib import suppress
from dataclasses import replace

import pytest
from tests.abuse.crowds import Crowd, crowds
from tests.abuse.scene import MEGABYTE, STRICT, Bounds, Scene, unhurt
from tests.integration.raw import RawClient, create_topic, wait_until

from penstock.core.limits import REQUEST_ENTRIES_MAX, REQUEST_ENTRIES_WHOLE_MAX
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.wire.kafka.generated.find_coordinator import FindCoordinatorRequest

CROWDS = {crowd.name: crowd for crowd in crowds()}
# Lists on the way to the long one have an entry each.
_WHOLE, _IN_PORTIONS = (most - 10 for most in (REQUEST_ENTRIES_WHOLE_MAX, REQUEST_ENTRIES_MAX))
_PARTITIONS = 4
_FETCH_VERSION = 12
_FOR_EVER_MS = 1 << 30
# Of the short form: those that held up everybody for seconds.
_WORST = (
    "DescribeGroupsRequest-groups",
    "FindCoordinatorRequest-coordinator_keys",
    "OffsetFetchRequest-topics",
)


def send(scene: Scene, crowd: Crowd, entries_max: int) -> bool:
    """Whether it was answered, not refused by closing."""
    made = crowd.request(entries_max)
    if made is None:
        return True
    with RawClient(scene.port) as client, suppress(ConnectionError):
        client.send_bytes(client.frame(crowd.api.key, made[0], made[1]))
        client.receive_undecoded()
        return True
    return False


def serve_groups(scene: Scene) -> None:
    with RawClient(scene.port) as client:
        create_topic(client, "x0", _PARTITIONS)
        asked = FindCoordinatorRequest(key="x0")
        wait_until(
            lambda: client.call(ApiKey.FIND_COORDINATOR, 3, asked).error_code == 0, "groups are served"
        )


def test_some_of_each_list(scene: Scene) -> None:
    serve_groups(scene)
    for name in _WORST:
        assert send(scene, CROWDS[name], REQUEST_ENTRIES_WHOLE_MAX), name
    assert not send(scene, CROWDS["DescribeLogDirsRequest-topics"], REQUEST_ENTRIES_WHOLE_MAX + 1)
    unhurt(scene, Bounds())


def fetch_all(scene: Scene, partitions: int) -> None:
    """Of so many partitions, of which there are few: by a full fetch that begins a session, and one that goes on."""
    wanted = [
        FetchTopic(topic="x0", partitions=[FetchPartition(partition=number) for number in range(partitions)])
    ]
    with RawClient(scene.port) as client:
        first = client.call(ApiKey.FETCH, _FETCH_VERSION, FetchRequest(session_epoch=0, topics=wanted))
        assert len(first.responses[0].partitions) == partitions
        assert first.session_id
        again = FetchRequest(session_id=first.session_id, session_epoch=1, max_wait_ms=_FOR_EVER_MS)
        second = client.call(ApiKey.FETCH, _FETCH_VERSION, again)
        missing = [answer for answer in second.responses[0].partitions if answer.error_code]
        assert len(missing) == partitions - _PARTITIONS


def test_a_fetch_of_very_many_partitions(scene: Scene) -> None:
    serve_groups(scene)
    fetch_all(scene, 40_000)
    unhurt(scene, Bounds(stall_s=0.2))


@pytest.mark.soak
def test_a_fetch_of_as_many_partitions_as_a_frame_holds(scene: Scene) -> None:
    serve_groups(scene)
    fetch_all(scene, 110_000)
    unhurt(scene, replace(STRICT, memory_peak_bytes=512 * MEGABYTE, memory_after_bytes=128 * MEGABYTE))


@pytest.mark.soak
@pytest.mark.parametrize("entries", [_WHOLE, _IN_PORTIONS, 1 << 30])
def test_every_list_of_every_request(scene: Scene, entries: int) -> None:
    serve_groups(scene)
    answered = [name for name, crowd in CROWDS.items() if send(scene, crowd, entries)]
    if entries == _WHOLE:
        assert answered == list(CROWDS)
    elif entries == _IN_PORTIONS:
        assert {name.split("-")[0] for name in answered} >= {"ListOffsetsRequest", "DescribeGroupsRequest"}
    unhurt(scene, replace(STRICT, memory_peak_bytes=512 * MEGABYTE, memory_after_bytes=128 * MEGABYTE))
