"""A large request in portions is answered as it is whole, but for what it names twice."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.frontends.group_requests import machine, stable
from tests.unit.frontends.in_memory import Asked

from penstock.core.errors import ProtocolError
from penstock.core.limits import TURN_ITEMS_MAX
from penstock.core.session import Session
from penstock.frontends.kafka.apis import all_apis
from penstock.frontends.kafka.pace import Pace
from penstock.frontends.kafka.portions import check_size, in_portions
from penstock.frontends.kafka.registry import REGISTRY, Call
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import (
    describe_groups,
    find_coordinator,
    list_offsets,
    offset_fetch,
)

MANY = 250
NAMES = [f"topic-{number}" for number in range(MANY)]


def offsets_wanted(topics: list[str], partitions: int) -> list_offsets.ListOffsetsRequest:
    wanted = [
        list_offsets.ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)
    ]
    return list_offsets.ListOffsetsRequest(
        topics=[list_offsets.ListOffsetsTopic(name=name, partitions=list(wanted)) for name in topics]
    )


def fetch_of(groups: int, topics: int, partitions: int) -> offset_fetch.OffsetFetchRequest:
    def group(name: str) -> offset_fetch.OffsetFetchRequestGroup:
        wanted = [
            offset_fetch.OffsetFetchRequestTopics(name=topic, partition_indexes=list(range(partitions)))
            for topic in ("orders", *NAMES)[:topics]
        ]
        return offset_fetch.OffsetFetchRequestGroup(group_id=name, topics=wanted)

    return offset_fetch.OffsetFetchRequest(groups=[group(f"g{number}") for number in range(groups)])


REQUESTS: dict[str, tuple[ApiKey, int, Any]] = {
    "many topics": (ApiKey.LIST_OFFSETS, 6, offsets_wanted(NAMES, 1)),
    "many partitions": (ApiKey.LIST_OFFSETS, 6, offsets_wanted(["orders", "other"], MANY)),
    "some of each": (ApiKey.LIST_OFFSETS, 6, offsets_wanted(NAMES[:20], 30)),
    "none": (ApiKey.LIST_OFFSETS, 6, offsets_wanted([], 0)),
    "keys": (ApiKey.FIND_COORDINATOR, 4, find_coordinator.FindCoordinatorRequest(coordinator_keys=NAMES)),
    "described groups": (
        ApiKey.DESCRIBE_GROUPS,
        6,
        describe_groups.DescribeGroupsRequest(groups=["g", *NAMES]),
    ),
    "groups' offsets": (ApiKey.OFFSET_FETCH, 8, fetch_of(MANY, 1, 2)),
    "topics of a group": (ApiKey.OFFSET_FETCH, 8, fetch_of(2, MANY, 1)),
    "partitions of a topic of a group": (ApiKey.OFFSET_FETCH, 8, fetch_of(1, 2, MANY)),
}


async def ask_in_portions(
    asked: Asked, key: int, request: Any, version: int, pace: Pace | None = None
) -> tuple[Any, list[int]]:
    api = REGISTRY[key]
    assert api.portions

    async def in_thread(work: Callable[..., Any], *values: Any) -> Any:
        result = work(*values)
        portions.extend(result[1])
        return result

    call, turns, portions = Call(version, "tester", Session("PLAINTEXT", "127.0.0.1")), [0], []

    async def others() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    meanwhile = asyncio.create_task(others())
    sent = api.codec.encode_request(request, version)
    received, _ = api.codec.decode_request(memoryview(sent), 0, version)
    answer = await in_portions(api, asked.services, received, call, in_thread, pace or Pace())
    meanwhile.cancel()
    encoded = api.codec.encode_response(answer, version)
    return api.codec.decode_response(memoryview(encoded), 0, version)[0], [len(portions), turns[0]]


@pytest.mark.parametrize("name", REQUESTS)
async def test_portions_are_answered_as_the_whole(name: str) -> None:
    key, version, request = REQUESTS[name]
    async with machine().broker() as asked, machine().broker() as other:
        await stable(asked)
        await stable(other)
        whole = await asked.ask(key, request, version)
        answer, (portions, turns) = await ask_in_portions(other, key, request, version)
    for coordinator in (*getattr(whole, "coordinators", ()), *getattr(answer, "coordinators", ())):
        coordinator.port = 0  # each broker's own
    assert answer == whole
    assert name == "none" or portions > MANY // TURN_ITEMS_MAX
    assert turns >= portions


async def test_what_is_named_twice_in_a_large_request_is_carried_out_once() -> None:
    async with machine().broker() as asked:
        await stable(asked)
        request = describe_groups.DescribeGroupsRequest(groups=["g", *NAMES] * 3)
        answer, _ = await ask_in_portions(asked, ApiKey.DESCRIBE_GROUPS, request, 6)
        assert [group.group_id for group in answer.groups] == ["g", *NAMES]
        twice, _ = await ask_in_portions(asked, ApiKey.LIST_OFFSETS, offsets_wanted(NAMES * 3, 2), 6)
        assert [(topic.name, len(topic.partitions)) for topic in twice.topics] == [
            (name, 2) for name in NAMES
        ]


async def test_a_refusal_of_the_whole_is_the_answer() -> None:
    async with machine().broker() as asked:  # which coordinates no groups yet
        topics = [offset_fetch.OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in NAMES]
        request = offset_fetch.OffsetFetchRequest(group_id="g", topics=topics)
        answer, _ = await ask_in_portions(asked, ApiKey.OFFSET_FETCH, request, 7)
        assert answer == await asked.ask(ApiKey.OFFSET_FETCH, request, 7)
        assert answer.error_code


def test_what_changes_something_is_not_cut() -> None:
    """A portion may wait for the log, for followers or for the controller, and hold up others who wait for a place."""
    changing = {ApiKey.OFFSET_COMMIT, ApiKey.DELETE_RECORDS, ApiKey.LEAVE_GROUP, ApiKey.DELETE_GROUPS}
    cut_up = {api.key for api in all_apis() if api.portions}
    assert cut_up
    assert not cut_up & changing
    assert not any(REGISTRY[key].forwarded for key in cut_up)


def test_entries_of_all_lists_count() -> None:
    request = offsets_wanted(NAMES, 3)
    check_size(request, MANY * 4)
    with pytest.raises(ProtocolError, match="1000 entries: 999 are the most"):
        check_size(request, MANY * 4 - 1)
