"""Small requests that ask for much work: what they cost is theirs to wait for, whoever else is served meanwhile."""

from dataclasses import replace

import pytest
from tests.abuse.scene import MEGABYTE, STRICT, Bounds, Scene, unhurt
from tests.integration.raw import RawClient, create_topic

from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import fetch

_SESSION_VERSION = 12


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


def test_incremental_fetches_that_are_sent_at_once(scene: Scene) -> None:
    pipeline_fetches(scene, 500, 500)
    unhurt(scene, Bounds(descriptors_after=2000))


@pytest.mark.soak
def test_incremental_fetches_of_1800_partitions(scene: Scene) -> None:
    pipeline_fetches(scene, 1800, 1000)
    # Each takes some 10 ms, and the good client's rounds a few turns each.
    unhurt(scene, replace(STRICT, p99_ms=Bounds.p99_ms, descriptors_after=5000))
