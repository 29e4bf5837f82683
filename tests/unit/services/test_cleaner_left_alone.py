"""Which logs the cleaner leaves alone, for how long, and what it leaves behind when something unforeseen is raised."""

import asyncio

import pytest
from tests.unit.services.maintenance.test_cleaner import Bench, run
from tests.unit.storage.logs import opened

from penstock.core.errors import TooManyFilesError, WorkerDiedError
from penstock.records.reader import read_all
from penstock.replication.partition import Partition
from penstock.replication.retirement import retire, seal
from penstock.services.maintenance import log_compaction
from penstock.storage.compaction.clean_job import Learned
from penstock.storage.compaction.cleaning import CleanRound
from penstock.storage.compaction.swap import SegmentSwap
from penstock.storage.segment import ColdRead

LIMIT = 40


def seen(partition: Partition) -> list[int]:
    """What a reader finds, from the beginning on."""
    found: list[int] = []
    while (at := found[-1] + 1 if found else 0) < LIMIT:
        try:
            data = partition.read(at, 1 << 20, at_least_one=True)
        except ColdRead as cold:
            cold.warm()
            continue
        if data is None:
            break
        read = data.file.pread(data.size, data.position)
        assert len(read) == data.size
        found += [record.offset for record in read_all(memoryview(read), from_offset=at)]
    return found


async def written_beyond_a_limit(bench: Bench) -> Partition:
    partition = bench.topic("t", internal_segment_bytes="2000")
    await bench.write(partition, LIMIT)
    for number in range(40):
        await bench.put(partition, b"moved-%d" % number, b"value")
    return partition


def test_a_retired_partition_is_not_compacted() -> None:
    """A topic may inherit the policy from its broker after its partitions were retired."""

    async def story(bench: Bench) -> None:
        partition = await written_beyond_a_limit(bench)
        retire(partition, LIMIT, None, 0)
        seal(partition)
        await bench.settled(partition)
        assert not await bench.cleaner.clean_next()
        assert seen(partition) == list(range(LIMIT))

    run(story)


def test_one_that_is_retired_while_segments_are_exchanged_shows_no_more_than_its_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(bench: Bench) -> None:
        partition = await written_beyond_a_limit(bench)
        honest = SegmentSwap.run

        def retired_meanwhile(swap: SegmentSwap) -> None:
            honest(swap)
            retire(partition, LIMIT, None, 0)

        monkeypatch.setattr(SegmentSwap, "run", retired_meanwhile)
        await bench.cleaner.clean_next()
        assert partition.retirement is not None
        offsets = seen(partition)
        assert len(offsets) < LIMIT
        assert offsets[-1] == LIMIT - 1

    run(story)


def test_the_limit_is_found_again_in_a_log_that_is_opened_anew() -> None:
    async def story(bench: Bench) -> None:
        partition = await written_beyond_a_limit(bench)
        retire(partition, LIMIT, None, 0)
        other = Bench(bench.loop)
        compacted = await written_beyond_a_limit(other)
        await other.cleaner.clean_next()
        partition.replace_log(opened(other.files, None, compacted.log.directory).log)
        assert seen(partition)[-1] == LIMIT - 1

    run(story)


def test_a_log_whose_worker_died_is_tried_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    class Dies(CleanRound):
        def learn(self) -> Learned:
            raise WorkerDiedError("killed")

    async def story(bench: Bench) -> None:
        partition = bench.topic("t")
        await bench.write(partition)
        with monkeypatch.context() as planted:
            planted.setattr(log_compaction, "CleanRound", Dies)
            assert not await bench.cleaner.clean_next()
        assert not await bench.cleaner.clean_next()
        assert not bench.cleaner.parked
        await asyncio.sleep(601)
        assert await bench.cleaner.clean_next()

    run(story)


@pytest.mark.parametrize("committed", [True, False])
def test_whatever_is_raised_by_an_exchange_nobody_waits_for_its_segments_for_ever(
    committed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(bench: Bench) -> None:
        partition = bench.topic("t")
        await bench.write(partition)

        def fails(swap: SegmentSwap) -> None:
            swap.committed = committed
            raise ValueError("nobody foresaw this")

        monkeypatch.setattr(SegmentSwap, "run", fails)
        await bench.cleaner.clean_next()
        assert partition.log.failed is committed
        assert any(segment.pinned for segment in partition.log.segments) is committed

    run(story)


def test_a_log_that_found_no_descriptor_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused(CleanRound):
        def learn(self) -> Learned:
            raise TooManyFilesError("none left")

    async def story(bench: Bench) -> None:
        partition = bench.topic("t")
        await bench.write(partition)
        with monkeypatch.context() as planted:
            planted.setattr(log_compaction, "CleanRound", Refused)
            assert not await bench.cleaner.clean_next()
        assert await bench.cleaner.clean_next()

    run(story)
