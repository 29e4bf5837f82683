"""Group requests as tests ask them, through the codecs, at any version."""

import asyncio
from collections.abc import Mapping
from typing import Any

from tests.unit.frontends.in_memory import Asked, Machine

from penstock.core.error_codes import ErrorCode
from penstock.services.coordinator.shard import Status
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import (
    find_coordinator,
    join_group,
    offset_commit,
    offset_fetch,
    sync_group,
)

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "3"}
SUBSCRIPTION = b"\x00\x00\x00\x00\x00\x01\x00\x06orders\xff\xff\xff\xff"


def machine(more: Mapping[str, str] | None = None) -> Machine:
    return Machine({**SETTINGS, **(more or {})})


async def prepared(asked: Asked) -> None:
    request = find_coordinator.FindCoordinatorRequest(key="g")
    assert (await asked.ask(ApiKey.FIND_COORDINATOR, request, 3)).error_code == 0
    await asked.create("orders", partitions=2)


async def active(asked: Asked) -> None:
    """All groups are loaded."""
    while any(shard.status is not Status.ACTIVE for shard in asked.services.coordinator.shards()):  # noqa: ASYNC110
        await asyncio.sleep(0)


async def join(asked: Asked, version: int = 9, **fields: Any) -> Any:
    wanted = {
        "group_id": "g",
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": [join_group.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
    }
    answer = await asked.ask(ApiKey.JOIN_GROUP, join_group.JoinGroupRequest(**wanted | fields), version)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        assert version >= 4
        fields["member_id"] = answer.member_id
        return await join(asked, version, **fields)
    return answer


async def sync(asked: Asked, member_id: str, generation: int = 1, version: int = 5, **fields: Any) -> Any:
    plan = [sync_group.SyncGroupRequestAssignment(member_id=member_id, assignment=b"mine")]
    named = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    request = sync_group.SyncGroupRequest(
        group_id="g", generation_id=generation, member_id=member_id, assignments=plan, **named | fields
    )
    return await asked.ask(ApiKey.SYNC_GROUP, request, version)


async def stable(asked: Asked) -> str:
    await prepared(asked)
    member_id: str = (await join(asked)).member_id
    assert (await sync(asked, member_id)).error_code == 0
    return member_id


async def commit(
    asked: Asked, version: int = 9, *, offset: int = 7, partition: int = 0, **fields: Any
) -> int:
    wanted = offset_commit.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=fields.pop("metadata", "note")
    )
    if version >= 10:
        topic_id = fields.pop("topic_id", None) or asked.services.image.topics["orders"].id
        topic = offset_commit.OffsetCommitRequestTopic(topic_id=topic_id, partitions=[wanted])
    else:
        topic = offset_commit.OffsetCommitRequestTopic(
            name=fields.pop("topic", "orders"), partitions=[wanted]
        )
    request = offset_commit.OffsetCommitRequest(**{"group_id": "g", "topics": [topic]} | fields)
    answer = await asked.ask(ApiKey.OFFSET_COMMIT, request, version)
    return int(answer.topics[0].partitions[0].error_code)


async def fetch(asked: Asked, version: int = 9, group_id: str = "g", *, everything: bool = False) -> Any:
    """(topic name or id, [(partition, offset, metadata, error)])"""
    topic_id = asked.services.image.topics["orders"].id
    if version < 8:
        topics = [offset_fetch.OffsetFetchRequestTopic(name="orders", partition_indexes=[0, 1])]
        request = offset_fetch.OffsetFetchRequest(group_id=group_id, topics=None if everything else topics)
        answer = await asked.ask(ApiKey.OFFSET_FETCH, request, version)
        found = answer.topics
    else:
        many = [
            offset_fetch.OffsetFetchRequestTopics(name="orders", topic_id=topic_id, partition_indexes=[0, 1])
        ]
        group = offset_fetch.OffsetFetchRequestGroup(group_id=group_id, topics=None if everything else many)
        answer = await asked.ask(
            ApiKey.OFFSET_FETCH, offset_fetch.OffsetFetchRequest(groups=[group]), version
        )
        assert answer.groups[0].error_code == 0
        found = answer.groups[0].topics
    if version >= 10:
        assert all(topic.topic_id == topic_id for topic in found)
    else:
        assert all(topic.name == "orders" for topic in found)
    return [
        (partition.partition_index, partition.committed_offset, partition.metadata, partition.error_code)
        for t in found
        for partition in t.partitions
    ]
