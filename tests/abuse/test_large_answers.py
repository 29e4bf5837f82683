"""Small requests with very large answers: whoever reads gets them whole, one after the other, whoever else asks."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest
from tests.abuse.scene import MEGABYTE, Bounds, Scene, unhurt
from tests.integration.raw import RawClient, wait_until

from penstock.core.error_codes import ErrorCode
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import describe_groups, find_coordinator, join_group, sync_group

TOLD_BYTES = 900_000
DESCRIBE_VERSION = 5
# Groups keep what their members told, and the files of fifty partitions open.
_BOUNDS = Bounds(memory_after_bytes=160 * MEGABYTE, descriptors_after=100)


def join(client: RawClient, group_id: str, member_id: str = "") -> join_group.JoinGroupResponse:
    protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=bytes(TOLD_BYTES))
    request = join_group.JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=300_000,
        rebalance_timeout_ms=300_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[protocol],
    )
    answer: join_group.JoinGroupResponse = client.call(ApiKey.JOIN_GROUP, 5, request)
    return answer


@contextmanager
def talkative_groups(scene: Scene, number: int) -> Iterator[bytes]:
    """Each with a member that told much of itself; the request that asks for all of them."""
    names = [f"talkative-{index}" for index in range(number)]
    with RawClient(scene.port) as client:
        for name in names:
            key = find_coordinator.FindCoordinatorRequest(key=name, key_type=0)
            wait_until(
                lambda key=key: client.call(ApiKey.FIND_COORDINATOR, 2, key).error_code == 0, "a coordinator"
            )
            joined = join(client, name)
            if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                joined = join(client, name, joined.member_id)
            assert joined.error_code == 0
            sync = sync_group.SyncGroupRequest(
                group_id=name, generation_id=joined.generation_id, member_id=joined.member_id
            )
            assert client.call(ApiKey.SYNC_GROUP, 3, sync).error_code == 0
        yield client.frame(
            ApiKey.DESCRIBE_GROUPS, DESCRIBE_VERSION, describe_groups.DescribeGroupsRequest(groups=names)
        )


def read_slowly(client: RawClient, size_bytes: int, rest: threading.Event) -> int:
    """So many bytes, some megabytes a second; fewer where the broker closes."""
    got = 0
    while got < size_bytes and not rest.wait(0.05) and (piece := client.socket.recv(MEGABYTE)):
        got += len(piece)
    return got


def ask_all_at_once(scene: Scene, groups: int, readers: int, idle: int) -> None:
    """Some do not read: they are closed. Those that do have all of it."""
    with ExitStack() as links:
        frame = links.enter_context(talkative_groups(scene, groups))
        rest = threading.Event()
        links.callback(rest.set)
        for _ in range(idle):
            links.enter_context(RawClient(scene.port, receive_buffer_bytes=4096)).send_bytes(frame)
        reading = [links.enter_context(RawClient(scene.port)) for _ in range(readers)]
        for client in reading:
            client.send_bytes(frame)
        got = [0] * readers
        threads = []
        for number, client in enumerate(reading):

            def read(number: int = number, client: RawClient = client) -> None:
                got[number] = read_slowly(client, groups * TOLD_BYTES, rest)

            threads.append(threading.Thread(target=read))
            threads[-1].start()
        for thread in threads:
            thread.join()
        assert all(size >= groups * TOLD_BYTES for size in got), got


def test_descriptions_of_large_groups_are_read_whole_by_all_who_read(scene: Scene) -> None:
    ask_all_at_once(scene, 60, 4, 2)
    unhurt(scene, replace(_BOUNDS, memory_peak_bytes=240 * MEGABYTE))


@pytest.mark.soak
def test_descriptions_of_as_many_large_groups_as_there_may_be(scene: Scene) -> None:
    ask_all_at_once(scene, 100, 6, 4)
    unhurt(scene, replace(_BOUNDS, memory_peak_bytes=400 * MEGABYTE))
