"""OffsetCommit the short way and the long way, while topics are deleted, made again and grow: one outcome.

One broker, two groups: what one commits the short way, the other commits the long way.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.frontends.group_requests import machine, prepared
from tests.unit.frontends.in_memory import Asked

from penstock.coordination.nodes import PartitionState
from penstock.frontends.kafka.hot_commits import CommitPath
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import offset_commit
from penstock.wire.kafka.headers import decode_response_header

TOPIC = "orders"
SHORT, LONG = "s", "l"
STATE = PartitionState(replicas=(1,), isr=(1,), leader=1)

commits = st.tuples(
    st.just("commit"),
    st.integers(0, 2),  # partition
    st.sampled_from([8, 9, 10]),
    st.integers(0, 2),  # which of the topics of that name, the latest first
)
changes = st.sampled_from([("delete",), ("create",), ("grow",), ("unrelated",)])
# Mostly commits of the same kind: only what was sent before goes the shortest way.
steps = st.lists(st.one_of(commits, commits, commits, changes), max_size=40)


class _Waiting:
    """A connection, as far as a commit needs it."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def defer(self, abandoned: Callable[[], None] | None = None, held_bytes: int = 0) -> "_Waiting":
        return self

    def send(self, parts: list[Any]) -> None:
        self.answer.set_result(b"".join(parts))

    def run(self, work: object) -> None:
        raise NotImplementedError


class _Both:
    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._short = CommitPath(asked.services)
        self._ids = [asked.services.image.topics[TOPIC].id]
        self._offset = 0

    async def take(self, step: tuple[Any, ...]) -> None:
        metadata, exists = self._asked.broker.metadata, TOPIC in self._asked.services.image.topics
        match step:
            case ("commit", partition, version, back):
                await self._commit(partition, version, self._ids[max(-len(self._ids), -1 - back)])
            case ("delete",) if exists:
                await metadata.delete_topic(TOPIC)
            case ("create",) if not exists:
                await self._asked.create(TOPIC, partitions=2)
                self._ids.append(self._asked.services.image.topics[TOPIC].id)
            case ("grow",) if exists and len(self._asked.services.image.topics[TOPIC].partitions) == 2:
                await metadata.create_partitions(TOPIC, [STATE])
            case ("unrelated",):
                await metadata.alter_broker_configs(1, lambda configs: configs)

    async def _commit(self, partition: int, version: int, topic_id: bytes) -> None:
        self._offset += 1
        codes = [
            await self._commit_short(self._request(SHORT, partition, version, topic_id), version),
            await self._commit_long(self._request(LONG, partition, version, topic_id), version),
        ]
        assert codes[0] == codes[1], "short way, long way"
        assert self._offsets(SHORT) == self._offsets(LONG), "short way, long way"

    def _request(
        self, group: str, partition: int, version: int, topic_id: bytes
    ) -> offset_commit.OffsetCommitRequest:
        wanted = offset_commit.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=self._offset, committed_metadata=""
        )
        named: Any = {"topic_id": topic_id} if version >= 10 else {"name": TOPIC}
        topic = offset_commit.OffsetCommitRequestTopic(partitions=[wanted], **named)
        return offset_commit.OffsetCommitRequest(group_id=group, topics=[topic])

    async def _commit_short(self, request: offset_commit.OffsetCommitRequest, version: int) -> int:
        frame = memoryview(offset_commit.encode_request(request, version))
        waiting = _Waiting()
        if self._short.commit(waiting, frame, 0, version, 7) is None:
            return await self._commit_long(request, version)
        answer = await waiting.answer
        _, position = decode_response_header(answer, 4, 1)
        decoded, _ = offset_commit.decode_response(answer, position, version)
        return int(decoded.topics[0].partitions[0].error_code)

    async def _commit_long(self, request: offset_commit.OffsetCommitRequest, version: int) -> int:
        answer = await self._asked.ask(ApiKey.OFFSET_COMMIT, request, version)
        return int(answer.topics[0].partitions[0].error_code)

    def _offsets(self, group: str) -> dict[tuple[str, int], int]:
        state = self._asked.services.coordinator.shard_of(group).state
        return {(topic, p): value.offset for topic, p, value in state.offsets_of(group).all()}


async def _story(taken: list[tuple[Any, ...]]) -> None:
    async with machine().broker() as asked:
        await prepared(asked)
        both = _Both(asked)
        for step in taken:
            await both.take(step)


@settings(max_examples=40)
@given(steps)
def test_the_short_way_is_the_long_way_whatever_becomes_of_topics(taken: list[tuple[Any, ...]]) -> None:
    asyncio.run(_story(taken))
