"""Names and notes of any length that a client may choose: they cost their sender, and nobody else."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
from tests.abuse.scene import MEGABYTE, STRICT, Attacked, Bounds, Scene, unhurt
from tests.integration.raw import RawClient, wait_until

from penstock.testing import BrokerProcess, broker
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import find_coordinator, heartbeat, join_group

LONG = "g" * 32_767


@pytest.fixture(scope="module")
def process() -> Iterator[BrokerProcess]:
    """One that has its groups' topic."""
    with broker() as running, RawClient(running.port) as client:
        request = find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        wait_until(
            lambda: not client.call(ApiKey.FIND_COORDINATOR, 4, request).coordinators[0].error_code,
            "there is a coordinator",
        )
        yield running


def long_group_ids(scene: Attacked, clients: int, requests: int) -> None:
    def ask(client: RawClient) -> None:
        frame = client.frame(ApiKey.HEARTBEAT, 3, heartbeat.HeartbeatRequest(group_id=LONG, member_id=LONG))
        for _ in range(requests):
            client.send_bytes(frame)
            client.socket.recv(1000)

    with ExitStack() as stack:
        links = [stack.enter_context(RawClient(scene.port)) for _ in range(clients)]
        threads = [threading.Thread(target=ask, args=(link,)) for link in links]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def join(group_id: str, metadata: bytes) -> Any:
    protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=metadata)
    return join_group.JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[protocol],
    )


def large_members(scene: Attacked, groups: int, members: int) -> None:
    """Each a member at once (version 3 asks for no id first), with a megabyte of metadata."""
    with ExitStack() as stack:
        for number in range(groups):
            link = stack.enter_context(RawClient(scene.port))
            for _ in range(members):
                link.send_bytes(link.frame(ApiKey.JOIN_GROUP, 3, join(f"g{number}", bytes(MEGABYTE))))
        scene.wait_for_rounds(20)


def test_long_group_ids(scene: Scene) -> None:
    long_group_ids(scene, 10, 30)
    unhurt(scene, Bounds())


@pytest.mark.soak
def test_twenty_clients_with_the_longest_group_ids(scene: Scene) -> None:
    long_group_ids(scene, 20, 500)
    unhurt(scene, STRICT)


def test_members_that_tell_a_megabyte_each(scene: Scene) -> None:
    large_members(scene, 2, 50)
    unhurt(scene, Bounds(memory_peak_bytes=48 * MEGABYTE))


@pytest.mark.soak
def test_many_groups_of_such_members(scene: Scene) -> None:
    large_members(scene, 100, 200)
    unhurt(
        scene,
        replace(STRICT, memory_peak_bytes=192 * MEGABYTE, memory_after_bytes=192 * MEGABYTE),
    )
