"""A follower that must cut what its compaction went by has nothing of use: also when it is stopped half-way."""

import pytest
from tests.unit.services.maintenance.test_cleaner import Bench, run
from tests.unit.storage.compacting import contents, keyed

from penstock.core.jobs import Jobs
from penstock.records.batch import read_header
from penstock.replication.following import Follower
from penstock.replication.partition import Partition
from penstock.storage.producers import ProducerState
from penstock.wire.kafka.generated.fetch import EpochEndOffset, PartitionData

PARTED = PartitionData(
    partition_index=0,
    error_code=0,
    high_watermark=3,
    last_stable_offset=3,
    log_start_offset=0,
    diverging_epoch=EpochEndOffset(epoch=1, end_offset=3),
)


class Nobody:
    """A leader of epoch 3 whom nobody asks."""

    leader_epoch = 3

    async def end_of(self, epoch: int) -> tuple[int, int]:
        raise AssertionError(f"asked for epoch {epoch}")

    async def producers_below(self, offset: int) -> ProducerState:
        raise AssertionError(f"asked for producers below {offset}")

    async def tombstones(self) -> int:
        raise AssertionError("asked for tombstones")


async def compacted(bench: Bench) -> Partition:
    """It has let the first value of K go for the sake of a record that its leader does not have."""
    partition = bench.topic("t", internal_segment_bytes="220")
    for number, key in enumerate(b"aKxyKzqrst"):
        partition.leader_epoch = 1 if number < 3 else 2
        batch = keyed([(b"%c" % key, b"%d" % number)], time=bench.clock.now_ms())
        partition.append(memoryview(batch), read_header(batch), bench.clock.now_ms())
    await bench.settled(partition)
    await bench.cleaner.clean_next()
    assert 1 not in [offset for offset, _, _ in contents(partition.log)]
    partition.is_leader = partition.in_sync = False
    partition.leader_epoch = 3
    return partition


def follower_of(bench: Bench) -> Follower:
    return Follower(Jobs(bench.loop, None), bench.clock, bench.group_commit)


@pytest.mark.parametrize("where", ["*006.log", "*003.log", "*000.log", "nothing"])
def test_one_that_cannot_be_thrown_away_at_once_is_when_it_is_opened_again(where: str) -> None:
    async def story(bench: Bench) -> None:
        partition = await compacted(bench)
        bench.files.fail_next("unlink", where)
        went_well = await follower_of(bench).take(partition, 3, PARTED, Nobody())
        assert went_well is (where == "nothing") is not partition.log.failed
        bench.files.mend()
        bench.restart(partition)
        assert (partition.log.start_offset, partition.log.end_offset) == (0, 0)
        assert not partition.log.cleaned.lacks(0)

    run(story)


def test_a_damaged_log_is_copied_anew_where_it_cannot_be_cut() -> None:
    async def story(bench: Bench) -> None:
        partition = bench.topic("t")
        for epoch in (1, 1, 1, 2, 2):
            partition.leader_epoch = epoch
            await bench.put(partition, b"K", b"v")
        partition.is_leader = partition.in_sync = False
        partition.leader_epoch = 3
        partition.log.active.file.pwrite(b"\x00\x00\x00\x05", 8)
        assert await follower_of(bench).take(partition, 3, PARTED, Nobody())
        assert (partition.log.start_offset, partition.log.end_offset) == (0, 0)

    run(story)
