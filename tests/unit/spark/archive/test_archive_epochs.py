"""A log that gave archived offsets to other records is recognised by leader epochs, and archived again from there."""

import json
from pathlib import Path

import pytest
from tests.unit.spark.archive.faulty import TOPIC, Steps
from tests.unit.spark.archive.lakes import ID, committed, entry, file
from tests.unit.spark.archive.test_archive_steps import SETTINGS, World

from penstock.client.raw import TopicPartition
from penstock.spark.pipelines.archive import compaction, rounds
from penstock.spark.pipelines.archive import manifest as manifests
from penstock.spark.pipelines.archive.entries import Entry, TopicRound
from penstock.spark.pipelines.archive.errors import GapError
from penstock.spark.pipelines.archive.lake import FolderLake
from penstock.spark.pipelines.archive.manifest import CHECKPOINT_ENTRIES, Manifest, entry_path
from penstock.spark.pipelines.archive.planning import Gap, Log, Parted, Standing, gaps_and_starts, plan
from penstock.spark.pipelines.archive.reader import by_limits, topic_files
from penstock.spark.pipelines.archive.rounds import Rounds
from penstock.spark.pipelines.archive.standing import parting
from penstock.spark.planning import Range
from penstock.storage.epochs import EpochHistory

T0, T1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
MARKS = [(1, 10), (3, 20)]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Ten records of each of two partitions, archived."""
    made = World(monkeypatch)
    made.run(Steps())
    return made


def rounds_of(world: World) -> Rounds:
    return Rounds(
        None,  # type: ignore[arg-type]
        world.lake,
        world.broker,  # type: ignore[arg-type]
        SETTINGS,
        still_owner=lambda: None,
        warn=lambda line: None,
    )


# -- where a log parted -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epochs", "end", "where"),
    [
        ([(1, 0), (3, 10)], 25, None),  # still the same log
        ([(1, 0), (3, 10), (5, 22)], 25, None),
        ([(5, 24)], 25, None),  # and all of that deleted since
        ([(1, 0), (3, 10), (5, 17)], 25, 17),  # cut off in the epoch, and grown in another one
        ([(1, 0), (3, 10)], 17, 17),  # or not grown
        ([(1, 0), (5, 15)], 25, 10),  # of an old leader, who had more of his own
        ([(1, 0)], 30, 10),  # who has written nothing anew
        ([(1, 0), (5, 8)], 25, 8),
        ([(1, 0), (2, 8), (5, 22)], 25, 8),  # an epoch that the archive never saw lies between
        ([(0, 0), (5, 5)], 25, 0),  # nothing in common
        ([(0, 0)], 5, 0),
    ],
)
def test_where_a_log_parted(epochs: list[tuple[int, int]], end: int, where: int | None) -> None:
    history = EpochHistory()
    for epoch, start in epochs:
        history.assign(epoch, start)
    assert parting(MARKS, lambda epoch: history.end_of(epoch, end)) == where


def test_the_next_round_begins_where_the_log_parted() -> None:
    gaps, parted, starts = gaps_and_starts({T0: Log(0, 99)}, {T0: 20}, Standing({T0: 17}))
    assert (gaps, parted, starts) == ([], [Parted(T0, 17, 20)], {T0: 17})
    assert "another one from offset 17 on" in str(parted[0])


def test_what_retention_took_of_the_new_log_is_lost() -> None:
    gaps, _, starts = gaps_and_starts({T0: Log(18, 99)}, {T0: 20}, Standing({T0: 15}))
    assert ([(gap.start, gap.end) for gap in gaps], starts) == ([(15, 18)], {T0: 18})


def test_a_partition_grown_again_has_lost_nothing() -> None:
    gaps, parted, starts = gaps_and_starts({T0: Log(14, 20)}, {T0: 10}, Standing(served={T0}))
    assert (gaps, parted, starts) == ([], [], {T0: 14})


def test_what_never_was_in_a_partition_grown_again_is_noted_but_not_read() -> None:
    grown = Standing(served={T0})
    assert not plan({T0: Log(14, 14, first=14)}, {T0: 10}, {TOPIC: "id"}, standing=grown), (
        "nobody waits for records"
    )
    made = plan({T0: Log(14, 20, first=14)}, {T0: 10}, {TOPIC: "id"}, standing=grown)
    assert made.ranges == (Range(T0, 14, 20),)
    (topic,) = made.topics()
    assert (dict(topic.partitions), dict(topic.lost)) == ({0: (10, 20)}, {})


def test_a_partition_grown_again_that_the_archive_never_had_begins_with_its_log() -> None:
    gaps, _, starts = gaps_and_starts({T0: Log(0, 9), T1: Log(14, 20, first=14)}, {T0: 9})
    assert (gaps, starts) == ([], {T0: 9, T1: 14})
    gaps, _, _ = gaps_and_starts({T0: Log(0, 9), T1: Log(16, 20, first=14)}, {T0: 9})
    assert gaps == [Gap(T1, 14, 16)]


def test_a_partition_that_left_before_it_was_archived_is_a_gap_and_noted() -> None:
    made = plan({T0: Log(0, 9)}, {T0: 9, T1: 5}, {TOPIC: "id"}, standing=Standing(ended={T1: 10}))
    assert made
    assert made.gaps == (Gap(T1, 5, 10),)
    (topic,) = made.topics()
    assert (dict(topic.partitions), dict(topic.lost)) == ({}, {1: ((5, 10),)})
    assert not plan({T0: Log(0, 9)}, {T0: 9, T1: 10}, {TOPIC: "id"}, standing=Standing(ended={T1: 10}))


# -- the archiver -----------------------------------------------------------------------------------------------


def test_reused_offsets_are_archived_and_the_broker_is_told_of_them_only_then(world: World) -> None:
    assert world.broker.told == {0: (10, 3), 1: (10, 3)}
    # An unclean election: partition 0 has lost what was behind 7, and has grown past what is archived.
    world.broker.lose_end(0, 7, 15, epoch=5)
    running = rounds_of(world)
    running.tell()
    assert world.broker.told == {0: (7, None), 1: (10, 3)}
    assert running.run() is not None
    running.tell()
    assert world.broker.told == {0: (15, 5), 1: (10, 3)}
    world.check()
    archive = Manifest.load(world.lake).topic(TOPIC)
    assert archive is not None
    assert (archive.ranges[0], archive.marks[0]) == ([(0, 15)], [(3, 7), (5, 15)])


def test_a_log_that_is_shorter_than_the_archive_is_gone_back_to_at_once(world: World) -> None:
    world.broker.lose_end(0, 7, 7, epoch=5)
    assert rounds_of(world).run() is not None
    world.check()
    world.broker.lose_end(0, 7, 12, epoch=6)
    world.run(Steps())
    world.check()


def test_offsets_of_the_new_log_that_nobody_has_any_more_are_a_gap(world: World) -> None:
    world.broker.lose_end(0, 3, 15, epoch=5)
    world.broker.starts[0] = 6
    with pytest.raises(GapError, match="lost the offsets 3 to 5"):
        rounds_of(world).run()


@pytest.mark.parametrize("moment", ["planned", "read"])
@pytest.mark.parametrize("regrown", [11, 12, 20])
@pytest.mark.parametrize("end", [8, 11])
def test_an_end_that_is_lost_while_it_is_archived(world: World, end: int, regrown: int, moment: str) -> None:
    world.broker.rows += [(0, offset, f"0/{offset}") for offset in range(10, 13)]
    world.broker.meanwhile[moment] = lambda: world.broker.lose_end(0, end, regrown, epoch=5)
    world.run(Steps())
    assert not world.broker.meanwhile
    world.check()


def test_without_that_look_it_would_be_missed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds.Rounds, "_check_epochs", lambda *_: None)
    with pytest.raises(AssertionError):
        test_an_end_that_is_lost_while_it_is_archived(world, 8, 20, "planned")


# -- archives from before there were epochs -----------------------------------------------------------------------


@pytest.fixture
def old_world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(monkeypatch)
    made.broker.knows_epochs = False
    made.run(Steps())
    assert made.broker.told == {0: (10, None), 1: (10, None)}
    return made


def test_without_epochs_the_lower_of_manifest_and_progress_counts(old_world: World) -> None:
    # The broker has lowered the progress before it began to lead, and the log has grown past the archive since.
    old_world.broker.lose_end(0, 7, 15, epoch=5)
    assert old_world.broker.told[0] == (7, None)
    running = rounds_of(old_world)
    running.tell()
    assert old_world.broker.told[0] == (7, None)
    old_world.run(Steps())
    old_world.check()
    assert old_world.broker.told[0] == (15, None)


def test_without_epochs_and_progress_a_shorter_log_is_gone_back_to(old_world: World) -> None:
    old_world.broker.told.clear()
    old_world.broker.lose_end(0, 7, 9, epoch=5)
    old_world.run(Steps())
    # From 9 on, not from 7: without an epoch only the end of the log speaks.
    assert sorted(old_world.archived())[:9] == [(0, offset, f"0/{offset}") for offset in range(9)]


def test_progress_that_was_never_told_does_not_hold_a_run_up(old_world: World) -> None:
    """Each round would begin where the broker believes the archive to be, for ever."""
    broker = old_world.broker
    broker.rows += [(0, offset, f"0/{offset}") for offset in range(10, 40)]
    broker.told[0] = (4, None)
    broker.starts[0] = 0
    old_world.broker.tell = lambda *_: []  # type: ignore[method-assign, assignment]
    old_world.run(Steps())
    old_world.check()


# -- the manifest -----------------------------------------------------------------------------------------------


def test_epochs_are_remembered_also_through_a_checkpoint(tmp_path: Path) -> None:
    lake = FolderLake(tmp_path / "lake")
    manifest = Manifest.load(lake)
    for number in range(1, CHECKPOINT_ENTRIES + 1):
        taken = TopicRound("t", ID, {0: (number - 1, number)}, epochs={0: ((number // 20, number),)})
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


def test_an_entry_with_the_last_epoch_alone_is_read() -> None:
    taken = TopicRound("t", ID, {0: (5, 9)})
    tree = taken.as_json() | {"epochs": {"0": 3}}
    assert TopicRound.from_json(tree).epochs == {0: ((3, 9),)}


def parted_lake(folder: Path) -> FolderLake:
    lake = FolderLake(folder / "lake")
    parted = TopicRound("t", ID, {0: (12, 30)}, epochs={0: ((5, 30),)}, parted={0: 12})
    committed(
        lake,
        entry(1, {0: (0, 10), 1: (0, 10)}, added=(file(1, {0: (0, 9), 1: (0, 9)}, rows=20),)),
        entry(2, {0: (10, 15), 1: (10, 20)}, added=(file(2, {0: (10, 14), 1: (10, 19)}, rows=15),)),
        entry(3, {0: (15, 20)}, added=(file(3, {0: (15, 19)}, rows=5),)),
        Entry(4, "round", "0000000004-x", "", (parted,), (file(4, {0: (12, 29)}, rows=18),)),
    )
    return lake


@pytest.mark.parametrize("checkpoint", [False, True])
def test_what_is_behind_the_parting_counts_only_as_it_was_archived_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, checkpoint: bool
) -> None:
    lake = parted_lake(tmp_path)
    manifest = Manifest.load(lake)
    if checkpoint:
        monkeypatch.setattr(manifests, "CHECKPOINT_ENTRIES", 1)
        manifest.tidy()
        manifest = Manifest.load(lake)
        assert manifest.checkpoint == 4
    archive = manifest.topic("t")
    assert archive is not None
    assert (archive.ranges, archive.next_offsets) == ({0: [(0, 30)], 1: [(0, 20)]}, {0: 30, 1: 20})
    first, second, third, fourth = (archive.files[file(number).path] for number in range(1, 5))
    assert (first.limits, fourth.limits) == ({}, {})
    assert (second.offsets, second.limits, second.rows) == ({0: (10, 11), 1: (10, 19)}, {0: 12}, 12)
    assert (third.offsets, third.limits, third.rows) == ({}, {0: 12}, 0)
    assert archive.rows == 20 + 12 + 18
    # Readers open nothing of which no row counts, and know of every other file which do.
    files = topic_files(manifest, "t")
    assert files == [first, second, fourth]
    assert by_limits(lake, files, {one.path: one.path for one in files}) == {
        (): [lake.url(first.path), lake.url(fourth.path)],
        ((0, 12),): [lake.url(second.path)],
    }
    # What the broker has lost is not merged away: nobody else has it.
    (group,) = compaction.groups(archive.files.values(), files_max=1)
    assert group.files == (first, fourth)


def test_only_what_needs_it_is_refused_by_earlier_versions(tmp_path: Path) -> None:
    lake = parted_lake(tmp_path)
    formats = [json.loads(lake.read(entry_path(number)))["format"] for number in range(1, 5)]
    assert formats == [1, 1, 1, 2]
