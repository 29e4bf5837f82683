"""Small requests with large answers that nobody reads: what waits in memory is bounded over all connections."""

from contextlib import ExitStack
from dataclasses import replace

import pytest
from tests.abuse.scene import MEGABYTE, STRICT, Bounds, Scene, unhurt
from tests.integration.raw import (
    FETCH_VERSION,
    RawClient,
    create_topic,
    make_batch,
    produce_request,
    wait_until,
)

from penstock.core.limits import FETCH_COPIED_BYTES_MAX, LARGE_ANSWER_ENTRIES, SLICE_BYTES_MIN
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import fetch, find_coordinator, offset_commit, offset_fetch

METADATA_BYTES = 4096  # beside each offset: the most that may be
OFFSET_FETCH_VERSION = 8
PARTITIONS_AT_ONCE = 100


def unread(scene: Scene, request: bytes, clients: int) -> None:
    """All ask, and none of them reads."""
    with ExitStack() as links:
        for _ in range(clients):
            link = links.enter_context(RawClient(scene.port, receive_buffer_bytes=4096))
            link.send_bytes(request)
        scene.wait_for_rounds(40)


def commit_much(
    client: RawClient, topic: str, groups: list[str], partitions: int, metadata_bytes: int = METADATA_BYTES
) -> None:
    assert create_topic(client, topic, partitions).error_code == 0
    for group in groups:
        key = find_coordinator.FindCoordinatorRequest(key=group, key_type=0)
        wait_until(
            lambda key=key: client.call(ApiKey.FIND_COORDINATOR, 2, key).error_code == 0, "a coordinator"
        )
        for first in range(0, partitions, PARTITIONS_AT_ONCE):
            offsets = [
                offset_commit.OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=1, committed_metadata="m" * metadata_bytes
                )
                for index in range(first, first + PARTITIONS_AT_ONCE)
            ]
            request = offset_commit.OffsetCommitRequest(
                group_id=group,
                generation_id_or_member_epoch=-1,
                member_id="",
                topics=[offset_commit.OffsetCommitRequestTopic(name=topic, partitions=offsets)],
            )

            def committed(request: offset_commit.OffsetCommitRequest = request) -> bool:
                answer = client.call(ApiKey.OFFSET_COMMIT, 7, request)
                return {
                    partition.error_code for topic in answer.topics for partition in topic.partitions
                } == {0}

            wait_until(committed, "the offsets are stored")


def everything_of(client: RawClient, groups: list[str]) -> bytes:
    wanted = [offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]
    request = offset_fetch.OffsetFetchRequest(groups=wanted, require_stable=False)
    return client.frame(ApiKey.OFFSET_FETCH, OFFSET_FETCH_VERSION, request)


def ask_for_offsets(scene: Scene, groups: int, partitions: int, clients: int) -> None:
    with RawClient(scene.port) as client:
        names = [f"g{group}" for group in range(groups)]
        commit_much(client, "committed", names, partitions)
        client.send_bytes(everything_of(client, ["g0"] * 10))
        assert len(client.receive().groups) == 1, "what is named again is not answered again"
        frame = everything_of(client, names)
    unread(scene, frame, clients)


def test_large_answers_that_are_not_read_take_no_memory_from_others(scene: Scene) -> None:
    ask_for_offsets(scene, 5, 300, 60)  # they would be 360 MB
    unhurt(scene, Bounds(memory_peak_bytes=224 * MEGABYTE, memory_after_bytes=96 * MEGABYTE))


@pytest.mark.soak
def test_many_large_answers_that_are_not_read_take_no_memory_from_others(scene: Scene) -> None:
    ask_for_offsets(scene, 10, 1800, 60)
    stored = 10 * 1800 * METADATA_BYTES
    bounds = replace(STRICT, memory_peak_bytes=512 * MEGABYTE, memory_after_bytes=stored + 48 * MEGABYTE)
    unhurt(scene, replace(bounds, stall_s=0.2, p99_ms=500.0))


def test_answers_that_are_asked_for_one_behind_the_other_are_made_as_they_are_read(scene: Scene) -> None:
    """Each is made by a coroutine, and too small to wait for room: 77 MB of them, for one connection."""
    with RawClient(scene.port) as client:
        commit_much(client, "long", ["a group"], LARGE_ANSWER_ENTRIES + PARTITIONS_AT_ONCE, 700)
        frame = everything_of(client, ["a group"])
        client.send_bytes(frame)
        assert len(client.receive().groups[0].topics[0].partitions) > LARGE_ANSWER_ENTRIES
    unread(scene, frame * 100, 1)
    unhurt(scene, Bounds(memory_peak_bytes=40 * MEGABYTE))


def small_slices(client: RawClient, partitions: int) -> bytes:
    """A fetch of everything there is in a topic with a batch below 32 KB in each partition."""
    assert create_topic(client, "many", partitions).error_code == 0
    batch = make_batch([bytes(SLICE_BYTES_MIN - 1000)])
    for first in range(0, partitions, PARTITIONS_AT_ONCE):
        request = produce_request(
            "many", [(index, batch) for index in range(first, first + PARTITIONS_AT_ONCE)]
        )
        answer = client.call(ApiKey.PRODUCE, 9, request)
        assert {response.error_code for response in answer.responses[0].partition_responses} == {0}
    wanted = [
        fetch.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
        for index in range(partitions)
    ]
    everything = fetch.FetchRequest(
        topics=[fetch.FetchTopic(topic="many", partitions=wanted)],
        replica_id=-1,
        max_wait_ms=0x7FFFFFFF,
        min_bytes=(1 << 31) - 1,
        max_bytes=(1 << 31) - 1,
        session_epoch=-1,
    )
    return client.frame(ApiKey.FETCH, FETCH_VERSION, everything)


def ask_for_small_slices(scene: Scene, partitions: int, clients: int) -> None:
    with RawClient(scene.port) as client:
        frame = small_slices(client, partitions)
        client.send_bytes(frame)
        answers = client.receive().responses[0].partitions
        sizes = [len(answer.records or b"") for answer in answers]
        assert FETCH_COPIED_BYTES_MAX <= sum(sizes) < FETCH_COPIED_BYTES_MAX + SLICE_BYTES_MIN
        assert [answer.error_code for answer in answers] == [0] * partitions
    unread(scene, frame, clients)


def test_fetches_of_many_small_slices_that_are_not_read_take_little_memory(scene: Scene) -> None:
    ask_for_small_slices(scene, 400, 30)  # they would be 370 MB
    unhurt(scene, Bounds(memory_peak_bytes=96 * MEGABYTE, descriptors_after=500))


@pytest.mark.soak
def test_many_fetches_of_small_slices_that_are_not_read_take_little_memory(scene: Scene) -> None:
    ask_for_small_slices(scene, 1700, 400)
    # Some of what 680,000 small objects took stays: those that are still needed lie scattered among them.
    bounds = replace(STRICT, memory_peak_bytes=256 * MEGABYTE, memory_after_bytes=128 * MEGABYTE)
    unhurt(scene, replace(bounds, descriptors_after=2000))
