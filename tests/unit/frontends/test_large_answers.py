"""Little that is asked, and much to tell: others have their turn meanwhile, and what is large is told once."""

import asyncio
import threading
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.frontends.connected import Connected
from tests.unit.frontends.group_requests import join, machine, prepared
from tests.unit.frontends.in_memory import Asked, Machine

from penstock.core.error_codes import ErrorCode
from penstock.core.limits import LARGE_ANSWER_ENTRIES, TURN_ITEMS_MAX
from penstock.core.session import Session
from penstock.frontends.kafka.answer_size import answer_size
from penstock.frontends.kafka.dispatcher import KafkaDispatcher
from penstock.frontends.kafka.handlers import describe_producers as describe_handler
from penstock.frontends.kafka.handlers import fetch_snapshot
from penstock.frontends.kafka.registry import Api
from penstock.storage.producer_snapshot import decode_producers
from penstock.storage.producers import NO_MORE, AppendedBatch, ProducerCopy
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import describe_groups, describe_producers, describe_topic_partitions
from penstock.wire.kafka.generated import fetch_snapshot as snapshot

MANY = 10 * TURN_ITEMS_MAX


async def turns_during(work: Awaitable[Any]) -> tuple[Any, int]:
    """What it gives, and how often others had their turn."""
    task, turns = asyncio.ensure_future(work), 0
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    return task.result(), turns


async def with_producers(asked: Asked, number: int) -> None:
    await asked.create("t")
    remember_producers(asked, number)


def remember_producers(asked: Asked, number: int, index: int = 0) -> None:
    wrote = AppendedBatch(0, 0, 0, 0, 1)
    asked.partition("t", index).log.producers.add(
        ProducerCopy(producer_id, 0, 1, (wrote,)) for producer_id in range(number)
    )


@pytest.mark.parametrize("number", [3, MANY])
async def test_producers_are_described_in_turns(number: int) -> None:
    async with Machine().broker() as asked:
        await with_producers(asked, number)
        topic = describe_producers.TopicRequest(name="t", partition_indexes=[0, 0])
        request = describe_producers.DescribeProducersRequest(topics=[topic])
        answer, turns = await turns_during(asked.ask(ApiKey.DESCRIBE_PRODUCERS, request, 0))
    told = [len(partition.active_producers) for partition in answer.topics[0].partitions]
    assert told == [number]
    assert turns >= number / TURN_ITEMS_MAX


async def test_producers_of_many_partitions_are_described_as_far_as_they_are_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(describe_handler, "PRODUCERS_DESCRIBED_MAX", 7)
    monkeypatch.setattr(describe_handler, "LARGE_ANSWER_ENTRIES", 2)
    async with Machine().broker() as asked:
        await asked.create("t", partitions=4)
        for index in range(4):
            remember_producers(asked, 5 if index == 0 else 2, index)
        topic = describe_producers.TopicRequest(name="t", partition_indexes=[0, 1, 2, 3])
        request = describe_producers.DescribeProducersRequest(topics=[topic])
        client = Connected(asked)
        answer = await client.ask(ApiKey.DESCRIBE_PRODUCERS, 0, request).filled()
        assert client.runs == 1
    told = [(each.error_code, len(each.active_producers)) for each in answer.topics[0].partitions]
    refused = (ErrorCode.POLICY_VIOLATION, 0)
    assert told == [(0, 5), (0, 2), refused, refused]


async def test_partitions_are_described_in_turns() -> None:
    """A request of 29 bytes asks for 2,000 of them."""
    async with Machine().broker() as asked:
        await asked.create("t", partitions=MANY)
        await asked.create("u", partitions=3)
        request = describe_topic_partitions.DescribeTopicPartitionsRequest(response_partition_limit=MANY + 1)
        answer, turns = await turns_during(asked.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, request, 0))
    told = [(topic.name, len(topic.partitions)) for topic in answer.topics]
    assert told == [("t", MANY), ("u", 1)]
    assert (answer.next_cursor.topic_name, answer.next_cursor.partition_index) == ("u", 1)
    assert turns >= MANY / TURN_ITEMS_MAX


async def test_members_are_described_in_turns() -> None:
    async with machine().broker() as asked:
        await prepared(asked)
        joining = [asyncio.create_task(join(asked, 3)) for _ in range(MANY)]
        request = describe_groups.DescribeGroupsRequest(groups=["g", "other", "g", "other"])
        members = 0
        while members < MANY:
            answer, turns = await turns_during(asked.ask(ApiKey.DESCRIBE_GROUPS, request, 6))
            members = len(answer.groups[0].members)
        assert [group.group_id for group in answer.groups] == ["g", "other"]
        assert turns >= MANY / TURN_ITEMS_MAX
        for task in joining:
            task.cancel()
        await asyncio.wait(joining)


def test_entries_are_counted_as_far_as_needed() -> None:
    members = [describe_groups.DescribedGroupMember() for _ in range(5)]
    groups = [describe_groups.DescribedGroup(members=members) for _ in range(3)]
    answer = describe_groups.DescribeGroupsResponse(groups=groups)
    assert answer_size(answer).entries == 18
    assert answer_size(answer, 3).entries > 3


@pytest.mark.parametrize("number", [1, 2 * LARGE_ANSWER_ENTRIES])
async def test_long_answers_are_encoded_in_a_thread(number: int) -> None:
    wait: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    threads: list[str] = []

    class Codec:
        FLEXIBLE_SINCE = 99

        def encode_response(self, response: Any, version: int) -> bytes:
            threads.append(threading.current_thread().name)
            return bytes(len(response.groups))

    async with Machine().broker() as asked:
        dispatcher = KafkaDispatcher(asked.services, SimpleNamespace(write_held=None), asked.broker.in_thread)  # type: ignore[arg-type]
        api = Api(ApiKey.DESCRIBE_GROUPS, 0, 0, Codec(), None)  # type: ignore[arg-type]
        groups = [describe_groups.DescribedGroup() for _ in range(number)]
        wait.set_result(describe_groups.DescribeGroupsResponse(groups=groups))
        asker = SimpleNamespace(peer="here", has_left=lambda: False, session=Session("PLAINTEXT"))
        (answer,) = await dispatcher._large.awaited(asker, api, 7, 0, wait)
    assert answer == (number + 4).to_bytes(4, "big") + (7).to_bytes(4, "big") + bytes(number)
    assert (threads == [threading.current_thread().name]) is (number == 1)


def snapshot_of(*positions: int, max_bytes: int = 1 << 30) -> snapshot.FetchSnapshotRequest:
    wanted = [
        snapshot.RequestPartitionSnapshot(
            current_leader_epoch=-1, snapshot_id=snapshot.SnapshotId(end_offset=100), position=position
        )
        for position in positions
    ]
    topic = snapshot.RequestTopicSnapshot(name="t", partitions=wanted)
    return snapshot.FetchSnapshotRequest(replica_id=2, max_bytes=max_bytes, topics=[topic])


async def test_only_replicas_are_told_what_producers_did() -> None:
    async with Machine().broker() as asked:
        await with_producers(asked, 3)
        answer = await asked.ask(ApiKey.FETCH_SNAPSHOT, snapshot_of(0), 0, broker=2)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_replicas_are_told_once_and_no_more_than_they_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch_snapshot, "check_replica", lambda *given: None)
    async with Machine().broker() as asked:
        await with_producers(asked, MANY)
        answer = await asked.ask(ApiKey.FETCH_SNAPSHOT, snapshot_of(*range(-50, 0), max_bytes=2000), 0)
        (told,) = answer.topics[0].partitions
        assert len(told.unaligned_records) <= 2000
        known = {copy.producer_id for copy in decode_producers(told.unaligned_records)}
        assert known
        while told.position != NO_MORE:
            answer = await asked.ask(ApiKey.FETCH_SNAPSHOT, snapshot_of(told.position), 0)
            (told,) = answer.topics[0].partitions
            known.update(producer.producer_id for producer in decode_producers(told.unaligned_records))
        assert known == set(range(MANY))
