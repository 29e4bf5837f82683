"""A log that has lost files of its middle is not archived as if nothing had been there (A4)."""

import pytest
from tests.unit.spark.archive import test_archive_steps
from tests.unit.spark.archive.faulty import TOPIC
from tests.unit.spark.archive.faulty_lake import Steps
from tests.unit.spark.archive.test_archive_steps import World

from penstock.client.raw import TopicPartition
from penstock.spark.errors import HoleError
from penstock.spark.holes import told
from penstock.spark.pipelines.archive import planning, rounds
from penstock.spark.pipelines.archive.errors import HoleInLogError
from penstock.spark.pipelines.archive.failures import HoleFoundError, explained
from penstock.spark.pipelines.archive.lines import Line
from penstock.spark.pipelines.archive.manifest import Manifest
from penstock.spark.pipelines.archive.planning import Bounds, Gap, Plan, noted_as_lost
from penstock.spark.planning import Range

AT = TopicPartition(TOPIC, 0)


def with_hole(monkeypatch: pytest.MonkeyPatch) -> World:
    """Both partitions have ten records; the first lacks 3 to 5 now."""
    world = World(monkeypatch)
    world.broker.lose_middle(0, 3, 6)
    return world


def test_a_run_ends_before_the_hole_and_retention_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    world = with_hole(monkeypatch)
    with pytest.raises(HoleInLogError, match="--no-fail-on-data-loss"):
        world.run(Steps())
    assert world.broker.told.get(0, (0, None))[0] <= 3
    # What the message advises: the files are put back, or a replica leads that has them.
    world.broker.gone.clear()
    world.run(Steps())
    world.check()


def test_a_hole_that_is_given_up_is_noted_as_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    world = with_hole(monkeypatch)
    world.broker.lose_middle(1, 7, 8)
    lossy = rounds.Settings(bounds=Bounds(rows_max=8), fail_on_data_loss=False)
    monkeypatch.setattr(test_archive_steps, "SETTINGS", lossy)
    world.run(Steps())
    archive = Manifest.load(world.lake).topic(TOPIC)
    assert archive is not None
    assert archive.lost == {0: [(3, 6)], 1: [(7, 8)]}
    assert archive.ranges == {0: [(0, 3), (6, 10)], 1: [(0, 7), (8, 10)]}
    assert archive.next_offsets == {0: 10, 1: 10}
    lost = {(0, 3), (0, 4), (0, 5), (1, 7)}
    assert sorted(world.archived()) == sorted(row for row in world.broker.rows if row[:2] not in lost)
    # From now on the plain command is enough.
    monkeypatch.setattr(test_archive_steps, "SETTINGS", rounds.Settings())
    world.broker.grow(0, 20, 3)
    world.run(Steps())
    assert len(world.archived()) == 10 - 3 + 10 + 9


def test_a_hole_that_was_seen_for_a_moment_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another replica leads when the round is planned again."""
    world = with_hole(monkeypatch)
    miss = test_archive_steps.Jobs._miss

    def elected_then(jobs: test_archive_steps.Jobs, at: TopicPartition, offsets: set[int]) -> None:
        world.broker.gone.clear()
        miss(jobs, at, offsets)

    monkeypatch.setattr(test_archive_steps.Jobs, "_miss", elected_then)
    world.run(Steps())
    world.check()


def test_spark_hands_on_which_partition_it_is() -> None:
    error = HoleError(told(TopicPartition("a-b.c", 12), (3, 6)))
    hole = explained(Exception(f"Traceback\npenstock.spark.errors.HoleError: {error}\n at org.…"), "lake")
    assert isinstance(hole, HoleFoundError)
    assert hole.at == TopicPartition("a-b.c", 12)
    assert "offsets 3 to 5" in str(hole)
    assert "failOnDataLoss" not in str(hole)


def test_very_many_holes_are_noted_bit_by_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that was compacted once may have one behind every record."""
    monkeypatch.setattr(planning, "HOLES_MAX", 3)
    monkeypatch.setattr(planning, "GAPS_TOLD_MAX", 2)
    made = Plan((Range(AT, 0, 100),), (), {TOPIC: "-"})
    holed = made.with_holes({AT: [(at, at + 1) for at in range(10, 60, 10)]})
    assert holed.ranges == (Range(AT, 0, 31),)
    assert holed.gaps == (Gap(AT, 10, 11), Gap(AT, 20, 21), Gap(AT, 30, 31))
    assert holed.left == 69
    assert noted_as_lost(holed.gaps) == [
        "orders-0 has lost the offsets 10 to 10 before they were archived: noted as lost",
        "orders-0 has lost the offsets 20 to 20 before they were archived: noted as lost",
        "orders-0 has 1 more such holes: noted as lost",
    ]


def test_holes_at_the_edges_of_what_was_taken() -> None:
    line = Line()
    line.take((5, 20), (), [(0, 5), (5, 7), (10, 12), (18, 20)])
    assert line.ranges == [(7, 10), (12, 18)]
    line.lost = [(0, 7), (10, 12), (18, 20)]
    assert line.end == 20
    line.take((20, 22))
    assert line.ranges == [(7, 10), (12, 18), (20, 22)]
    assert line.end == 22
