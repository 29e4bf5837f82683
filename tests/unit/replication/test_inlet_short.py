"""A retired partition whose limit cannot be found for want of a descriptor: acknowledgements do not wait for it."""

from tests.unit.replication.test_group_commit import Acked
from tests.unit.replication.test_inlet import NoSyncer, write
from tests.unit.storage.logs import NOW_MS, Settings, a_batch, append, opened, sync

from penstock.replication.inlet import lead_anew, retire
from penstock.replication.partition import Partition
from penstock.testing.mem_files import MemFiles


def test_readers_stay_where_they_are_until_the_limit_can_be_read() -> None:
    files = MemFiles()
    log = opened(files, Settings(index_interval_bytes=1 << 20)).log
    for _ in range(4):
        append(log, a_batch())
    log.roll(NOW_MS)
    partition = Partition("t", bytes(16), 0, log, 0, NoSyncer(), sync_before_ack=False)
    write(partition)
    retire(partition, 2, None, NOW_MS)
    before = partition.readable
    assert before.offset == 2
    lead_anew(partition)
    sync(log)
    while files.descriptors.close_some():
        pass
    waiter = Acked()
    partition.wait_for_commit(5, waiter)
    files.short_in = 2  # behind the one that is written to
    write(partition)
    assert files.short_in <= 0, "its place was looked for"
    assert (partition.committed.offset, partition.readable, waiter.said) == (6, before, ["committed"])
    write(partition)
    assert (partition.committed.offset, partition.readable) == (7, before)
