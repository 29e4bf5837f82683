"""Small requests that ask for much work: what they cost is theirs to wait for, whoever else is served meanwhile."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest
from tests.abuse.scene import MEGABYTE, STRICT, Bounds, Scene, unhurt
from tests.integration.raw import RawClient, create_topic, make_batch, produce_request

from penstock.core.error_codes import ErrorCode
from penstock.core.limits import PRODUCERS_MAX
from penstock.records.builder import BatchOptions
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import (
    create_topics,
    describe_configs,
    describe_producers,
    fetch,
    fetch_snapshot,
)

_SESSION_VERSION = 12
_PRODUCE_VERSION = 9
_AT_ONCE = 500
_TOPIC = 2


def _incremental(session: int, epoch: int, partitions: int = 0) -> fetch.FetchRequest:
    wanted = [
        fetch.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=MEGABYTE)
        for index in range(partitions)
    ]
    return fetch.FetchRequest(
        topics=[fetch.FetchTopic(topic=f"session-{partitions}", partitions=wanted)] if wanted else [],
        replica_id=-1,
        max_wait_ms=0,
        max_bytes=MEGABYTE,
        session_id=session,
        session_epoch=epoch,
    )


def pipeline_fetches(scene: Scene, partitions: int, number: int) -> None:
    """Each of 50 bytes, for all partitions of a session, and all of them sent at once."""
    with RawClient(scene.port) as client:
        assert create_topic(client, f"session-{partitions}", partitions).error_code == 0
        opened = client.call(ApiKey.FETCH, _SESSION_VERSION, _incremental(0, 0, partitions))
        assert opened.error_code == 0
        frames = [
            client.frame(ApiKey.FETCH, _SESSION_VERSION, _incremental(opened.session_id, epoch))
            for epoch in range(1, number + 1)
        ]
        client.send_bytes(b"".join(frames))
        assert {client.receive().error_code for _ in range(number)} == {0}


def write_under_many_ids(scene: Scene, number: int) -> Iterator[int]:
    """A batch from each, of ids that nobody was given; the errors they were answered with."""
    with RawClient(scene.port) as client:
        assert create_topic(client, "ids").error_code == 0
        for first in range(0, number, _AT_ONCE):
            frames = [
                client.frame(
                    ApiKey.PRODUCE, _PRODUCE_VERSION, produce_request("ids", [(0, batch_of(producer_id))])
                )
                for producer_id in range(first, min(first + _AT_ONCE, number))
            ]
            client.send_bytes(b"".join(frames))
            for _ in frames:
                yield client.receive().responses[0].partition_responses[0].error_code


def batch_of(producer_id: int) -> bytearray:
    return make_batch([b""], BatchOptions(producer_id=producer_id, producer_epoch=0, base_sequence=0))


def tell_of_producers(scene: Scene) -> int:
    topic = describe_producers.TopicRequest(name="ids", partition_indexes=[0] * 10)
    request = describe_producers.DescribeProducersRequest(topics=[topic])
    with RawClient(scene.port) as client:
        told = client.call(ApiKey.DESCRIBE_PRODUCERS, 0, request).topics[0].partitions
    return sum(len(partition.active_producers) for partition in told)


def ask_for_snapshots(scene: Scene, number: int) -> None:
    """As if it were a replica, of one partition again and again."""
    wanted = [
        fetch_snapshot.RequestPartitionSnapshot(
            current_leader_epoch=-1,
            snapshot_id=fetch_snapshot.SnapshotId(end_offset=1 << 40),
            position=position,
        )
        for position in range(-number, 0)
    ]
    topic = fetch_snapshot.RequestTopicSnapshot(name="ids", partitions=wanted)
    with RawClient(scene.port) as client, pytest.raises(ConnectionError):
        client.call(ApiKey.FETCH_SNAPSHOT, 0, fetch_snapshot.FetchSnapshotRequest(topics=[topic]))


def make_topics(scene: Scene, number: int) -> list[str]:
    names = [f"s{index}" for index in range(number)]
    wanted = [
        create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names
    ]
    with RawClient(scene.port) as client:
        for first in range(0, number, 100):
            request = create_topics.CreateTopicsRequest(topics=wanted[first : first + 100], timeout_ms=60_000)
            made = client.call(ApiKey.CREATE_TOPICS, 5, request).topics
            assert {topic.error_code for topic in made} == {0}
    return names


def ask_for_settings(scene: Scene, topics: list[str], clients: int) -> None:
    """Of all of them, with all there is to tell: each in one small request, and all at the same time."""
    wanted = [
        describe_configs.DescribeConfigsResource(resource_type=_TOPIC, resource_name=name) for name in topics
    ]
    request = describe_configs.DescribeConfigsRequest(
        resources=wanted, include_synonyms=True, include_documentation=True
    )
    with ExitStack() as links:
        asking = [links.enter_context(RawClient(scene.port)) for _ in range(clients)]
        for client in asking:
            client.send_bytes(client.frame(ApiKey.DESCRIBE_CONFIGS, 4, request))
        for client in asking:
            assert len(client.receive().results) == len(topics)


def test_settings_of_many_topics(scene: Scene) -> None:
    ask_for_settings(scene, make_topics(scene, 200), 4)
    unhurt(scene, Bounds(descriptors_after=1000))


@pytest.mark.soak
def test_settings_of_as_many_topics_as_a_small_request_holds(scene: Scene) -> None:
    ask_for_settings(scene, make_topics(scene, 1000), 8)
    unhurt(scene, replace(STRICT, p99_ms=250.0, descriptors_after=5000))


def test_incremental_fetches_that_are_sent_at_once(scene: Scene) -> None:
    pipeline_fetches(scene, 500, 500)
    unhurt(scene, Bounds(descriptors_after=2000))


def test_producers_of_one_batch_each(scene: Scene) -> None:
    more = 50
    errors = list(write_under_many_ids(scene, PRODUCERS_MAX + more))
    assert errors == [0] * PRODUCERS_MAX + [ErrorCode.POLICY_VIOLATION] * more
    assert tell_of_producers(scene) == PRODUCERS_MAX
    ask_for_snapshots(scene, 1800)
    unhurt(scene, Bounds())


@pytest.mark.soak
def test_incremental_fetches_of_1800_partitions(scene: Scene) -> None:
    pipeline_fetches(scene, 1800, 1000)
    # Each takes some 10 ms, and the good client's rounds a few turns each.
    unhurt(scene, replace(STRICT, p99_ms=5000.0, descriptors_after=5000))
