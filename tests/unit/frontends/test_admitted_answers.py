"""Large answers are encoded when there is room for them, whatever API they answer, and keep no place meanwhile."""

import asyncio
from typing import Any

import pytest
from tests.unit.frontends.connected import Connected
from tests.unit.frontends.group_requests import commit, machine, prepared
from tests.unit.frontends.in_memory import Asked, Machine
from tests.unit.waiting import until

from penstock.core.limits import PORTIONED_REQUESTS_MAX
from penstock.frontends.kafka import large_requests
from penstock.frontends.kafka.handlers import list_groups as list_handler
from penstock.frontends.kafka.handlers import metadata as metadata_handler
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import list_groups, metadata

EXTRA = 3


class Crowded(Connected):
    """A connection for which there is no room yet."""

    def __init__(self, asked: Asked) -> None:
        super().__init__(asked)
        self.wanted: list[int] = []
        self._rooms: list[asyncio.Future[None]] = []

    def room_for(self, size_bytes: int) -> Any:
        self.wanted.append(size_bytes)
        self._rooms.append(asyncio.get_running_loop().create_future())
        return self._rooms[-1]

    def make_room(self) -> None:
        for room in self._rooms:
            room.set_result(None)


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is large, in small."""
    monkeypatch.setattr(large_requests, "ANSWER_ADMITTED_BYTES_MIN", 200)
    monkeypatch.setattr(list_handler, "LARGE_ANSWER_ENTRIES", 2)
    monkeypatch.setattr(metadata_handler, "LARGE_ANSWER_ENTRIES", 2)
    monkeypatch.setattr(metadata_handler, "TURN_ITEMS_MAX", 2)


async def waits_for_room(client: Crowded, key: int, version: int, request: Any) -> Any:
    """More than there are places ask: all of them wait for nothing but room."""
    asked = PORTIONED_REQUESTS_MAX + EXTRA
    replies = [client.ask(key, version, request) for _ in range(asked)]
    await until(lambda: len(client.wanted) == asked)
    assert not any(reply.answer for reply in replies)
    client.make_room()
    return [await reply.filled() for reply in replies][-1]


async def test_groups_are_listed_when_there_is_room(little: None) -> None:
    async with machine().broker() as asked:
        await prepared(asked)
        names = [f"group-{number}-" + "x" * 100 for number in range(5)]
        for name in names:
            await commit(asked, group_id=name)
        client = Crowded(asked)
        answer = await waits_for_room(client, ApiKey.LIST_GROUPS, 4, list_groups.ListGroupsRequest())
        assert {group.group_id for group in answer.groups} == set(names)
        assert min(client.wanted) > 500


async def test_all_topics_are_told_when_there_is_room(little: None) -> None:
    async with Machine().broker() as asked:
        names = [f"topic-{number}-" + "x" * 100 for number in range(5)]
        for name in names:
            await asked.create(name)
        client = Crowded(asked)
        answer = await waits_for_room(client, ApiKey.METADATA, 9, metadata.MetadataRequest(topics=None))
        assert {topic.name for topic in answer.topics} == set(names)
        assert min(client.wanted) > 500


async def test_what_metadata_keeps_encoded_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_handler, "METADATA_ENCODED_BYTES_MAX", 2000)
    async with Machine().broker() as asked:
        await asked.create("t", partitions=20)
        kept = metadata_handler._encoded_topics(asked.services.image, asked.listener)
        for version in range(1, 14):
            answer = await asked.ask(ApiKey.METADATA, metadata.MetadataRequest(topics=None), version)
            assert [len(topic.partitions) for topic in answer.topics] == [20]
            sizes = [len(encoded) for _, encoded in kept._known.values()]
            assert sum(sizes) <= 2000
            assert sizes, "the last one is kept"
