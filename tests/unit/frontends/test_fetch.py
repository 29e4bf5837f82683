"""Fetch: what is Kafka's about reading, that is sessions, versions and where to go instead."""

from typing import Any

import pytest
from tests.integration.raw import make_batch
from tests.unit.frontends.connected import Connected
from tests.unit.frontends.in_memory import Asked, Machine
from tests.unit.partition_states import write_states

from penstock.coordination.nodes import PartitionState
from penstock.core.error_codes import ErrorCode
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.fetch import FetchPartition, FetchRequest, FetchTopic

VERSION = 12  # by name
BATCH = make_batch([b"x"])


def a_request(*partitions: int, offset: int = 0, **fields: Any) -> FetchRequest:
    wanted = [
        FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)
        for number in partitions
    ]
    settings = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, **fields}
    return FetchRequest(topics=[FetchTopic(topic="t", partitions=wanted)] if wanted else [], **settings)


def sizes(response: Any) -> list[tuple[int, int, int]]:
    """Of each partition: its number, error, and how many bytes."""
    return [
        (partition.partition_index, partition.error_code, len(partition.records or b""))
        for topic in response.responses
        for partition in topic.partitions
    ]


async def connected(asked: Asked) -> Connected:
    await asked.create("t", partitions=3)
    return Connected(asked)


async def test_a_session_is_told_what_changed_since() -> None:
    async with Machine().broker() as asked:
        client = await connected(asked)
        first = client.ask(ApiKey.FETCH, VERSION, a_request(0, 1, 2, session_epoch=0)).answer
        assert sizes(first) == [(0, 0, 0), (1, 0, 0), (2, 0, 0)]
        asked.append("t", bytearray(BATCH), 1)
        session = {"session_id": first.session_id}
        second = client.ask(ApiKey.FETCH, VERSION, a_request(session_epoch=1, **session)).answer
        assert sizes(second) == [(1, 0, len(BATCH))]
        third = client.ask(ApiKey.FETCH, VERSION, a_request(1, offset=1, session_epoch=2, **session)).answer
        assert (sizes(third), third.session_id) == ([], first.session_id)
        closed = client.ask(ApiKey.FETCH, VERSION, a_request(0, session_epoch=-1, **session)).answer
        assert (sizes(closed), closed.session_id) == ([(0, 0, 0)], 0)
        gone = client.ask(ApiKey.FETCH, VERSION, a_request(session_epoch=3, **session)).answer
        assert gone.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_of_a_partition_that_is_named_twice_the_last_counts() -> None:
    async with Machine().broker() as asked:
        client = await connected(asked)
        asked.append("t", bytearray(BATCH))
        request = a_request(0, 0)
        request.topics[0].partitions[0].fetch_offset = 99
        assert sizes(client.ask(ApiKey.FETCH, VERSION, request).answer) == [(0, 0, len(BATCH))]


async def test_one_that_waits_is_answered_when_there_is_enough_or_given_up() -> None:
    async with Machine().broker() as asked:
        client = await connected(asked)
        request = a_request(0, 1, max_wait_ms=1 << 30, min_bytes=2 * len(BATCH))
        waiting, gone = client.ask(ApiKey.FETCH, VERSION, request), client.ask(ApiKey.FETCH, VERSION, request)
        asked.append("t", bytearray(BATCH), 0)
        assert waiting.answer is None
        assert gone.abandoned is not None
        gone.abandoned()
        asked.append("t", bytearray(BATCH), 1)
        assert sizes(await waiting.filled()) == [(0, 0, len(BATCH)), (1, 0, len(BATCH))]
        assert gone.answer is None


async def test_an_isolation_level_that_there_is_not_refuses_each_partition() -> None:
    async with Machine().broker() as asked:
        client = await connected(asked)
        answer = client.ask(ApiKey.FETCH, VERSION, a_request(0, 2, isolation_level=2)).answer
        error = ErrorCode.UNKNOWN_SERVER_ERROR
        assert (answer.error_code, sizes(answer)) == (error, [(0, error, 0), (2, error, 0)])


@pytest.mark.parametrize(
    ("version", "error", "leader"),
    [
        (10, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
        (11, ErrorCode.FENCED_LEADER_EPOCH, -1),
        (15, ErrorCode.FENCED_LEADER_EPOCH, -1),
        (16, ErrorCode.FENCED_LEADER_EPOCH, 2),
    ],
)
async def test_what_another_broker_leads_is_read_and_hinted_at_by_version(
    version: int, error: ErrorCode, leader: int
) -> None:
    """Followers serve since 11; who leads is told since 16, with where to find it."""
    async with Machine().broker() as asked:
        client = await connected(asked)
        state = PartitionState((1, 2), (1, 2), leader=2, leader_epoch=7)
        await write_states(asked.broker.metadata, {("t", 0): state})
        await asked.broker.hosting.reconcile()
        topic_id = asked.services.image.topics["t"].id
        request = a_request(0)
        request.topics[0].partitions[0].current_leader_epoch = 3 if version > 10 else -1
        if version >= 13:
            request.topics[0].topic, request.topics[0].topic_id = "", topic_id
        (topic,) = (await client.ask(ApiKey.FETCH, version, request).filled()).responses
        (told,) = topic.partitions
        assert (told.error_code, told.current_leader.leader_id) == (error, leader)
