"""What is written down of a compaction before it changes anything."""

from tests.unit.services.test_cleaner import Bench, run

from penstock.storage.cleaner_checkpoint import Cleaned, load_cleaned
from penstock.storage.layout import CLEANER_FILE


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


def test_nothing_goes_while_the_mark_cannot_be_written() -> None:
    async def story(bench: Bench) -> None:
        partition = bench.topic("t")
        await bench.write(partition)
        before = bench.count(partition)
        bench.files.fail_next("rename", f"*{CLEANER_FILE}*", count=2)
        for _ in range(2):
            await bench.cleaner.clean_next()
            assert (bench.count(partition), partition.log.cleaned) == (before, Cleaned())

    run(story)


def test_a_mark_that_another_set_meanwhile_stays() -> None:
    """A follower notes which tombstones its leader lacks, while a round waits for it."""

    async def story(bench: Bench) -> None:
        partition = bench.topic("t")
        await bench.write(partition)
        log, honest = partition.log, bench.cleaner._may_change

        async def waits(read: object) -> bool:
            log.cleaned = log.cleaned.without_tombstones(50)
            return await honest(read)  # type: ignore[arg-type]

        bench.cleaner._may_change = waits  # type: ignore[method-assign]
        await bench.cleaner.clean_next()
        assert log.cleaned.tombstones == 50

    run(story)


def test_what_an_earlier_version_wrote_counts_as_far_as_it_was_clean() -> None:
    assert Cleaned(30).lacks(29)
    assert Cleaned(30).cut(20) == Cleaned(20, went_by=20)
    assert not Cleaned(30).lacks(30)
