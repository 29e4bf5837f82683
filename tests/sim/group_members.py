"""Consumers for the simulation: what they do, and what they were told, checked as they are told it (invariant 6)."""

import asyncio
from contextlib import suppress
from random import Random
from typing import Any, Protocol

from penstock.core.error_codes import ErrorCode
from penstock.testing.sim_broker import PORT
from penstock.testing.sim_client import SimClient
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import (
    create_topics,
    delete_topics,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    metadata,
    offset_commit,
    offset_fetch,
    sync_group,
)

TOPIC, GROUP = "orders", "workers"
PARTITIONS = 4
SESSION_MS, REBALANCE_MS = 1500, 2000
LONGEST_MS = 2**63 - 1
Place = tuple[bytes, int]  # topic id (none: by name) and partition
NETWORK_TROUBLE = (OSError, TimeoutError)
# What a member may be told at any time; it joins again, or asks again.
EXPECTED = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_SERVER_ERROR,  # an error was planted
    ErrorCode.KAFKA_STORAGE_ERROR,
}


class Client(Protocol):
    async def call(self, api: ApiKey, request: Any, version: int | None = None) -> Any: ...


class Violation(AssertionError):  # noqa: N818 - what it is, not what went wrong in the code
    """Invariant 6 does not hold."""


class History:
    """What the members were told, checked as they are told it."""

    def __init__(self, *, by_id: bool = False) -> None:
        """`by_id`: topics are named by their ids, so that one may be deleted and made again without confusion."""
        self.by_id = by_id
        self.owners: dict[tuple[int, int], str] = {}  # (generation, partition) -> member id
        self.generation = 0  # the latest that anybody got a part of
        self.acknowledged: dict[Place, int] = {}  # highest offset that was committed, or shown to be
        self.processed: dict[Place, int] = {}  # how far anybody got
        self.commits = 0
        self.refused = 0
        self.calm = False  # members neither stall nor leave any more

    def owns(self, generation: int, partition: int, member_id: str) -> None:
        before = self.owners.setdefault((generation, partition), member_id)
        if before != member_id:
            raise Violation(f"partition {partition} has two owners in generation {generation}")
        self.generation = max(self.generation, generation)

    def committed(self, place: Place, offset: int) -> None:
        self.acknowledged[place] = max(self.acknowledged.get(place, 0), offset)
        self.commits += 1

    def fetched(self, place: Place, offset: int, acknowledged_before: int) -> None:
        if offset < acknowledged_before:
            raise Violation(f"partition {place} went back from {acknowledged_before} to {offset}")
        if offset > self.processed.get(place, 0):
            raise Violation(f"partition {place}: {offset} was committed, nobody got that far")
        self.acknowledged[place] = max(self.acknowledged.get(place, 0), offset)


class Outdated(Exception):  # noqa: N818 - not an error: the member has to join again
    def __init__(self, code: int) -> None:
        super().__init__(ErrorCode(code).name)
        self.code = ErrorCode(code)
        assert self.code in EXPECTED, self.code


def check(code: int) -> None:
    if code != ErrorCode.NONE:
        raise Outdated(code)


class Member:
    """One consumer: eager, so it gives up everything before it joins again."""

    def __init__(self, history: History, name: str, rng: Random, client: Client | None = None) -> None:
        self._history = history
        self._name = name
        self._rng = rng
        self._client = client or SimClient("broker", PORT, timeout_s=5.0)
        self._id = ""
        self._generation = -1
        self._positions: dict[int, int] = {}
        self._topic_id = b""
        self._instance = name if rng.random() < 0.25 else None

    async def live(self) -> None:
        while True:
            try:
                await self._join()
                await self._work()
            except Outdated as outdated:
                if outdated.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                    self._id = ""
            except NETWORK_TROUBLE:
                # A commit may be on its way still: only a new generation makes sure that it comes to nothing.
                self._id = ""
            self._positions = {}
            await asyncio.sleep(self._rng.uniform(0.01, 0.2))

    def _is_moody(self, chance: float) -> bool:
        return self._rng.random() < chance and not self._history.calm

    async def _ask(self, api: ApiKey, request: Any, version: int | None = None) -> Any:
        return await self._client.call(api, request, version)

    async def _join(self) -> None:
        found = await self._ask(
            ApiKey.FIND_COORDINATOR, find_coordinator.FindCoordinatorRequest(coordinator_keys=[GROUP])
        )
        check(found.coordinators[0].error_code)
        while True:
            answer = await self._ask(
                ApiKey.JOIN_GROUP,
                join_group.JoinGroupRequest(
                    group_id=GROUP,
                    session_timeout_ms=SESSION_MS,
                    rebalance_timeout_ms=REBALANCE_MS,
                    member_id=self._id,
                    group_instance_id=self._instance,
                    protocol_type="consumer",
                    protocols=[join_group.JoinGroupRequestProtocol(name="any", metadata=b"")],
                ),
            )
            self._id = answer.member_id
            if answer.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                break
        check(answer.error_code)
        self._generation = answer.generation_id
        plan: list[sync_group.SyncGroupRequestAssignment] = []
        if answer.leader == self._id and not answer.skip_assignment:
            plan = self._plan([member.member_id for member in answer.members])
        if self._is_moody(0.05):
            await asyncio.sleep(REBALANCE_MS / 1000 * 1.5)  # joins, and is very late to sync
        synced = await self._ask(
            ApiKey.SYNC_GROUP,
            sync_group.SyncGroupRequest(
                group_id=GROUP,
                generation_id=self._generation,
                member_id=self._id,
                group_instance_id=self._instance,
                protocol_type="consumer",
                protocol_name="any",
                assignments=plan,
            ),
        )
        check(synced.error_code)
        for partition in synced.assignment:
            # A static member's place goes on under another id.
            self._history.owns(self._generation, partition, self._instance or self._id)
        self._topic_id = await current_topic_id(self._client, self._history)
        self._positions = await self._committed(list(synced.assignment))

    def _plan(self, members: list[str]) -> list[sync_group.SyncGroupRequestAssignment]:
        self._rng.shuffle(members)
        return [
            sync_group.SyncGroupRequestAssignment(
                member_id=member, assignment=bytes(range(number, PARTITIONS, len(members)))
            )
            for number, member in enumerate(members)
        ]

    async def _committed(self, partitions: list[int]) -> dict[int, int]:
        return await committed(self._client, self._history, self._topic_id, partitions)

    async def _work(self) -> None:
        while True:
            await asyncio.sleep(self._rng.uniform(0.05, 0.4))
            if self._is_moody(0.04):
                await asyncio.sleep(SESSION_MS / 1000 * self._rng.uniform(0.5, 3))  # stalls; may be expelled
            for partition in self._positions:
                self._positions[partition] += self._rng.randint(0, 5)
                place = self._topic_id, partition
                reached = self._history.processed.get(place, 0)
                self._history.processed[place] = max(reached, self._positions[partition])
            if self._positions and self._rng.random() < 0.7:
                await self._commit()
            if self._is_moody(0.03):
                await self._leave()
            answer = await self._ask(
                ApiKey.HEARTBEAT,
                heartbeat.HeartbeatRequest(
                    group_id=GROUP,
                    generation_id=self._generation,
                    member_id=self._id,
                    group_instance_id=self._instance,
                ),
            )
            if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS and self._positions:
                await self._commit()
            check(answer.error_code)

    async def _commit(self) -> None:
        if self._rng.random() < 0.5:  # each by itself, as consumers of one partition do
            for partition, offset in self._positions.items():
                await self._commit_these({partition: offset})
        else:
            await self._commit_these(dict(self._positions))

    async def _commit_these(self, sent: dict[int, int]) -> None:
        wanted = [
            offset_commit.OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=offset, committed_metadata=""
            )
            for partition, offset in sent.items()
        ]
        topic, version = offset_commit.OffsetCommitRequestTopic(name=TOPIC, partitions=wanted), None
        request = offset_commit.OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=self._generation,
            member_id=self._id,
            group_instance_id=self._instance,
            topics=[topic],
        )
        if self._history.by_id:
            topic.name, topic.topic_id, version = "", self._topic_id, 10
        elif self._instance is None and self._is_moody(0.1):
            request.retention_time_ms, version = LONGEST_MS, 3
        answer = await self._ask(ApiKey.OFFSET_COMMIT, request, version)
        for partition in answer.topics[0].partitions:
            if partition.error_code == ErrorCode.NONE:
                self._history.committed(
                    (self._topic_id, partition.partition_index), sent[partition.partition_index]
                )
            else:
                self._history.refused += 1
                check(partition.error_code)

    async def _leave(self) -> None:
        identity = leave_group.MemberIdentity(member_id=self._id, group_instance_id=self._instance)
        await self._ask(ApiKey.LEAVE_GROUP, leave_group.LeaveGroupRequest(group_id=GROUP, members=[identity]))
        raise Outdated(ErrorCode.UNKNOWN_MEMBER_ID)


async def current_topic_id(client: Client, history: History) -> bytes:
    if not history.by_id:
        return b""
    request = metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False
    )
    topic = (await client.call(ApiKey.METADATA, request, 12)).topics[0]
    check(topic.error_code)
    return bytes(topic.topic_id)


async def committed(
    client: Client, history: History, topic_id: bytes, partitions: list[int]
) -> dict[int, int]:
    before = dict(history.acknowledged)
    topic = offset_fetch.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=partitions)
    version = None
    if topic_id:
        topic.name, topic.topic_id, version = "", topic_id, 10
    request = offset_fetch.OffsetFetchRequest(
        groups=[offset_fetch.OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])]
    )
    groups = (await client.call(ApiKey.OFFSET_FETCH, request, version)).groups
    if [group.group_id for group in groups] != [GROUP]:
        raise Violation(f"one group is answered as {groups}")
    group = groups[0]
    check(group.error_code)
    told = [partition.partition_index for topic in group.topics for partition in topic.partitions]
    if told != partitions:
        raise Violation(f"asked for partitions {partitions}, told of {told}")
    found = {}
    for partition in group.topics[0].partitions:
        check(partition.error_code)
        offset = max(partition.committed_offset, 0)
        place = topic_id, partition.partition_index
        history.fetched(place, offset, before.get(place, 0))
        found[partition.partition_index] = offset
    return found


async def delete_topic(client: Client) -> None:
    """Until nobody knows of it; given up by brokers before clients do, or it would delete what was made since."""
    gone = delete_topics.DeleteTopicState(name=TOPIC)
    while True:
        with suppress(*NETWORK_TROUBLE):
            request = delete_topics.DeleteTopicsRequest(topics=[gone], timeout_ms=1_000)
            answer = await client.call(ApiKey.DELETE_TOPICS, request, 6)
            if answer.responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return
        await asyncio.sleep(0.01)


async def create_topic() -> None:
    client = SimClient("broker", PORT)
    topic = create_topics.CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
    while True:
        with suppress(*NETWORK_TROUBLE):
            request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
            answer = await client.call(ApiKey.CREATE_TOPICS, request)
            if answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return
        await asyncio.sleep(0.1)
