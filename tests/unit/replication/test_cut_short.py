"""A follower that has to cut its log while descriptors are short."""

import pytest
from tests.unit.replication.test_begun_anew import PARTED, Nobody, follower_of
from tests.unit.services.maintenance.test_cleaner import Bench, run
from tests.unit.storage.compacting import contents

from penstock.replication.partition import Partition


async def parted(bench: Bench) -> Partition:
    """It has two records that its leader never had."""
    partition = bench.topic("t", cleanup_policy="delete")
    for epoch in (1, 1, 1, 2, 2):
        partition.leader_epoch = epoch
        await bench.put(partition, b"K", b"v")
    partition.is_leader = partition.in_sync = False
    partition.leader_epoch = 3
    return partition


@pytest.mark.parametrize("short_in", range(1, 12))
def test_the_log_stays_in_service_where_nothing_has_changed_yet(short_in: int) -> None:
    async def story(bench: Bench) -> None:
        partition = await parted(bench)
        epochs = partition.log.epochs.entries()
        before = {name: bench.files.size(partition.log.directory / name) for name in names(bench, partition)}
        bench.files.short_in = short_in
        cut = await follower_of(bench).take(partition, 3, PARTED, Nobody())
        bench.files.short_in = 0
        if not cut:
            assert not partition.log.failed
            assert partition.log.epochs.entries() == epochs
            now = {name: bench.files.size(partition.log.directory / name) for name in names(bench, partition)}
            assert now == before, "a log that has changed is to be opened again"
            assert await follower_of(bench).take(partition, 3, PARTED, Nobody())
        if partition.log.failed:
            bench.restart(partition)
        else:
            assert [offset for offset, _, _ in contents(partition.log)] == [0, 1, 2]

    run(story)


def names(bench: Bench, partition: Partition) -> list[str]:
    return bench.files.list_dir(partition.log.directory)


def test_it_does_not_go_offline_for_the_first_of_them() -> None:
    async def story(bench: Bench) -> None:
        partition = await parted(bench)
        bench.files.short_in = 1
        assert not await follower_of(bench).take(partition, 3, PARTED, Nobody())
        assert (partition.log.failed, partition.log.end_offset) == (False, 5)

    run(story)
