"""TxnOffsetCommit as tests ask it, with a coordinator of transactions that says what it is told."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tests.unit.frontends.group_requests import active
from tests.unit.frontends.in_memory import NOW_MS, Asked, Machine

from penstock.core.error_codes import ErrorCode
from penstock.core.internal_topics import OFFSETS_TOPIC
from penstock.groups.offsets.commit import Committer
from penstock.records.control import Marker, marker_batch
from penstock.replication.transactions import MarkerToWrite
from penstock.services.coordinator.group_kind import GroupShard
from penstock.services.coordinator.pending_reply import PendingReply, arrival
from penstock.services.coordinator.transactional_offsets import TransactionalProducer
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import offset_fetch, txn_offset_commit

PRODUCER = 4000
UNSTABLE = (0, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
NOTHING = (1, -1, "", 0)


class Coordinator:
    """A `TransactionVerifier`."""

    def __init__(self) -> None:
        self.code = ErrorCode.NONE
        self.asked: list[tuple[Any, ...]] = []
        self.answers = asyncio.Event()
        self.answers.set()

    async def verify(self, *asked: Any, adds: bool) -> dict[Any, ErrorCode]:
        *producer, (place,) = asked
        self.asked.append((*producer, *place, adds))
        code = self.code
        await self.answers.wait()
        return {place: code}


@asynccontextmanager
async def serving(disk: Machine) -> AsyncIterator[tuple[Asked, Coordinator]]:
    async with disk.broker() as asked:
        coordinator = Coordinator()
        asked.services.transactional_offsets._verifier = coordinator
        if asked.services.coordinator.has_topic:
            await active(asked)
        yield asked, coordinator


async def txn_commit(asked: Asked, version: int = 3, *, offset: int = 5, **fields: Any) -> int:
    wanted = txn_offset_commit.TxnOffsetCommitRequestPartition(
        partition_index=fields.pop("partition", 0),
        committed_offset=offset,
        committed_metadata=fields.pop("metadata", "txn"),
    )
    topic = txn_offset_commit.TxnOffsetCommitRequestTopic(
        name=fields.pop("topic", "orders"), partitions=[wanted]
    )
    given: Mapping[str, Any] = {
        "transactional_id": "tid",
        "group_id": "g",
        "producer_id": PRODUCER,
        "producer_epoch": 0,
        "topics": [topic],
    }
    request = txn_offset_commit.TxnOffsetCommitRequest(**{**given, **fields})
    answer = await asked.ask(ApiKey.TXN_OFFSET_COMMIT, request, version)
    return int(answer.topics[0].partitions[0].error_code)


async def commit_beside_marker(
    asked: Asked,
    marker: MarkerToWrite,
    *,
    offset: int,
    partition: int = 0,
    turns: int = 0,
    group_id: str = "g",
) -> ErrorCode:
    """A marker comes so many turns of the loop after its producer asks to commit this; returns what that is told."""
    services = asked.services
    entry = ("orders", services.image.topics["orders"].id, partition, offset, -1, "txn")
    producer = TransactionalProducer("tid", marker.producer_id, marker.producer_epoch)
    by = Committer(group_id, "", None, -1, 5)
    committing = asyncio.create_task(services.transactional_offsets.commit(producer, by, lambda: [entry]))
    for _ in range(turns):
        await asyncio.sleep(0)
    index = services.coordinator.shard_of(group_id).partition.index
    marking = asyncio.create_task(services.marker_writer.write(OFFSETS_TOPIC, index, marker))
    assert await committing == [ErrorCode.NONE]
    return await marking


def shard(asked: Asked) -> GroupShard:
    return asked.services.coordinator.shard_of("g")


async def end(asked: Asked, *, committed: bool, epoch: int = 0, producer_id: int = PRODUCER) -> None:
    marker = marker_batch(producer_id, epoch, Marker(committed, 0), NOW_MS)
    later = PendingReply(lambda code: code, lambda code: code)
    shard(asked).end_transaction(marker, producer_id, committed=committed, later=later)
    assert await arrival(later) is ErrorCode.NONE


async def fetch_stable(asked: Asked, version: int = 7) -> Any:
    if version < 8:
        topics = [offset_fetch.OffsetFetchRequestTopic(name="orders", partition_indexes=[0, 1])]
        request = offset_fetch.OffsetFetchRequest(group_id="g", topics=topics, require_stable=True)
        found = (await asked.ask(ApiKey.OFFSET_FETCH, request, version)).topics
    else:
        topic_id = asked.services.image.topics["orders"].id
        many = [
            offset_fetch.OffsetFetchRequestTopics(name="orders", topic_id=topic_id, partition_indexes=[0, 1])
        ]
        group = offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=many)
        request = offset_fetch.OffsetFetchRequest(groups=[group], require_stable=True)
        found = (await asked.ask(ApiKey.OFFSET_FETCH, request, version)).groups[0].topics
    return [
        (partition.partition_index, partition.committed_offset, partition.metadata, partition.error_code)
        for partition in found[0].partitions
    ]
