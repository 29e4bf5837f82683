"""What is committed only ever grows, whoever leads and whatever is being synced."""

from dataclasses import replace

import pytest
from tests.unit.storage.logs import NOW_MS, a_batch, opened

from penstock.coordination.nodes import PartitionState
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.lease import Work
from penstock.records.batch import read_header
from penstock.replication.leading import Leading
from penstock.replication.partition import Partition
from penstock.replication.retirement import freeze
from penstock.testing.mem_files import MemFiles

TWO = PartitionState(replicas=(1, 2), isr=(1, 2), leader=1, leader_epoch=5, partition_epoch=9)


class LateSyncer:
    """Syncs are asked for, and end when the test says so."""

    def request(self, partition: Partition) -> None:
        assert partition.lease.take(Work.SYNC) is not None


def test_what_is_committed_stays_so_when_a_replica_becomes_the_only_one_while_a_sync_runs() -> None:
    partition = Partition("t", bytes(16), 0, opened(MemFiles()).log, 5, LateSyncer(), sync_before_ack=False)
    leading = Leading(1, TWO, 2, 0, 0.0)
    partition.lead(5, leading)
    batch = a_batch()
    partition.append(memoryview(batch), read_header(batch), NOW_MS)
    leading.fetched(2, 7, 1, 1, 1.0)
    partition.advance()
    assert partition.high_watermark == 1
    hold = partition.lease.take(Work.SYNC)
    assert hold is not None
    job = partition.log.sync_job()
    partition.sync_before_ack = True  # the only replica acknowledges what is durable
    partition.lead(6, None)
    assert partition.high_watermark == 1
    hold.release()
    job.run()
    partition.synced(job)
    assert partition.high_watermark == 1


def test_a_read_that_fails_while_the_high_watermark_moves_is_made_up_for_by_the_next_fetch() -> None:
    """Otherwise it ends whatever let it move: a sync, whose waiters then wait for ever."""
    files = MemFiles()
    partition = Partition("t", bytes(16), 0, opened(files).log, 5, LateSyncer(), sync_before_ack=False)
    leading = Leading(1, TWO, 2, 0, 0.0)
    partition.lead(5, leading)
    for _ in range(3):
        batch = a_batch()
        partition.append(memoryview(batch), read_header(batch), NOW_MS)
    files.fail_next("read", "*.log")
    leading.fetched(2, 7, 2, 3, 1.0)
    partition.advance()
    assert partition.high_watermark == 0
    files.mend()
    partition.advance()
    assert partition.high_watermark == 2


def a_sole_survivor() -> Partition:
    """It knew as a follower that one record of three is committed; the leader before it may have shown all of them."""
    partition = Partition("t", bytes(16), 0, opened(MemFiles()).log, 5, LateSyncer(), sync_before_ack=False)
    partition.stand_back(5)
    for _ in range(3):
        batch = a_batch()
        partition.log.append(memoryview(batch), read_header(batch), 5, NOW_MS)
    partition.limits.move(partition.log.end()._replace(offset=1, position=len(batch)))
    partition.sync_before_ack = True
    partition.lead(6, None)
    return partition


def test_a_sole_survivor_does_not_send_readers_back_who_saw_more_than_it_knows_of() -> None:
    partition = a_sole_survivor()
    assert not partition.knows_its_end
    assert partition.read(3, 1000, at_least_one=True) is None  # not known yet
    with pytest.raises(ApiError) as refused:
        partition.read(4, 1000, at_least_one=True)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    with pytest.raises(ApiError) as refused:
        freeze(partition, NOW_MS)
    assert refused.value.code is ErrorCode.OFFSET_NOT_AVAILABLE
    job = partition.log.sync_job()
    job.run()
    partition.synced(job)
    assert partition.knows_its_end
    assert partition.high_watermark == 3
    assert freeze(partition, NOW_MS) == 3


def test_a_leader_vouches_for_what_is_as_durable_as_its_topic_wants() -> None:
    partition = a_sole_survivor()
    assert not partition.vouches
    partition.sync_before_ack = False
    assert partition.vouches
    partition.sync_before_ack = True
    job = partition.log.sync_job()
    job.run()
    partition.synced(job)
    assert partition.vouches


@pytest.mark.parametrize("replicas", [1, 2])
def test_what_could_not_be_written_is_not_committed_though_its_offsets_were_given_out(replicas: int) -> None:
    """A reader that was told of it would begin behind what these offsets are given to next."""
    files = MemFiles()
    partition = Partition("t", bytes(16), 0, opened(files).log, 5, LateSyncer(), sync_before_ack=False)
    leading = None if replicas == 1 else Leading(1, replace(TWO, isr=(1,)), 1, 0, 0.0)
    partition.lead(5, leading)
    batch = a_batch()
    partition.append(memoryview(batch), read_header(batch), NOW_MS, hold=True)
    files.fill_up(0)
    with pytest.raises(ApiError):
        partition.write_held()
    partition.advance()  # a follower fetches
    assert partition.high_watermark == 0
    partition.lead(6, leading)  # before the log is open again
    assert partition.high_watermark == 0
