"""A log that gave archived offsets to other records is recognised by leader epochs, and archived again from there."""

from collections.abc import Iterator, Mapping
from types import SimpleNamespace

import pytest
from tests.unit.client.raw.fake import batch_at
from tests.unit.spark.archive.faulty import TOPIC
from tests.unit.spark.archive.faulty_lake import Steps
from tests.unit.spark.archive.test_archive_steps import SETTINGS, World

from penstock.client.raw import TopicPartition
from penstock.records.batch import stamp
from penstock.spark.pipelines.archive.errors import GapError
from penstock.spark.pipelines.archive.failures import BrokerLostError, ReadLostError
from penstock.spark.pipelines.archive.manifest import Manifest
from penstock.spark.pipelines.archive.planning import Gap, Log, Parted, Standing, gaps_and_starts, plan
from penstock.spark.pipelines.archive.rounds import Rounds
from penstock.spark.pipelines.archive.source import Source
from penstock.spark.pipelines.archive.standing import agreed
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
    assert agreed(MARKS, lambda epoch: history.end_of(epoch, end), end) == (20 if where is None else where)


@pytest.mark.parametrize(
    ("marks", "epochs", "end", "where"),
    [
        # Archived before there were epochs: as much of it as nothing speaks against.
        ([(-1, 10), (3, 15)], [(1, 0), (5, 9)], 20, 9),
        ([(-1, 10), (3, 15)], [(1, 0), (5, 12)], 20, 10),
        ([(-1, 10), (3, 15)], [(1, 0)], 8, 8),
        ([(-1, 10), (3, 15)], [(1, 0), (3, 9), (5, 13)], 20, 13),
        # In between; it is the same only if what lies before it is.
        ([(1, 5), (-1, 10), (3, 15)], [(1, 0), (5, 9)], 20, 9),
        ([(1, 5), (-1, 10), (3, 15)], [(1, 0), (2, 4), (5, 9)], 20, 4),
        ([(1, 5), (-1, 10), (3, 15)], [(0, 0), (5, 9)], 20, 0),
        # The archive began later than the log.
        ([(-1, 10), (3, 15)], [(5, 10)], 20, 10),
    ],
)
def test_where_a_log_parted_of_which_not_all_epochs_are_known(
    marks: list[tuple[int, int]], epochs: list[tuple[int, int]], end: int, where: int
) -> None:
    history = EpochHistory()
    for epoch, start in epochs:
        history.assign(epoch, start)
    assert agreed(marks, lambda epoch: history.end_of(epoch, end), end) == where


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
    assert world.broker.told == {0: (7, 3), 1: (10, 3)}
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
    with pytest.raises(GapError, match="lost the offsets 5 to 5"):
        rounds_of(world).run()


def test_a_leader_that_was_replaced_hides_nothing(world: World) -> None:
    """It is cut off from the others and still answers: all that its successor wrote would seem to be lost."""
    old = world.broker.replica(0)
    world.broker.grow(0, 15, epoch=5)
    world.run(Steps())
    before, now = sorted(world.archived()), world.broker.replica(0)
    world.broker.told.clear()
    world.broker.elect(0, old, 3)
    for look in (lambda: rounds_of(world).run(), lambda: rounds_of(world).tell()):
        with pytest.raises(BrokerLostError):
            look()
    world.broker.elect(0, now, 5)
    world.run(Steps())
    assert sorted(world.archived()) == before
    world.check()


def test_what_nobody_has_any_more_comes_back_when_an_old_leader_does(world: World) -> None:
    first = world.broker.replica(0)
    assert first.start == 10, "all of it is deleted"
    world.broker.lose_end(0, 7, 15, epoch=5)
    world.run(Steps())
    world.broker.elect(0, first, 6)
    world.broker.grow(0, 17, 6)
    world.run(Steps())
    world.check()
    archive = Manifest.load(world.lake).topic(TOPIC)
    assert archive is not None
    assert (archive.marks[0], archive.lost) == ([(3, 10), (6, 17)], {})


def mixed_lines(world: World) -> None:
    """Another one leads while a round is asked for and read, then the first one, then that one again."""
    broker = world.broker
    broker.grow(0, 12, epoch=5)
    first = broker.replica(0)
    broker.told.clear()
    broker.starts[0] = first.start = 0
    broker.lose_end(0, 5, 10, epoch=4)
    broker.grow(0, 14, epoch=6)
    second = broker.replica(0)
    broker.elect(0, first, 7)
    broker.meanwhile["planned"] = lambda: broker.elect(0, second, 8)
    broker.meanwhile["read"] = lambda: broker.elect(0, first, 9)
    world.run(Steps())
    world.run(Steps())
    world.check()
    broker.elect(0, second, 10)
    world.run(Steps())
    world.check()


def test_a_round_is_found_out_of_one_leader(world: World) -> None:
    mixed_lines(world)


def test_of_several_it_would_be_a_line_that_never_was(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world.broker, "leaders", lambda _: {})
    with pytest.raises(AssertionError):
        mixed_lines(world)


def test_a_partition_without_a_leader_holds_up_no_other(world: World) -> None:
    for at in (0, 1):
        world.broker.grow(at, 15, epoch=4)
    world.broker.unled.add(1)
    world.run(Steps())
    assert world.broker.told == {0: (15, 4), 1: (10, 3)}
    world.broker.unled.clear()
    world.run(Steps())
    world.check()
    assert world.broker.told == {0: (15, 4), 1: (15, 4)}


def test_a_retired_partition_without_a_leader_is_not_one_that_left(world: World) -> None:
    """The metadata tells where it ends, whether it is there or not: what is not archived was noted as lost."""
    world.broker.is_required = False
    world.broker.grow(1, 15, epoch=4)
    world.broker.limits[1] = 15
    world.broker.unled.add(1)
    world.run(Steps())
    world.broker.unled.clear()
    world.run(Steps())
    world.check()


def test_what_one_leader_has_deleted_and_the_next_one_has_is_not_taken_for_archived(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the log begins was asked of the one, and whether it serves the archive of the other."""
    world.broker.grow(0, 15, epoch=3)
    world.broker.starts[0] = 12
    monkeypatch.setattr(world.broker, "serves", lambda *_: True)
    with pytest.raises(GapError, match="has lost the offsets 10 to 11"):
        world.run(Steps())


class OneAnswer:
    """A client that fetches from one leader, and asks another one."""

    def __init__(self, epoch: int, end: tuple[int, int]) -> None:
        self._epoch, self._end = epoch, end

    def fetch(self, _: TopicPartition, offset: int, __: int, **___: object) -> Iterator[object]:
        batch = bytearray(batch_at(offset, [b"v"]))
        stamp(batch, 0, offset, self._epoch)
        yield SimpleNamespace(records=memoryview(batch))

    def epoch_ends(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
        return dict.fromkeys(wanted, self._end)


@pytest.mark.parametrize("end", [(-1, -1), (3, 10), (4, 10)])
def test_a_range_whose_epochs_are_not_known_is_not_read(end: tuple[int, int]) -> None:
    """Nobody would ever look at it again."""
    source = Source.__new__(Source)
    source._client = source._sampler = OneAnswer(4, end)  # type: ignore[assignment]
    with pytest.raises(ReadLostError, match="another leader"):
        source.epochs([Range(T0, 10, 14)])
    source._client = OneAnswer(4, (4, 20))  # type: ignore[assignment]
    assert source.epochs([Range(T0, 10, 14)]) == {T0: ((4, 14),)}
    # A broker that has no epochs.
    source._sampler = OneAnswer(-1, end)  # type: ignore[assignment]
    assert source.epochs([Range(T0, 10, 14)]) == {}


@pytest.mark.parametrize("moment", ["planned", "asking", "reading", "read"])
@pytest.mark.parametrize("regrown", [11, 12, 20])
@pytest.mark.parametrize("end", [8, 11])
def test_an_end_that_is_lost_while_it_is_archived(world: World, end: int, regrown: int, moment: str) -> None:
    world.broker.rows += [(0, offset, f"0/{offset}") for offset in range(10, 13)]
    world.broker.meanwhile[moment] = lambda: world.broker.lose_end(0, end, regrown, epoch=5)
    world.run(Steps())
    assert not world.broker.meanwhile
    world.check()


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
    assert old_world.broker.told[0] == (0, None)
    running = rounds_of(old_world)
    running.tell()
    assert old_world.broker.told[0] == (7, None)
    old_world.run(Steps())
    old_world.check()
    assert old_world.broker.told[0] == (15, None)


def test_without_epochs_too_a_leader_that_was_replaced_hides_nothing_for_good(old_world: World) -> None:
    broker = old_world.broker
    old = broker.replica(0)
    broker.grow(0, 15, epoch=5)
    old_world.run(Steps())
    now, told = broker.replica(0), dict(broker.told)
    assert now.start == 15, "only the archive has them"
    broker.told = {0: (10, None), 1: (10, None)}
    broker.elect(0, old, 3)
    old_world.run(Steps())
    broker.elect(0, now, 5)
    broker.told = told
    old_world.run(Steps())
    old_world.check()


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
