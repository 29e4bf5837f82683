"""What changes between two portions of a request: each group, resource and topic is told once, of one state."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.frontends.connected import Connected
from tests.unit.frontends.group_requests import active, machine, prepared
from tests.unit.frontends.in_memory import Asked
from tests.unit.frontends.test_portions import ask_in_portions

from penstock.core.error_codes import ErrorCode
from penstock.core.limits import GROUP_OFFSET_BYTES
from penstock.frontends.kafka import portions
from penstock.frontends.kafka.handlers import offset_fetch as handler
from penstock.frontends.kafka.pace import Pace
from penstock.services.coordinator.pending_reply import PendingReply
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import describe_configs, offset_commit, offset_fetch

PARTITIONS = 20
_TOPIC = 2


class Interrupted(Pace):
    """Something happens when others have their turn for the nth time."""

    def __init__(self, at: int, happens: Callable[[], None]) -> None:
        self._left = at
        self._happens = happens

    async def give_way(self) -> None:
        await super().give_way()
        self._left -= 1
        if self._left == 0:
            self._happens()


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portions, "TURN_ITEMS_MAX", 3)
    monkeypatch.setattr(handler, "TURN_ITEMS_MAX", 3)


async def committed(asked: Asked) -> None:
    await prepared(asked)
    await asked.create("big", partitions=PARTITIONS)
    await commit(asked, 1000)


async def commit(asked: Asked, base: int) -> None:
    partitions = [
        offset_commit.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=base + partition
        )
        for partition in range(PARTITIONS)
    ]
    topic = offset_commit.OffsetCommitRequestTopic(name="big", partitions=partitions)
    for group in ("g", "h"):
        request = offset_commit.OffsetCommitRequest(group_id=group, topics=[topic])
        answer = await asked.ask(ApiKey.OFFSET_COMMIT, request, 8)
        assert {partition.error_code for partition in answer.topics[0].partitions} == {0}


def wanted(asked: Asked, version: int) -> offset_fetch.OffsetFetchRequest:
    indexes = list(range(PARTITIONS))
    if version < 8:
        topics = [offset_fetch.OffsetFetchRequestTopic(name="big", partition_indexes=indexes)]
        return offset_fetch.OffsetFetchRequest(group_id="g", topics=topics)
    topic_id = asked.services.image.topics["big"].id if version >= 10 else bytes(16)
    many = [offset_fetch.OffsetFetchRequestTopics(name="big", topic_id=topic_id, partition_indexes=indexes)]
    return offset_fetch.OffsetFetchRequest(
        groups=[
            offset_fetch.OffsetFetchRequestGroup(group_id=group_id, topics=list(many))
            for group_id in ("g", "h")
        ]
    )


def told(answer: offset_fetch.OffsetFetchResponse, version: int) -> list[tuple[str, int, list[int]]]:
    """(group, error, offsets), as they were told."""
    groups: list[Any] = answer.groups if version >= 8 else [answer]
    found = []
    for group in groups:
        assert len(group.topics) <= 1, "a topic is told twice"
        parts = group.topics[0].partitions if group.topics else []
        errors = {part.error_code for part in parts} or {group.error_code}
        assert len(errors) == 1, "some are refused, others are not"
        assert len(parts) in (0, PARTITIONS)
        offsets = [part.committed_offset for part in parts]
        found.append((getattr(group, "group_id", "g"), errors.pop(), offsets))
    return found


def groups(version: int) -> list[str]:
    return ["g", "h"] if version >= 8 else ["g"]


@pytest.mark.parametrize("version", [1, 7, 8, 10])
@pytest.mark.parametrize("at", range(1, 12, 2))
async def test_a_coordinator_that_goes_is_not_seen_in_the_middle(version: int, at: int) -> None:
    async with machine().broker() as asked:
        await committed(asked)

        def leave() -> None:
            for shard in asked.services.coordinator.shards():
                shard.go_offline("somebody else coordinates", planned=True)

        pace = Interrupted(at, leave)
        answer, _ = await ask_in_portions(asked, ApiKey.OFFSET_FETCH, wanted(asked, version), version, pace)
        found = told(answer, version)
        assert [group for group, _, _ in found] == groups(version)
        all_of_it = [1000 + partition for partition in range(PARTITIONS)]
        assert all(error or offsets == all_of_it for _, error, offsets in found)


@pytest.mark.parametrize("version", [1, 7, 8, 10])
async def test_a_group_that_is_loaded_meanwhile_is_refused_or_told_as_a_whole(version: int) -> None:
    computer = machine()
    async with computer.broker() as asked:
        await committed(asked)
    async with computer.broker() as asked:  # which loads its groups now
        refused = 0
        while True:
            answer, _ = await ask_in_portions(asked, ApiKey.OFFSET_FETCH, wanted(asked, version), version)
            found = told(answer, version)
            assert [group for group, _, _ in found] == groups(version)
            for _, error, offsets in found:
                refused += error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                assert error or offsets == [1000 + partition for partition in range(PARTITIONS)]
            if not any(error for _, error, _ in found):
                break
            await asyncio.sleep(0)
        assert refused
        await active(asked)


async def test_offsets_of_a_group_are_all_from_before_a_commit_or_all_from_after() -> None:
    async with machine().broker() as asked:
        await committed(asked)
        tables = [shard.state.offsets for shard in asked.services.coordinator.shards()]

        def commit_again() -> None:
            for table in tables:
                for offsets in table.values():
                    for topic, partition, value in list(offsets.all()):
                        offsets.set(topic, partition, replace(value, offset=value.offset + 1000))

        pace = Interrupted(3, commit_again)
        answer, _ = await ask_in_portions(asked, ApiKey.OFFSET_FETCH, wanted(asked, 8), 8, pace)
        for _, _, offsets in told(answer, 8):
            assert {offset - partition for partition, offset in enumerate(offsets)} in ({1000}, {2000})


async def test_a_topic_that_is_deleted_meanwhile_is_told_once() -> None:
    async with machine().broker() as asked:
        await committed(asked)
        image = asked.services.image
        request = wanted(asked, 10)
        gone = Interrupted(3, lambda: image.topics_by_id.pop(image.topics["big"].id) and None)
        answer, _ = await ask_in_portions(asked, ApiKey.OFFSET_FETCH, request, 10, gone)
        assert [len(offsets) for _, _, offsets in told(answer, 10)] == [PARTITIONS] * 2


async def test_a_resource_is_described_once_however_many_keys_are_asked_for() -> None:
    async with machine().broker() as asked:
        await committed(asked)
        image = asked.services.image
        keys = ["cleanup.policy", *(f"unknown.{number}" for number in range(10)), "retention.ms"]
        resource = describe_configs.DescribeConfigsResource(
            resource_type=_TOPIC, resource_name="big", configuration_keys=keys
        )
        request = describe_configs.DescribeConfigsRequest(resources=[resource])
        gone = Interrupted(1, lambda: image.topics.pop("big") and None)
        answer, _ = await ask_in_portions(asked, ApiKey.DESCRIBE_CONFIGS, request, 4, gone)
        assert [result.resource_name for result in answer.results] == ["big"]
        assert [config.name for config in answer.results[0].configs] == ["cleanup.policy", "retention.ms"]


def everything(version: int) -> offset_fetch.OffsetFetchRequest:
    if version < 8:
        return offset_fetch.OffsetFetchRequest(group_id="g", topics=None)
    return offset_fetch.OffsetFetchRequest(
        groups=[
            offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=None)
            for group in ("g", "nobody", "h")
        ]
    )


@pytest.mark.parametrize("version", [2, 7, 8, 9, 10])
async def test_all_that_groups_committed_is_told_in_portions_as_in_one_piece(version: int) -> None:
    async with machine().broker() as asked:
        await committed(asked)
        whole = await asked.ask(ApiKey.OFFSET_FETCH, everything(version), version)
        answer, (portions_taken, _) = await ask_in_portions(
            asked, ApiKey.OFFSET_FETCH, everything(version), version
        )
        assert answer == whole
        assert portions_taken > PARTITIONS // 3
        assert PARTITIONS in [len(offsets) for _, _, offsets in told(answer, version)]


async def test_a_small_request_for_much_is_answered_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    async with machine().broker() as asked:
        await committed(asked)
        client, whole = Connected(asked), await asked.ask(ApiKey.OFFSET_FETCH, everything(9), 9)
        at_once = client.ask(ApiKey.OFFSET_FETCH, 9, everything(9)).answer
        assert at_once is not None
        monkeypatch.setattr(handler, "LARGE_ANSWER_ENTRIES", PARTITIONS)
        reply = client.ask(ApiKey.OFFSET_FETCH, 9, everything(9))
        assert reply.answer is None
        assert await reply.filled() == whole


async def test_all_that_a_group_committed_is_told_by_the_topic_that_it_was_committed_to() -> None:
    """And not by one that took its name before the first portion was answered."""

    class Slow(Pace):
        async def wait(self, later: PendingReply) -> Any:
            answer = await super().wait(later)
            image.topics["big"] = replace(image.topics["big"], id=b"n" * 16)
            return answer

    async with machine().broker() as asked:
        await committed(asked)
        image = asked.services.image
        before = image.topics["big"].id
        answer, _ = await ask_in_portions(asked, ApiKey.OFFSET_FETCH, everything(10), 10, Slow())
        assert {topic.topic_id for group in answer.groups for topic in group.topics} == {before}


async def test_a_group_is_told_by_ids_as_they_were_when_it_was_read() -> None:
    """A topic is made again between two groups of one request: each is told of its own."""
    async with machine().broker() as asked:
        await committed(asked)
        image, request = asked.services.image, wanted(asked, 10)
        before = image.topics["big"]

        def make_again() -> None:
            image.topics["big"] = replace(before, id=b"n" * 16)
            image.topics_by_id[b"n" * 16] = image.topics["big"]
            del image.topics_by_id[before.id]

        pace = Interrupted(1, make_again)
        answer, _ = await ask_in_portions(asked, ApiKey.OFFSET_FETCH, request, 10, pace)
        assert [error for _, error, _ in told(answer, 10)] == [0, ErrorCode.UNKNOWN_TOPIC_ID]


async def test_what_was_read_for_a_request_that_waits_is_counted() -> None:
    class Counted(Pace):
        held_bytes = 0

        def hold(self, size_bytes: int) -> None:
            self.held_bytes += size_bytes

    async with machine().broker() as asked:
        await committed(asked)
        pace = Counted()
        await ask_in_portions(asked, ApiKey.OFFSET_FETCH, everything(9), 9, pace)
        assert pace.held_bytes == 2 * PARTITIONS * GROUP_OFFSET_BYTES


async def test_groups_named_twice_count_once() -> None:
    async with machine().broker() as asked:
        await committed(asked)
        request = wanted(asked, 9)
        again = wanted(asked, 9).groups
        again[0].member_id, again[1].topics = "somebody", None
        request.groups += again
        answer, _ = await ask_in_portions(asked, ApiKey.OFFSET_FETCH, request, 9)
        assert [(group, len(offsets)) for group, _, offsets in told(answer, 9)] == [
            ("g", PARTITIONS),
            ("h", PARTITIONS),
        ]
