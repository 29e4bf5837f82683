"""DeleteRecords on one broker: what is marked as deleted is durable, whoever else deletes meanwhile."""

import asyncio
import random
from typing import Any

import pytest
from tests.unit.services.maintenance.test_cleaner import Bench, run
from tests.unit.storage.logs import a_batch

from penstock.core.jobs import Jobs
from penstock.records.batch import read_header
from penstock.replication.partition import Partition
from penstock.services.delete_records import DeletionService
from penstock.storage.layout import START, parse_segment_name
from penstock.storage.recovery import open_log

PRODUCER = 7


class Deleting:
    """A partition that acknowledges what is written, and is not synced by itself."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.partition = bench.topic("t", cleanup_policy="delete", internal_segment_bytes="1000000")
        self.partition.sync_before_ack = False
        self.service = DeletionService(
            bench.loop, Jobs(bench.loop, None), bench.clock, bench.table, bench.group_commit
        )

    def write(self, count: int) -> None:
        log = self.partition.log
        for _ in range(count):
            batch = a_batch(producer=(PRODUCER, 0, log.end_offset))
            self.partition.append(memoryview(batch), read_header(batch), self.bench.clock.now_ms())

    def delete(self, offset: int) -> "asyncio.Task[int]":
        return asyncio.ensure_future(self.service.delete_before("t", 0, offset, 30))

    def marked(self) -> int:
        names = self.bench.files.list_dir(self.partition.log.directory)
        return max(start for name in names if (start := parse_segment_name(name, START)) is not None)


async def until_it_hears_late(bench: Bench) -> Any:
    """The next sync is over, and the loop has not heard of it yet: call what this returns."""
    honest, held, synced = bench.group_commit._done, [], asyncio.Event()

    def late(partition: Partition, *rest: Any) -> None:
        held.append((partition, *rest))
        synced.set()

    bench.group_commit._done = late  # type: ignore[method-assign]
    await synced.wait()
    bench.group_commit._done = honest  # type: ignore[method-assign]
    return lambda: honest(*held[0])


@pytest.mark.parametrize("seed", range(4))
def test_a_deletion_marks_nothing_that_only_another_one_waits_for(seed: int) -> None:
    """The power goes in between: what producers did must still be known, or their repeats are stored as new."""

    async def story(bench: Bench) -> None:
        deleting = Deleting(bench)
        deleting.write(10)
        first = deleting.delete(10)
        hear = await until_it_hears_late(bench)
        deleting.write(10)  # no sync covers them
        second = deleting.delete(20)
        await asyncio.sleep(0)
        log = deleting.partition.log
        assert (log.start_offset, log.synced_end.offset) == (20, 0)
        bench.group_commit.request = lambda partition: None  # type: ignore[method-assign] # a slow disk
        hear()
        assert log.synced_end.offset == 10
        await first
        assert deleting.marked() == 10
        disk = bench.files.crash(random.Random(seed))
        found = open_log(disk, log.directory, log.settings, rewrite_tail=True).log
        assert [producer.producer_id for producer in found.producers.copy()] == [PRODUCER]
        second.cancel()

    run(story, seed=seed)


def test_each_of_two_deletions_at_once_is_durable_when_it_is_answered() -> None:
    async def story(bench: Bench) -> None:
        deleting = Deleting(bench)
        for offset in (10, 20):
            deleting.write(10)
            assert deleting.partition.high_watermark == offset
        first, second = deleting.delete(10), deleting.delete(20)
        await asyncio.wait([first, second], return_when=asyncio.FIRST_COMPLETED)
        assert deleting.marked() >= 10
        assert await second == 20
        assert deleting.marked() == 20
        await first

    run(story)
