"""A retired partition whose limit cannot be found for want of a descriptor: who waits hears of it a little later."""

import asyncio

from tests.unit.replication.test_group_commit import Acked
from tests.unit.storage.logs import NOW_MS, Settings, a_batch, append, opened, sync

from penstock.records.batch import read_header
from penstock.replication.group_commit import GroupCommit
from penstock.replication.partition import Partition
from penstock.replication.retirement import retire
from penstock.testing.mem_files import MemFiles
from penstock.testing.sim_loop import SimLoop


def test_a_commit_that_needs_a_descriptor_is_made_when_there_is_one() -> None:
    with SimLoop(1) as loop:

        async def story() -> None:
            files = MemFiles()
            group_commit = GroupCommit(loop, None, print)
            log = opened(files, Settings(index_interval_bytes=1 << 20)).log
            for _ in range(4):
                append(log, a_batch())
            log.roll(NOW_MS)
            sync(log, checkpoint=True)
            partition = Partition("t", bytes(16), 0, log, 0, group_commit, sync_before_ack=True)
            partition.limits.move(log.end()._replace(offset=1, segment=0, position=0))
            retire(partition, 2, None, NOW_MS)
            while files.descriptors.close_some():
                pass
            waiter = Acked()
            batch = a_batch()
            last = partition.append(memoryview(batch), read_header(batch), NOW_MS)[1]
            partition.limits.wait_for_commit(last, waiter)
            files.short_in = 1  # for the segment that has the limit
            await group_commit.covered(partition)
            assert (waiter.said, partition.high_watermark, files.short_in <= 0) == ([], 1, True)
            await asyncio.sleep(1)
            assert (waiter.said, partition.high_watermark) == (["committed"], 5)
            assert partition.limits.readable.offset == 2

        loop.run_until_complete(loop.spawn("broker", story()))
