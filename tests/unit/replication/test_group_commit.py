"""A sync that ends badly ends for everybody who waits for it, and is the trouble of its own log only."""

import pytest
from tests.unit.storage.logs import NOW_MS, a_batch, opened

from penstock.records.batch import read_header
from penstock.replication.group_commit import GroupCommit
from penstock.replication.partition import Partition
from penstock.storage.checkpoint import SyncJob
from penstock.testing.mem_files import MemFiles
from penstock.testing.sim_loop import SimLoop


def test_nobody_waits_for_ever_for_a_sync_whose_directory_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(job: SyncJob) -> None:
        raise FileNotFoundError("Partition-0")

    monkeypatch.setattr(SyncJob, "run", gone)
    failures: list[str] = []
    with SimLoop(1) as loop:

        async def story() -> None:
            group_commit = GroupCommit(loop, None, failures.append)
            partition = Partition(
                "t", bytes(16), 0, opened(MemFiles()).log, 0, group_commit, sync_before_ack=True
            )
            batch = a_batch()
            partition.append(memoryview(batch), read_header(batch), NOW_MS)
            await group_commit.covered(partition)
            await group_commit.quiet(partition)
            await group_commit.idle()
            assert partition.log.failed

        loop.run_until_complete(loop.spawn("broker", story()))
    assert failures == [], "the disk is well: other logs go on"


def test_of_a_log_whose_lease_has_ended_nothing_is_synced_and_nobody_waits() -> None:
    with SimLoop(1) as loop:

        async def story() -> None:
            files = MemFiles()
            group_commit = GroupCommit(loop, None, pytest.fail)
            partition = Partition("t", bytes(16), 0, opened(files).log, 0, group_commit, sync_before_ack=True)
            batch = a_batch()
            partition.append(memoryview(batch), read_header(batch), NOW_MS)
            partition.lease.ended = True
            await group_commit.quiet(partition)
            await group_commit.covered(partition)
            assert partition.log.synced_end.offset == 0

        loop.run_until_complete(loop.spawn("broker", story()))
