"""The archive: what was produced is in the lake, once, and a second run adds nothing (A4)."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn
from tests.integration.spark.lakes import ALake, Watcher
from tests.integration.spark.topics import Sent, Topics

from penstock.spark.pipelines.archive.errors import ArchiveError, GapError
from penstock.spark.pipelines.archive.lake_id import LAKE_FILE
from penstock.spark.pipelines.archive.reader import Selection, archived

HOUR_MS = 3_600_000
NEW_YEAR_MS = 1_735_689_600_000  # 2025-01-01T00:00:00Z
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def lake(spark: SparkSession, topics: Topics, tmp_path: Path) -> ALake:
    return ALake(spark, topics.bootstrap, tmp_path / "a lake")


def mixed(count: int, partitions: int) -> list[Sent]:
    """Keys, headers, nulls, empty values and times before, at and after an hour's edge."""
    return [
        Sent(
            None if number % 11 == 0 else b"" if number % 13 == 0 else b"value %d" % number * (number % 5),
            key=None if number % 3 == 0 else b"" if number % 7 == 0 else b"key %d" % number,
            partition=number % partitions,
            timestamp=NEW_YEAR_MS - 2 + (number % 5) + HOUR_MS * (number % 3),
            headers=(("h", b"%d" % number), ("h", None), ("ü", b"")) if number % 4 == 0 else (),
        )
        for number in range(count)
    ]


def by_place(messages: list[Sent]) -> list[Sent]:
    """By partition; within one, as they were sent."""
    return sorted(messages, key=lambda message: message.partition)


def test_everything_comes_back_as_it_was_sent(lake: ALake, topics: Topics) -> None:
    topic = topics.create(partitions=4)  # the last one stays empty
    messages = []
    for number, codec in enumerate(CODECS):
        part = mixed(100 + number, 3)
        topics.produce(topic, part, **{"compression.type": codec})
        messages += part
    summary = lake.archive(topic)
    assert (summary.rows, summary.files) == (len(messages), len(lake.files()))
    assert lake.sent(topic) == by_place(messages)
    offsets = [(row.partition, row.offset) for row in lake.rows(topic)]
    counts = [sum(message.partition == partition for message in messages) for partition in range(4)]
    assert offsets == [(partition, offset) for partition in range(4) for offset in range(counts[partition])]
    archive = lake.manifest.topic(topic)
    assert archive is not None
    assert archive.next_offsets == dict(enumerate(counts))
    lake.check()


def test_folders_are_the_hours_of_the_records_in_utc_and_plain_spark_reads_them(
    lake: ALake, topics: Topics, spark: SparkSession
) -> None:
    topic = topics.create()
    times = [NEW_YEAR_MS - 1, NEW_YEAR_MS, NEW_YEAR_MS + 7 * HOUR_MS]
    topics.produce(topic, [Sent(b"x", timestamp=time) for time in times])
    lake.archive(topic)
    folders = sorted(Path(path).parent.as_posix() for path in lake.files())
    assert folders == [
        f"topic={topic}/date=2024-12-31/hour=23",
        f"topic={topic}/date=2025-01-01/hour=00",
        f"topic={topic}/date=2025-01-01/hour=07",
    ]
    plain = spark.read.parquet(str(lake.folder))
    assert plain.columns[-3:] == ["topic", "date", "hour"]
    assert {row.topic for row in plain.collect()} == {topic}
    assert plain.filter("hour = 7").count() == 1
    kinds = dict(plain.dtypes)
    assert (kinds["timestamp"], kinds["offset"], kinds["partition"]) == ("timestamp", "bigint", "int")
    found = {row.timestamp.astimezone(UTC) for row in plain.collect()}
    assert found == {datetime.fromtimestamp(time / 1000, UTC) for time in times}


def test_rows_lie_in_order_in_their_files(lake: ALake, topics: Topics, spark: SparkSession) -> None:
    topic = topics.create(partitions=3)
    topics.produce(topic, mixed(600, 3))
    lake.archive(topic)
    for path in lake.files():
        rows = [
            (row.partition, row.offset)
            for row in spark.read.parquet(str(lake.folder / path)).select("partition", "offset").collect()
        ]
        assert rows == sorted(rows)


def test_a_second_run_adds_nothing_and_a_third_only_what_is_new(lake: ALake, topics: Topics) -> None:
    topic = topics.create(partitions=2)
    topics.count_up(topic, 0, 50, 2)
    lake.archive(topic)
    before = [(stored.path, stored.size_bytes) for stored in lake.lake.list("")]
    again = lake.archive(topic)
    assert (again.rounds, again.rows, again.files) == (0, 0, 0)
    assert [(stored.path, stored.size_bytes) for stored in lake.lake.list("")] == before
    topics.count_up(topic, 50, 10, 2)
    assert lake.archive(topic).rows == 10
    assert sorted(int(row.value) for row in lake.rows(topic)) == list(range(60))
    lake.check()


def test_an_empty_topic_leaves_nothing_but_the_name_of_the_lake(lake: ALake, topics: Topics) -> None:
    topic = topics.create(partitions=2)
    summary = lake.archive(topic)
    assert (summary.rounds, [stored.path for stored in lake.lake.list("")]) == (0, [LAKE_FILE])


def test_large_backlogs_are_taken_in_bounded_rounds(lake: ALake, topics: Topics) -> None:
    topic = topics.create(partitions=2)
    topics.count_up(topic, 0, 500, 2)
    watcher = Watcher()
    summary = lake.archive(topic, round_rows=200, listener=watcher)
    assert summary.rounds == 3
    assert [done.rows for done in watcher.rounds] == [200, 200, 100]
    assert sorted(int(row.value) for row in lake.rows(topic)) == list(range(500))
    by_bytes = Watcher()
    topics.produce(topic, [Sent(b"x" * 10_000) for _ in range(100)], **{"batch.size": 20_000})
    lake.archive(topic, round_bytes=250_000, listener=by_bytes)
    assert 4 <= len(by_bytes.rounds) <= 8
    assert len(lake.rows(topic)) == 600
    lake.check()


def test_topics_by_pattern_and_by_name_share_a_lake(lake: ALake, topics: Topics) -> None:
    topic_a1, topic_a2, topic_b = (topics.create(name) for name in ("a-1", "a-2", "b"))
    for number, topic in enumerate((topic_a1, topic_a2, topic_b)):
        topics.count_up(topic, 100 * number, 10)
    summary = lake.archive(pattern=f"{topics.prefix}\\.a-.*")
    assert (summary.rounds, summary.rows) == (1, 20)
    assert set(lake.manifest.topics) == {topic_a1, topic_a2}
    lake.archive(topic_a1, topic_b)
    assert sorted(int(row.value) for row in lake.rows(topic_b)) == list(range(200, 210))
    assert len(lake.rows(topic_a1)) == 10


def test_it_goes_on_until_it_is_told_to_stop(lake: ALake, topics: Topics) -> None:
    topic = topics.create()
    topics.count_up(topic, 0, 10)
    first = Watcher(stop_after_rounds=1)

    summary = lake.archive(topic, every_s=3600, listener=first)
    assert summary.rows == 10
    topics.count_up(topic, 10, 90)
    # A stop ends it between two rounds, with more to do.
    cut = Watcher(stop_after_rounds=1)
    assert lake.archive(topic, every_s=0.001, round_rows=30, listener=cut).rows == 30
    assert lake.archive(topic).rows == 60
    assert sorted(int(row.value) for row in lake.rows(topic)) == list(range(100))


def test_a_topic_made_anew_is_archived_from_its_start_beside_the_old_one(lake: ALake, topics: Topics) -> None:
    topic = topics.create()
    topics.count_up(topic, 0, 30)
    lake.archive(topic)
    (old,) = lake.manifest.topics[topic]
    topics.delete(topic)
    gone = Watcher()
    assert lake.archive(topic, listener=gone).rows == 0
    assert gone.warnings == [f"topic {topic} is gone from the broker; what is archived of it stays"]
    topics.create(topic, exact=True)
    topics.count_up(topic, 1000, 20)
    anew = Watcher()
    assert lake.archive(topic, listener=anew).rows == 20
    assert "was deleted and made anew" in anew.warnings[0]
    assert [int(row.value) for row in lake.rows(topic)] == list(range(1000, 1020))
    assert [int(row.value) for row in lake.rows(topic, topic_id=old.topic_id)] == list(range(30))
    assert len({archive.topic_id for archive in lake.manifest.topics[topic]}) == 2
    lake.check()


def test_what_retention_took_first_is_an_error_or_noted_as_lost(lake: ALake, topics: Topics) -> None:
    topic = topics.create()
    topics.count_up(topic, 0, 100)
    topics.delete_records(topic, 0, 10)
    lake.archive(topic)  # what was gone before the archive began was never promised
    topics.count_up(topic, 100, 50)
    topics.delete_records(topic, 0, 120)
    with pytest.raises(GapError, match=f"{topic}-0 has lost the offsets 100 to 119 .*--no-fail-on-data-loss"):
        lake.archive(topic)
    assert len(lake.rows(topic)) == 90
    watcher = Watcher()
    summary = lake.archive(topic, fail_on_data_loss=False, listener=watcher)
    assert summary.rows == 30
    assert watcher.warnings == [
        f"{topic}-0 has lost the offsets 100 to 119 before they were archived: noted as lost"
    ]
    archive = lake.manifest.topic(topic)
    assert archive is not None
    assert (archive.lost, archive.ranges) == ({0: [(100, 120)]}, {0: [(10, 100), (120, 150)]})
    (of_topic,) = summary.as_json()["topics"]
    assert (of_topic["lost"], of_topic["archived_to"]) == (20, {"0": 150})
    assert lake.archive(topic).rows == 0  # once noted, it is no error any more


def test_parts_of_a_topic_can_be_read_without_opening_the_rest(lake: ALake, topics: Topics) -> None:
    topic = topics.create(partitions=2)
    for first in (0, 100):
        topics.count_up(topic, first, 100, 2)
        lake.archive(topic)
    selection = Selection(partitions=frozenset({1}), start={1: 50})
    frame_rows = lake.rows(topic, selection=selection)
    assert {row.offset for row in frame_rows if row.partition == 1} == set(range(50, 100))
    named = [file for file in lake.manifest.files.values() if selection.holds(file)]
    assert 0 < len(named) < len(lake.files())


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"compression": "zip"}, "compression 'zip' is unknown"),
        ({"pattern": "("}, "is no regular expression"),
    ],
)
def test_wrong_use_is_one_line(lake: ALake, topics: Topics, more: dict[str, str], words: str) -> None:
    topic = topics.create()
    with pytest.raises(ArchiveError, match=words):
        lake.archive(topic, **more)


def test_topics_that_cannot_be_are_named(lake: ALake) -> None:
    with pytest.raises(ArchiveError, match="there is no topic never-made: see `penstock topic list`"):
        lake.archive("never-made")
    with pytest.raises(ArchiveError, match=r"'a\*' is no name of a topic; for many topics use --pattern"):
        lake.archive("a*")
    with pytest.raises(ArchiveError, match="no topic is named"):
        lake.archive()
    with pytest.raises(ArchiveError, match="is no archive: fill it with"):
        lake.rows("t")


def test_small_files_are_merged_and_their_content_stays(lake: ALake, topics: Topics) -> None:
    topic, other = topics.create("t", partitions=3), topics.create("few")
    messages = []
    for _ in range(4):
        part = mixed(60, 3)
        messages += part
        topics.produce(topic, part)
        lake.archive(topic, compact_files=None)
    topics.count_up(other, 0, 5)
    lake.archive(other, compact_files=None)
    before, rows = lake.manifest, lake.rows(topic)
    assert max(_counts(lake.files()).values()) >= 4
    watcher = Watcher()
    summary = lake.archive(topic, compact_files=3, listener=watcher)
    assert (summary.rows, summary.files_compacted) == (0, watcher.merged)
    assert watcher.merged >= 12
    after = lake.manifest
    assert max(_counts(lake.files()).values()) == 1
    assert lake.rows(topic) == rows
    assert lake.sent(topic) == by_place(messages)
    assert after.topic(topic).next_offsets == before.topic(topic).next_offsets  # type: ignore[union-attr]
    assert after.topic(topic).rows == len(rows)  # type: ignore[union-attr]
    for path in lake.files():
        frame = lake.spark.read.parquet(str(lake.folder / path)).select("partition", "offset")
        found = [tuple(row) for row in frame.collect()]
        assert found == sorted(found)
    assert lake.archive(topic, compact_files=3).files_compacted == 0
    lake.check()


def _counts(paths: list[str]) -> dict[str, int]:
    folders = [path.rpartition("/")[0] for path in paths]
    return {folder: folders.count(folder) for folder in folders}


def test_the_archive_has_what_the_source_reads(lake: ALake, topics: Topics, spark: SparkSession) -> None:
    topic = topics.create(partitions=2)
    topics.produce(topic, mixed(200, 2))
    lake.archive(topic)
    live = topics.read(spark, topic).option("includeHeaders", "true").load()
    kept = archived(spark, str(lake.folder), topic)
    assert kept.dtypes == live.dtypes
    sums = [
        frame.agg(fn.count("*"), fn.bit_xor(fn.xxhash64(*live.columns))).first() for frame in (live, kept)
    ]
    assert sums[0] == sums[1]
