"""Endless group ids: past what a broker has room for they are refused, and the groups that are there go on.

The rules one by one, with little room, are in `tests/unit/frontends/test_group_room.py`.
"""

import socket
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count, islice

import pytest
from tests.abuse.scene import MEGABYTE, Bounds, Scene, unhurt
from tests.integration.raw import RawClient, create_topic, wait_until

from penstock.core.error_codes import ErrorCode as E
from penstock.core.limits import GROUP_BYTES, GROUP_OFFSET_BYTES, GROUPS_BYTES_MAX
from penstock.testing import BrokerProcess, broker
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import delete_groups, join_group, list_groups, offset_commit, offset_fetch
from penstock.wire.kafka.generated.find_coordinator import FindCoordinatorRequest

TOPIC = "read"
LONG = 32_000
_AT_ONCE = 50
# How late others are is the disk's: the commits go to fifty partitions, each of which is synced, and stays open.
_BOUNDS = Bounds(
    p99_ms=15_000,
    stall_s=0.2,  # the answer that lists 75,000 groups is encoded in one piece
    memory_peak_bytes=256 * MEGABYTE,
    memory_after_bytes=256 * MEGABYTE,
    descriptors_after=100,
)


@pytest.fixture
def process() -> Iterator[BrokerProcess]:
    with broker() as running, RawClient(running.port) as client:
        assert create_topic(client, TOPIC).error_code == 0
        asked = FindCoordinatorRequest(key="g")
        wait_until(
            lambda: client.call(ApiKey.FIND_COORDINATOR, 3, asked).error_code == 0, "groups are served"
        )
        yield running


def commit(group_id: str, offset: int) -> offset_commit.OffsetCommitRequest:
    partition = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = offset_commit.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
    return offset_commit.OffsetCommitRequest(group_id=group_id, topics=[topic])


def commit_all(client: RawClient, group_ids: Iterable[str], offset: int = 1) -> Counter[int]:
    codes: Counter[int] = Counter()
    left = iter(group_ids)
    while some := list(islice(left, _AT_ONCE)):
        client.send_bytes(
            b"".join(client.frame(ApiKey.OFFSET_COMMIT, 8, commit(group_id, offset)) for group_id in some)
        )
        codes.update(client.receive().topics[0].partitions[0].error_code for _ in some)
    return codes


def committed(client: RawClient, group_id: str) -> int:
    topic = offset_fetch.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
    request = offset_fetch.OffsetFetchRequest(group_id=group_id, topics=[topic])
    answer = client.call(ApiKey.OFFSET_FETCH, 7, request)
    return -1 if answer.error_code else int(answer.topics[0].partitions[0].committed_offset)


def join(group_id: str) -> join_group.JoinGroupRequest:
    protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=b"")
    return join_group.JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[protocol],
    )


def fill_with_groups(scene: Scene, name_chars: int) -> None:
    """Twice as many as there is room for, while a group that was there commits."""
    number = 2 * GROUPS_BYTES_MAX // (GROUP_BYTES + GROUP_OFFSET_BYTES + name_chars)
    with RawClient(scene.port) as hostile, RawClient(scene.port) as good:
        assert commit_all(good, ["good"]) == {E.NONE: 1}
        codes = commit_all(hostile, (f"{n:0{name_chars}d}" for n in range(number)))
        assert set(codes) == {E.NONE, E.INVALID_COMMIT_OFFSET_SIZE}
        assert codes[E.NONE] <= number // 2 + 1
        refused = hostile.call(ApiKey.JOIN_GROUP, 5, join("another"))
        assert refused.error_code == E.GROUP_MAX_SIZE_REACHED
        assert commit_all(good, ["good"], offset=2) == {E.NONE: 1}
        assert committed(good, "good") == 2
        everything = list_groups.ListGroupsRequest()
        for client in (hostile, good):
            client.send_bytes(client.frame(ApiKey.LIST_GROUPS, 4, everything))
        with ThreadPoolExecutor() as reading:  # the answer is as large as all the names
            sizes = list(reading.map(size_of_answer, (hostile, good)))
        assert min(sizes) > codes[E.NONE] * name_chars


def size_of_answer(client: RawClient) -> int:
    """Read, and not kept: it may be more than a client of ours takes."""
    size = got = int.from_bytes(client.socket.recv(4, socket.MSG_WAITALL), "big")
    while got:
        piece = client.socket.recv(min(got, MEGABYTE))
        assert piece, f"closed with {got} of {size} bytes to go"
        got -= len(piece)
    return size


def still_there_and_served_again(process: BrokerProcess, name_chars: int) -> None:
    """After the start that `unhurt` makes: loaded, still full, and with room as soon as groups are deleted."""
    first = f"{0:0{name_chars}d}"
    with RawClient(process.port) as client:
        wait_until(lambda: committed(client, "good") == 2, "what was committed is there")
        wait_until(lambda: committed(client, first) == 1, "also what a hostile one committed")
        # Until all are loaded there is room.
        late = (f"late-{n}" for n in count())
        wait_until(
            lambda: commit_all(client, [next(late)]) == {E.INVALID_COMMIT_OFFSET_SIZE: 1}, "it is full again"
        )
        gone = [f"{n:0{name_chars}d}" for n in range(20 + int(next(late).removeprefix("late-")))]
        request = delete_groups.DeleteGroupsRequest(groups_names=gone)
        assert not any(result.error_code for result in client.call(ApiKey.DELETE_GROUPS, 2, request).results)
        assert commit_all(client, ["later"]) == {E.NONE: 1}


@pytest.mark.soak
def test_groups_with_long_names(scene: Scene) -> None:
    fill_with_groups(scene, LONG)
    unhurt(
        scene, replace(_BOUNDS, memory_peak_bytes=448 * MEGABYTE)
    )  # an answer is there twice when it is made
    still_there_and_served_again(scene.process, LONG)


@pytest.mark.soak
def test_as_many_groups_as_there_is_room_for(scene: Scene) -> None:
    fill_with_groups(scene, 10)
    unhurt(scene, _BOUNDS)
    still_there_and_served_again(scene.process, 10)
