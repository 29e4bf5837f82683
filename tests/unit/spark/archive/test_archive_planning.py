"""What a round takes: where it goes on, what is lost, how large it gets."""

import pytest

from penstock.client.raw import TopicPartition
from penstock.spark.pipelines.archive.planning import (
    RECORD_BYTES,
    TASK_BYTES,
    TASK_BYTES_MIN,
    Bounds,
    Log,
    Standing,
    plan,
    rows_per_task,
    tasks_wanted,
)
from penstock.spark.planning import Range

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
IDS = {"a": "id-a", "b": "id-b"}


def test_a_round_goes_on_where_the_archive_ends() -> None:
    made = plan({A0: Log(0, 100), B0: Log(5, 50)}, {A0: 40, B0: 50}, IDS)
    assert made.ranges == (Range(A0, 40, 100),)
    assert (made.gaps, made.left, made.rows) == ((), 0, 60)
    (topic,) = made.topics()
    assert (topic.topic, topic.topic_id, dict(topic.partitions)) == ("a", "id-a", {0: (40, 100)})


def test_nothing_to_do_is_no_round() -> None:
    assert not plan({A0: Log(0, 100)}, {A0: 100}, IDS)
    assert not plan({}, {}, IDS)
    assert not plan({A0: Log(7, 7)}, {}, IDS)


def test_a_topic_that_is_new_to_the_archive_starts_where_its_log_does_without_a_gap() -> None:
    made = plan({A0: Log(30, 100)}, {}, IDS)
    assert (made.ranges, made.gaps) == ((Range(A0, 30, 100),), ())


def test_empty_partitions_are_remembered_with_the_first_round_so_that_later_losses_show() -> None:
    made = plan({A0: Log(0, 10), A1: Log(5, 5)}, {}, IDS)
    (topic,) = made.topics()
    assert dict(topic.partitions) == {0: (0, 10), 1: (5, 5)}
    later = plan({A0: Log(0, 10), A1: Log(8, 9)}, {A0: 10, A1: 5}, IDS)
    assert [str(gap) for gap in later.gaps] == ["a-1 has lost the offsets 5 to 7 before they were archived"]


def test_a_partition_that_is_new_to_a_known_topic_has_lost_what_is_before_its_log() -> None:
    made = plan({A0: Log(0, 10), A1: Log(3, 9)}, {A0: 10}, IDS)
    assert made.ranges == (Range(A1, 3, 9),)
    assert [(gap.at, gap.start, gap.end) for gap in made.gaps] == [(A1, 0, 3)]


def test_what_retention_took_is_lost_and_noted() -> None:
    made = plan({A0: Log(60, 100)}, {A0: 40}, IDS)
    assert made.ranges == (Range(A0, 60, 100),)
    (topic,) = made.topics()
    assert dict(topic.lost) == {0: ((40, 60),)}
    assert dict(topic.partitions) == {0: (60, 100)}


def test_a_loss_alone_is_a_round_of_its_own() -> None:
    made = plan({A0: Log(60, 60)}, {A0: 40}, IDS)
    assert made
    assert made.ranges == ()
    (topic,) = made.topics()
    assert (dict(topic.partitions), dict(topic.lost)) == ({}, {0: ((40, 60),)})


def test_a_log_that_parted_from_the_archive_alone_is_a_round_of_its_own() -> None:
    made = plan({A0: Log(0, 30)}, {A0: 40}, IDS, standing=Standing({A0: 30}))
    assert made
    assert made.ranges == ()
    (topic,) = made.topics()
    assert (dict(topic.partitions), dict(topic.parted)) == ({}, {0: 30})


@pytest.mark.parametrize("rows_max", [1, 10, 99])
def test_rounds_are_bounded_by_rows_and_come_to_an_end(rows_max: int) -> None:
    logs, archived, rounds = {A0: Log(0, 100), A1: Log(50, 60), B0: Log(0, 1)}, {}, 0
    while made := plan(logs, archived, IDS, bounds=Bounds(rows_max=rows_max)):
        assert 0 < made.rows <= rows_max + len(logs)
        assert (
            made.left
            == sum(log.latest - archived.get(at, log.earliest) for at, log in logs.items()) - made.rows
        )
        archived |= {part.at: part.end for part in made.ranges}
        archived |= dict(made.empty)
        rounds += 1
    assert archived == {A0: 100, A1: 60, B0: 1}
    assert rounds >= 111 // (rows_max + len(logs))


def test_rounds_are_bounded_by_bytes_as_the_records_are() -> None:
    logs = {A0: Log(0, 1_000_000), B0: Log(0, 1000)}
    made = plan(logs, {}, IDS, record_bytes={A0: 10_000.0, B0: 10.0}, bounds=Bounds(bytes_max=10_000_000))
    assert made.size_bytes == pytest.approx(10_000_000, rel=0.01)
    taken = {part.at: part.size for part in made.ranges}
    assert taken[A0] == pytest.approx(1000, abs=2)
    assert taken[B0] >= 1
    assert made.left == 1_001_000 - made.rows


def test_a_run_that_ends_where_it_began_takes_nothing_newer() -> None:
    logs = {A0: Log(0, 100), A1: Log(0, 5), B0: Log(90, 95)}
    made = plan(logs, {A0: 20}, IDS, until={A0: 70, B0: 80})
    assert made.ranges == (Range(A0, 20, 70),)
    assert not plan(logs, {A0: 70}, IDS, until={A0: 70})


def test_small_partitions_share_a_task_and_large_ones_are_cut() -> None:
    many = {TopicPartition("a", number): Log(0, 10) for number in range(500)}
    assert tasks_wanted(plan(many, {}, IDS), cores=8) == 1
    large = plan({A0: Log(0, 1_000_000)}, {}, IDS)  # 1 GB of one partition
    assert rows_per_task(large, cores=2) == pytest.approx(TASK_BYTES / RECORD_BYTES, rel=0.01)
    assert tasks_wanted(large, cores=2) == 8
    middling = plan({A0: Log(0, 60_000)}, {}, IDS)  # 60 MB: every core gets a part
    assert rows_per_task(middling, cores=2) == 30_000
    assert tasks_wanted(middling, cores=2) == 2
    small = plan({A0: Log(0, 1_000)}, {}, IDS)
    assert rows_per_task(small, cores=2) >= TASK_BYTES_MIN / RECORD_BYTES
    assert tasks_wanted(small, cores=2) == 1
