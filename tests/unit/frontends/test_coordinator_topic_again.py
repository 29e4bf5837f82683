"""A coordinator's topic is deleted, and made again with another leader: the old shard writes into none of its files."""

import asyncio

import pytest
from tests.unit.frontends import in_memory
from tests.unit.frontends.group_requests import active, commit, join, machine, prepared, sync
from tests.unit.waiting import until

from penstock.coordination.metadata import NewTopic
from penstock.coordination.nodes import PartitionState
from penstock.core.error_codes import ErrorCode
from penstock.core.lease import Work
from penstock.records.batch import read_header
from penstock.records.builder import BatchBuilder, BatchOptions
from penstock.services.coordinator.shard import Status
from penstock.services.topics.deletions import TopicReference

TOPIC = "__consumer_offsets"
WEEK_MS = 7 * 24 * 60 * 60 * 1000  # the next record begins a new segment then


async def test_a_shard_that_outlives_its_topic_makes_no_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    computer, now_ms = machine(), in_memory.NOW_MS
    monkeypatch.setattr(in_memory.StandingClock, "now_ms", lambda _: now_ms)
    async with computer.broker() as asked:
        await prepared(asked)
        assert await commit(asked, offset=5) == 0
        await active(asked)
        shard = asked.services.coordinator.shard_of("g")
        index, old = shard.partition.index, shard.partition.log
        now_ms += WEEK_MS + 1
        await asked.services.topics.delete([TopicReference(TOPIC)], timeout_ms=10_000)
        await until(lambda: TOPIC.encode() not in asked.services.table.by_name)
        state = PartitionState(replicas=(2, 1), isr=(2,), leader=2)
        await asked.broker.metadata.create_topics([NewTopic(TOPIC, [state] * 3, {})])
        await asked.broker.hosting.reconcile()
        new = asked.services.table.by_name[TOPIC.encode()].partitions[index].log
        builder = BatchBuilder(BatchOptions())
        builder.append(b"of the new", key=b"k", timestamp=now_ms)
        batch = builder.build()
        new.append(memoryview(batch), read_header(batch), 0, now_ms)
        job = new.sync_job(checkpoint=True)
        job.run()
        new.synced(job)
        # What the shard hears of a deletion it writes down: a tombstone for what the group has committed there.
        await asked.services.topics.delete([TopicReference("orders")], timeout_ms=10_000)
        await until(lambda: b"orders" not in asked.services.table.by_name)
        assert old.failed
    async with computer.broker() as asked:
        new = asked.services.table.by_name[TOPIC.encode()].partitions[index].log
        content = b"".join(segment.file.pread(segment.size, 0) for segment in new.segments)
        assert (new.end_offset, content.count(b"of the new"), content.count(b"orders")) == (1, 1, 0)


async def test_a_commit_is_answered_whenever_its_topic_goes() -> None:
    """It gathers while another partition's files are worked on, for which the deletion waits."""
    async with machine().broker() as asked:
        await prepared(asked)
        assert await commit(asked, offset=5) == 0
        await active(asked)
        shard = asked.services.coordinator.shard_of("g")
        topic = asked.services.table.by_name[TOPIC.encode()]
        other = next(each for each in topic.partitions.values() if each is not shard.partition)
        hold = other.lease.take(Work.SYNC)
        assert hold is not None
        asked_for = asyncio.ensure_future(commit(asked, offset=6))
        await asyncio.sleep(0)  # it has come, and is written in the next turn
        deletion = asyncio.ensure_future(asked.broker.hosting.removal.discard(topic))
        assert await asked_for == ErrorCode.NOT_COORDINATOR
        assert shard.status is Status.OFFLINE
        hold.release()
        await deletion


async def test_whoever_waits_in_a_group_is_answered_when_its_topic_goes() -> None:
    async with machine({"offsets.topic.num.partitions": "1"}).broker() as asked:
        await prepared(asked)
        first = await join(asked, 3)
        assert (await sync(asked, first.member_id, first.generation_id, 0)).error_code == 0
        shard = asked.services.coordinator.shard_of("g")
        waiting = asyncio.ensure_future(join(asked, 3))  # for the first to join again
        await until(lambda: list(shard.state.waiting(shard.state.groups["g"])))
        hold = shard.partition.lease.take(Work.CLEAN)  # as a compaction that is under way
        assert hold is not None
        topic = asked.services.table.by_name[TOPIC.encode()]
        deletion = asyncio.ensure_future(asked.broker.hosting.removal.discard(topic))
        assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR
        hold.release()
        await deletion
