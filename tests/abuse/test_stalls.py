"""Large requests that are legal: nobody else may wait for them. The longest row of callbacks is what each is held to.

The sizes are those that stalled everybody for 0.4 to 3 s; the short form runs at a part of that.
"""

from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from urllib.request import urlopen

import pytest
from tests.abuse.scene import MEGABYTE, STRICT, Attacked, Bounds, Scene, unhurt
from tests.integration.raw import (
    FETCH_VERSION,
    RawClient,
    create_topic,
    fetch_request,
    make_batch,
    metric,
    produced,
    values_in,
    wait_until,
)

from penstock.core.error_codes import ErrorCode
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import find_coordinator, join_group, metadata

NAMES_MAX = 100_000
CONNECTIONS = 50
_NUMBERS = count()


def create_at_once(scene: Attacked, partitions: int) -> None:
    with RawClient(scene.port) as client:
        assert create_topic(client, f"large-{partitions}", partitions).error_code == 0


def ask_for_names(scene: Attacked, number: int) -> None:
    asked = [metadata.MetadataRequestTopic(name=f"there-is-no-topic-{i}") for i in range(number)]
    request = metadata.MetadataRequest(topics=asked, allow_auto_topic_creation=False)
    with RawClient(scene.port) as client:
        client.send_bytes(client.frame(ApiKey.METADATA, 9, request))
        answer = client.receive()
    assert len(answer.topics) == number
    assert answer.topics[-1].name == asked[-1].name


def ask_for_partitions(scene: Scene, topic: str, number: int) -> None:
    request = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=topic)])
    with RawClient(scene.port) as client:
        answer = client.call(ApiKey.METADATA, 9, request)
    assert len(answer.topics[0].partitions) == number


def scrape(scene: Scene, times: int) -> None:
    for _ in range(times):
        with urlopen(f"{scene.process.console_url.rstrip('/')}/metrics", timeout=60) as page:
            assert b"penstock_log_size_bytes" in page.read()


def wake_fetches(scene: Scene, number: int) -> None:
    """One message that many long polls wait for."""
    with ExitStack() as stack:
        writer = stack.enter_context(RawClient(scene.port))
        topic = f"awaited-{next(_NUMBERS)}"
        assert create_topic(writer, topic).error_code == 0
        readers = [stack.enter_context(RawClient(scene.port)) for _ in range(CONNECTIONS)]
        request = fetch_request(topic, 0, max_wait_ms=50_000)
        each = number // CONNECTIONS
        for reader in readers:
            frames = [reader.frame(ApiKey.FETCH, FETCH_VERSION, request) for _ in range(each)]
            reader.send_bytes(b"".join(frames))
        name = 'penstock_purgatory_size{kind="fetch"}'
        wait_until(lambda: metric(scene.process.console_url, name) >= number, "all wait")
        answer = produced(writer, topic, make_batch([b"woken"]))
        scene.note(topic, 0, answer.base_offset, b"woken")
        for reader in readers:
            for _ in range(each):
                found = reader.receive().responses[0].partitions[0]
                assert values_in(found.records) == [b"woken"]


def join_with_much(scene: Scene) -> None:
    """A request that is large, and answered by somebody later; then a small one on the same connection."""
    protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=bytes(100_000))
    request = join_group.JoinGroupRequest(
        group_id="large",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    with RawClient(scene.port) as client:
        coordinator = find_coordinator.FindCoordinatorRequest(key="large")
        ready = lambda: client.call(ApiKey.FIND_COORDINATOR, 3, coordinator).error_code == 0  # noqa: E731
        wait_until(ready, "groups are served")
        wait_until(
            lambda: client.call(ApiKey.JOIN_GROUP, 5, request).error_code == ErrorCode.MEMBER_ID_REQUIRED,
            "the group is asked to come again with an id",
        )
        assert client.call(ApiKey.FIND_COORDINATOR, 3, coordinator).error_code == 0


def test_a_part_of_each(scene: Scene) -> None:
    join_with_much(scene)
    create_at_once(scene, 500)
    ask_for_partitions(scene, "large-500", 500)
    ask_for_names(scene, NAMES_MAX // 5)
    scrape(scene, 5)
    wake_fetches(scene, 2000)
    unhurt(scene, Bounds(descriptors_after=6000, memory_after_bytes=96 * MEGABYTE))


@pytest.fixture(scope="module")
def strict() -> Bounds:
    # 10,000 partitions are some 80 MB and, where segments stay open, 30,000 descriptors.
    return replace(
        STRICT, memory_peak_bytes=256 * MEGABYTE, memory_after_bytes=160 * MEGABYTE, descriptors_after=50_000
    )


@pytest.mark.soak
def test_a_topic_of_10_000_partitions(scene: Scene, strict: Bounds) -> None:
    create_at_once(scene, 10_000)
    unhurt(scene, strict)


@pytest.mark.soak
def test_metadata_for_100_000_names(scene: Scene, strict: Bounds) -> None:
    for _ in range(3):
        ask_for_names(scene, NAMES_MAX)
    unhurt(scene, strict)


@pytest.mark.soak
def test_metadata_of_10_000_partitions(scene: Scene, strict: Bounds) -> None:
    create_at_once(scene, 10_000)
    ask_for_partitions(scene, "large-10000", 10_000)
    unhurt(scene, strict)


@pytest.mark.soak
def test_metrics_of_10_000_partitions(scene: Scene, strict: Bounds) -> None:
    create_at_once(scene, 10_000)
    scrape(scene, 20)
    unhurt(scene, strict)


@pytest.mark.soak
def test_waking_10_000_fetches(scene: Scene, strict: Bounds) -> None:
    for _ in range(3):
        wake_fetches(scene, 10_000)
    unhurt(scene, strict)
