"""A log that gave archived offsets to other records is recognised by leader epochs: retention is not told of them."""

import pytest
from tests.unit.spark.archive.faulty import TOPIC, Steps
from tests.unit.spark.archive.lakes import ID, committed, entry
from tests.unit.spark.archive.test_archive_steps import SETTINGS, World

from penstock.client.raw import TopicPartition
from penstock.spark.pipelines.archive.entries import Entry, TopicRound
from penstock.spark.pipelines.archive.errors import GapError
from penstock.spark.pipelines.archive.lake import FolderLake
from penstock.spark.pipelines.archive.manifest import CHECKPOINT_ENTRIES, Manifest
from penstock.spark.pipelines.archive.planning import Log, Standing, gaps_and_starts, parting
from penstock.spark.pipelines.archive.rounds import Rounds

T0 = TopicPartition(TOPIC, 0)
MARKS = [(1, 10), (3, 20)]


@pytest.mark.parametrize(
    ("epoch", "end", "where"),
    [
        (3, 25, None),  # still the same log
        (3, 20, None),
        (3, 17, 17),  # cut off in the epoch, and grown in another one
        (1, 15, 10),  # the archive's records behind 10 may be of the lost epoch, all of them
        (1, 8, 8),
        (0, 5, 0),  # nothing is certain
        (-1, -1, None),  # shorter than the archive, which its end says
    ],
)
def test_where_a_log_parted(epoch: int, end: int, where: int | None) -> None:
    assert parting(MARKS, epoch, end) == where


def test_a_log_that_parted_is_a_gap_however_long_it_is_by_now() -> None:
    gaps, starts = gaps_and_starts({T0: Log(0, 99)}, {T0: 20}, Standing({T0: 17}))
    assert starts == {}
    assert "other records from offset 17" in str(gaps[0])


def test_a_partition_grown_again_has_lost_nothing() -> None:
    gaps, starts = gaps_and_starts({T0: Log(14, 20)}, {T0: 10}, Standing(served={T0}))
    assert (gaps, starts) == ([], {T0: 10})


def test_epochs_are_remembered_also_through_a_checkpoint(tmp_path: object) -> None:
    lake = FolderLake(tmp_path / "lake")  # type: ignore[operator]
    manifest = Manifest.load(lake)
    for number in range(1, CHECKPOINT_ENTRIES + 1):
        taken = TopicRound("t", ID, {0: (number - 1, number)}, epochs={0: number // 20})
        manifest.commit(Entry(number, "round", f"{number:010}-x", "", (taken,)))
        manifest.tidy()
    archive = Manifest.load(lake).topic("t")
    assert archive is not None
    assert archive.marks == {0: [(0, 19), (1, 39), (2, 50)]}
    assert archive.epochs == {0: 2}
    # A round of a broker that told none: what is known stays, but is not that of the end.
    archive = committed(lake, entry(CHECKPOINT_ENTRIES + 1, {0: (50, 60)})).topic("t")
    assert archive is not None
    assert (archive.epochs, archive.marks[0][-1]) == ({}, (2, 50))


def test_the_broker_is_told_epochs_and_nothing_beyond_where_the_log_parted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    world.run(Steps())
    assert world.broker.told == {0: (10, 3), 1: (10, 3)}
    # An unclean election: partition 0 has lost what was behind 7, and has grown past what is archived.
    world.broker.answers[T0] = (3, 7)
    world.broker.rows += [(0, offset, f"other {offset}") for offset in range(10, 15)]
    running = Rounds(
        None,  # type: ignore[arg-type]
        world.lake,
        world.broker,  # type: ignore[arg-type]
        SETTINGS,
        still_owner=lambda: None,
        warn=lambda line: None,
    )
    running.tell()
    assert world.broker.told == {0: (7, None), 1: (10, 3)}
    with pytest.raises(GapError, match="other records from offset 7 on"):
        running.run()
