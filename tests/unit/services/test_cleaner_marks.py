"""What is written down of a compaction before it changes anything."""

import pytest
from tests.unit.services.maintenance.test_cleaner import DATA, Bench, run

from penstock.records.reader import read_all
from penstock.replication.partition import Partition
from penstock.storage.compaction.checkpoint import Cleaned, load_cleaned
from penstock.storage.layout import CLEANER_FILE, partition_dir
from penstock.storage.replicated import truncate

# Of the mark's file: it keeps its old name, or has its new one, and only the sync of that fails.
FAULTS = [("rename", f"*{CLEANER_FILE}*"), ("sync_dir", str(partition_dir(DATA, "t", 0)))]


def values(partition: Partition, key: bytes) -> list[bytes | None]:
    stored = (memoryview(segment.file.pread(segment.size, 0)) for segment in partition.log.segments)
    return [record.value for data in stored for record in read_all(data) if record.key == key]


def test_by_which_records_others_went_is_known_before_they_go() -> None:
    """A round that ends half-way: who then has to give those records up knows that it lacks others."""

    async def story(bench: Bench) -> None:
        partition = bench.topic("t")
        await bench.write(partition)
        log = partition.log
        bench.files.fail_next("rename", "*.swap")
        await bench.cleaner.clean_next()
        known = load_cleaned(bench.files, log.directory, 0)
        assert (known.offset, known.went_by) == (0, log.active.base_offset)
        assert known.lacks(log.active.base_offset - 1)
        assert not known.lacks(log.active.base_offset)

    run(story)


@pytest.mark.parametrize(("operation", "pattern"), FAULTS)
def test_nothing_goes_while_the_mark_cannot_be_written(operation: str, pattern: str) -> None:
    async def story(bench: Bench) -> None:
        partition = bench.topic("t")
        await bench.write(partition)
        before, log = bench.count(partition), partition.log
        bench.files.fail_next(operation, pattern, count=2)
        for _ in range(2):
            await bench.cleaner.clean_next()
            # Whatever stands on the disk now: nothing is clean, and a cut would have to begin anew.
            assert (bench.count(partition), log.cleaned.offset) == (before, 0)
            assert log.cleaned_in_doubt
            assert log.cleaned.lacks(log.active.base_offset - 1)
        await bench.cleaner.clean_next()
        assert bench.count(partition) < before
        assert load_cleaned(bench.files, log.directory, log.end_offset) == log.cleaned
        assert not log.cleaned_in_doubt

    run(story)


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize(("operation", "pattern"), FAULTS)
def test_a_mark_that_may_not_be_on_the_disk_is_written_before_segments_go(
    operation: str, pattern: str, killed: bool
) -> None:
    """The round after the one whose mark failed has nothing new to note: it is to be noted all the same."""

    async def story(bench: Bench) -> None:
        partition = bench.topic("t")
        await bench.write(partition)
        log = partition.log
        bench.files.fail_next(operation, pattern)
        await bench.cleaner.clean_next()
        bench.files.fail_next("rename", "*.swap" if killed else "*.cleaned.log")
        await bench.cleaner.clean_next()
        assert load_cleaned(bench.files, log.directory, 0).lacks(log.active.base_offset - 1)

    run(story)


@pytest.mark.parametrize(("operation", "pattern"), FAULTS)
def test_a_key_that_is_deleted_behind_a_cut_stays_so_whichever_mark_is_on_the_disk(
    operation: str, pattern: str
) -> None:
    """An unclean election cuts the log below the mark: one that stayed would call the new tombstone clean."""

    async def story(bench: Bench) -> None:
        partition = bench.topic("t", delete_retention_ms="1000")
        await bench.put(partition, b"k", b"value")
        for number in range(40):
            await bench.put(partition, b"u%d" % number, b"value")
        bench.files.fail_next(operation, pattern)
        await bench.cleaner.clean_next()
        log = partition.log
        assert log.cleaned.lacks(20)
        truncate(log, 20)
        partition.limits.move(log.end())
        assert load_cleaned(bench.files, log.directory, log.end_offset) == log.cleaned
        assert log.cleaned.offset <= 20
        await bench.put(partition, b"k", None)
        for number in range(40):
            await bench.put(partition, b"v%d" % number, b"value")
        bench.restart(partition)
        for _ in range(3):
            await bench.cleaner.clean_next()
            for number in range(30):
                await bench.put(partition, b"w%d" % number, b"value")
        assert values(partition, b"k") in ([], [None])

    run(story)


def test_a_mark_that_another_set_meanwhile_stays() -> None:
    """A follower notes which tombstones its leader lacks, while a round waits for it."""

    async def story(bench: Bench) -> None:
        partition = bench.topic("t")
        await bench.write(partition)
        log, honest = partition.log, bench.cleaner._compaction._may_change

        async def waits(read: object) -> bool:
            log.cleaned = log.cleaned.without_tombstones(50)
            return await honest(read)  # type: ignore[arg-type]

        bench.cleaner._compaction._may_change = waits  # type: ignore[method-assign]
        await bench.cleaner.clean_next()
        assert log.cleaned.tombstones == 50

    run(story)


def test_what_an_earlier_version_wrote_counts_as_far_as_it_was_clean() -> None:
    assert Cleaned(30).lacks(29)
    assert Cleaned(30).cut(20) == Cleaned(20, went_by=20)
    assert not Cleaned(30).lacks(30)
