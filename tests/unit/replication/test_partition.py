"""What is committed only ever grows, whoever leads and whatever is being synced."""

from tests.unit.storage.logs import NOW_MS, a_batch, opened

from penstock.coordination.nodes import PartitionState
from penstock.records.batch import read_header
from penstock.replication.leading import Leading
from penstock.replication.partition import Partition
from penstock.testing.mem_files import MemFiles

TWO = PartitionState(replicas=(1, 2), isr=(1, 2), leader=1, leader_epoch=5, partition_epoch=9)


class LateSyncer:
    """Syncs are asked for, and end when the test says so."""

    def request(self, partition: Partition) -> None:
        partition.sync_running = True


def test_what_is_committed_stays_so_when_a_replica_becomes_the_only_one_while_a_sync_runs() -> None:
    partition = Partition("t", bytes(16), 0, opened(MemFiles()).log, 5, LateSyncer(), sync_before_ack=False)
    leading = Leading(1, TWO, 2, 0, 0.0)
    partition.lead(5, leading)
    batch = a_batch()
    partition.append(memoryview(batch), read_header(batch), NOW_MS)
    leading.fetched(2, 7, 1, 1, 1.0)
    partition.advance()
    assert partition.high_watermark == 1
    partition.sync_running = True
    job = partition.log.sync_job()
    partition.sync_before_ack = True  # the only replica acknowledges what is durable
    partition.lead(6, None)
    assert partition.high_watermark == 1
    partition.sync_running = False
    job.run()
    partition.synced(job)
    assert partition.high_watermark == 1
