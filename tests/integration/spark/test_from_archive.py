"""`penstock consume --from-archive`: the archive, then the broker, without a gap or a repeat."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.integration.commands import COMMAND, Done, environment, penstock
from tests.integration.spark.hand_lake import HandLake
from tests.integration.spark.topics import Sent, Topics

from penstock.client.admin.admin import Admin
from penstock.client.admin.topics import uuid_text
from penstock.client.console.row import ConsoleRow
from penstock.client.console.topic_watch import TopicRemadeError
from penstock.client.raw import RawClient, TopicInfo
from penstock.spark.pipelines.archive.lake import FolderLake
from penstock.spark.pipelines.archive.manifest import Manifest
from penstock.spark.pipelines.archive.tables import own_session
from penstock.spark.pipelines.from_archive.archived import console_rows
from penstock.spark.pipelines.from_archive.files import LocalRows, SparkRows
from penstock.spark.pipelines.from_archive.handover import ArchiveThenLive

NOON_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


@pytest.fixture
def lake(topics: Topics, tmp_path: Path) -> HandLake:
    return HandLake(topics.bootstrap, tmp_path / "lake")


def messages(first: int, count: int) -> list[Sent]:
    """Over two partitions and three hours, not in the order of their clocks."""
    return [
        Sent(
            b"%d" % n,
            b"k" if n % 3 else None,
            n % 2,
            NOON_MS + (n % 3) * HOUR_MS + n,
            (("h", b"\xff%d" % n), ("n", None)) if n % 4 == 0 else (),
        )
        for n in range(first, first + count)
    ]


def consume(topics: Topics, lake: HandLake, topic: str, *more: str) -> Done:
    return penstock(
        "consume",
        topic,
        "--from-archive",
        str(lake.folder),
        "--no-follow",
        "--format",
        "json",
        *more,
        bootstrap=topics.bootstrap,
    )


def places(out: str) -> list[tuple[int, int]]:
    return [(line["partition"], line["offset"]) for line in map(json.loads, out.splitlines())]


def by_partition(found: list[tuple[int, int]]) -> dict[int, list[int]]:
    return {at: [offset for partition, offset in found if partition == at] for at in dict(sorted(found))}


@contextmanager
def reader(
    topics: Topics, lake: HandLake, topic: str, *, follow: bool = False, **more: Any
) -> Iterator[tuple[ArchiveThenLive, list[str]]]:
    warned: list[str] = []
    folder = FolderLake(lake.folder)
    made = ArchiveThenLive(
        folder,
        LocalRows(folder),
        topic,
        bootstrap=topics.bootstrap,
        follow=follow,
        warn=warned.append,
        **more,
    )
    try:
        yield made, warned
    finally:
        made.close()


def rows_of(made: ArchiveThenLive) -> list[ConsoleRow]:
    found: list[ConsoleRow] = []
    while not made.done:
        found += made.read(0.2)
    return found


def offsets_of(found: list[ConsoleRow], partition: int = 0) -> list[int]:
    return [row.offset for row in found if row.partition == partition]


def test_archived_and_live_messages_look_the_same_and_come_once(topics: Topics, lake: HandLake) -> None:
    topic = topics.create(partitions=3)
    topics.produce(topic, messages(0, 300))
    lake.take(topic)
    topics.produce(topic, messages(300, 100))
    archived = consume(topics, lake, topic)
    live = penstock(
        "consume", topic, "--from-beginning", "--no-follow", "--format", "json", bootstrap=topics.bootstrap
    )
    assert (archived.code, archived.err) == (0, "")
    assert len(archived.out.splitlines()) == 400
    assert sorted(archived.out.splitlines()) == sorted(live.out.splitlines())
    assert by_partition(places(archived.out)) == {0: list(range(200)), 1: list(range(200))}
    # Between the partitions the oldest is first: neither waits for the end of the other.
    assert {at for at, _ in places(archived.out)[:20]} == {0, 1}


def test_most_and_a_partition_and_text(topics: Topics, lake: HandLake) -> None:
    topic = topics.create(partitions=2)
    topics.produce(topic, messages(0, 20))
    lake.take(topic)
    done = penstock(
        "consume", topic, "--from-archive", str(lake.folder), "--max", "3", "--partition", "1",
        bootstrap=topics.bootstrap,
    )  # fmt: skip
    assert (done.code, done.out) == (0, "1\n3\n5\n")
    assert "has no partition 9" in consume(topics, lake, topic, "--partition", "9").said()


def test_what_retention_took_from_the_broker_is_there(topics: Topics, lake: HandLake) -> None:
    topic = topics.create(partitions=2)
    topics.produce(topic, messages(0, 200))
    lake.take(topic)
    topics.produce(topic, messages(200, 20))
    for partition in (0, 1):
        topics.delete_records(topic, partition, 100)
    done = consume(topics, lake, topic)
    assert (done.code, done.err) == (0, "")
    assert by_partition(places(done.out)) == {0: list(range(110)), 1: list(range(110))}


def test_a_true_gap_is_reported(topics: Topics, lake: HandLake) -> None:
    topic = topics.create()
    topics.count_up(topic, 0, 30)
    topics.delete_records(topic, 0, 5)
    lake.take(topic, until=10)
    topics.delete_records(topic, 0, 12)
    lake.take(topic, until=20)
    topics.delete_records(topic, 0, 26)
    done = consume(topics, lake, topic)
    assert done.code == 0
    assert places(done.out) == [(0, offset) for offset in [*range(5, 10), *range(12, 20), *range(26, 30)]]
    lines = done.err.splitlines()
    assert [line.partition("-0: ")[2] for line in lines] == [
        "offsets 0 to 4 are neither archived nor on the broker any more",
        "offsets 10 to 11 are neither archived nor on the broker any more",
        "offsets 20 to 25 are neither archived nor on the broker any more",
    ]


def test_archiving_and_retention_go_on_meanwhile(topics: Topics, lake: HandLake) -> None:
    topic = topics.create()
    topics.count_up(topic, 0, 3000)
    lake.take(topic, until=2500)
    with reader(topics, lake, topic) as (made, warned):
        found = list(made.read(0.2))
        assert len(found) == 1000
        # Behind our back, and far beyond where the manifest that we have ends.
        lake.take(topic, until=2800)
        topics.delete_records(topic, 0, 2700)
        found += rows_of(made)
    assert offsets_of(found) == list(range(3000))
    assert warned == []


def test_files_that_a_compaction_replaces_are_no_trouble(topics: Topics, lake: HandLake) -> None:
    topic = topics.create()
    for first in range(0, 4000, 1000):
        topics.count_up(topic, first, 1000)
        lake.take(topic)
    with reader(topics, lake, topic) as (made, warned):
        found = list(made.read(0.2))
        lake.merge(topic)
        found += rows_of(made)
    assert offsets_of(found) == list(range(4000))
    assert warned == []


def test_retention_that_overtakes_a_live_reader_is_filled_from_the_archive(
    topics: Topics, lake: HandLake
) -> None:
    topic = topics.create()
    topics.count_up(topic, 0, 100)
    lake.take(topic)
    with reader(topics, lake, topic, follow=True) as (made, warned):
        found: list[ConsoleRow] = []
        while len(found) < 100:
            found += made.read(0.2)
        # As for a reader that was held up for so long that its position is gone.
        topics.count_up(topic, 100, 100)
        lake.take(topic, until=180)
        topics.delete_records(topic, 0, 190)
        found += made._in_turn(ConsoleRow(topic, 0, 190, NOON_MS, None, b"190"))
    assert offsets_of(found) == [*range(180), 190]
    assert [line.partition("-0: ")[2] for line in warned] == [
        "offsets 180 to 189 are neither archived nor on the broker any more"
    ]


def test_a_topic_that_is_made_again_while_it_is_followed_is_told(topics: Topics, lake: HandLake) -> None:
    """What it got was passed over until it was as long as the old one."""
    topic = topics.create()
    topics.count_up(topic, 0, 100)
    lake.take(topic)
    admin = Admin(topics.bootstrap)
    with reader(topics, lake, topic, follow=True) as (made, _):
        found: list[ConsoleRow] = []
        while len(found) < 100:
            found += made.read(0.2)
        with RawClient(topics.bootstrap) as client:
            topic_id = client.describe([topic])[topic].topic_id
        assert topic_id is not None
        assert uuid_text(topic_id) == admin.topic_id(topic)
        admin.delete(topic)
        admin.create(topic, partitions=1)
        with pytest.raises(TopicRemadeError, match="was deleted and made again"):
            rows_of(made)


def test_retention_that_takes_all_the_broker_had_is_filled_from_the_archive(
    topics: Topics, lake: HandLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then no later message comes that would show the gap."""
    topic = topics.create(partitions=2)
    topics.produce(topic, messages(0, 200))
    lake.take(topic, until=60)
    honest = ArchiveThenLive._go_live

    def go_live(made: ArchiveThenLive, info: TopicInfo) -> None:
        lake.take(topic, until=90)
        topics.delete_records(topic, 0, 100)
        honest(made, info)

    monkeypatch.setattr(ArchiveThenLive, "_go_live", go_live)
    with reader(topics, lake, topic) as (made, warned):
        found = rows_of(made)
    assert offsets_of(found, 0) == list(range(90))
    assert offsets_of(found, 1) == list(range(100))
    assert [line.partition("-0: ")[2] for line in warned] == [
        "offsets 90 to 99 are neither archived nor on the broker any more"
    ]


def test_a_topic_made_anew_is_said_and_nothing_is_mixed_up(topics: Topics, lake: HandLake) -> None:
    topic = topics.create()
    topics.count_up(topic, 0, 10)
    lake.take(topic)
    topics.delete(topic)
    assert topics.create() == topic
    topics.count_up(topic, 100, 5)
    for archived in (False, True):
        if archived:
            lake.take(topic)
        done = consume(topics, lake, topic)
        assert done.code == 0
        values = [int(line["value"]) for line in map(json.loads, done.out.splitlines())]
        assert values == [*range(10), *range(100, 105)]
        assert "was deleted and made anew" in done.said()
    topics.delete(topic)
    gone = consume(topics, lake, topic)
    assert len(gone.out.splitlines()) == 15
    assert "there is no topic" in gone.err.splitlines()[-1]


def test_a_damaged_file_is_named_and_skipped_on_request(topics: Topics, lake: HandLake) -> None:
    topic = topics.create()
    for hour in range(3):
        topics.produce(topic, [Sent(b"v", timestamp=NOON_MS + hour * HOUR_MS) for _ in range(10)])
    lake.take(topic)
    damaged = sorted(lake.folder.glob("topic=*/**/*.parquet"))[1]
    content = bytearray(damaged.read_bytes())
    content[4:100] = bytes(96)
    damaged.write_bytes(content)
    done = consume(topics, lake, topic)
    assert done.code == 1
    assert damaged.name in done.said()
    skipped = consume(topics, lake, topic, "--skip-corrupt")
    assert places(skipped.out) == [(0, offset) for offset in [*range(10), *range(20, 30)]]
    assert f"{damaged.name}, with 10 rows" in skipped.said()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--offset", "1"], 2, "give one of"),
        (["--skip-corrupt", "--from-beginning"], 2, "give one of"),
    ],
)
def test_wrong_use_is_said(
    topics: Topics, lake: HandLake, arguments: list[str], code: int, said: str
) -> None:
    done = consume(topics, lake, "t", *arguments)
    assert done.code == code
    assert said in done.err


def test_what_is_no_archive_is_said(topics: Topics, lake: HandLake) -> None:
    topic = topics.create()
    assert "is no archive" in consume(topics, lake, topic).said()
    topics.count_up(topic, 0, 1)
    lake.take(topic)
    assert "holds no topic other, only" in consume(topics, lake, "other").said()
    wrong = penstock("consume", topic, "--from-archive", "s3://bucket/x", bootstrap=topics.bootstrap)
    assert "Hadoop's name for S3 is s3a" in wrong.said()


def test_following_goes_on_with_what_arrives(topics: Topics, lake: HandLake) -> None:
    topic = topics.create()
    topics.count_up(topic, 0, 10)
    lake.take(topic)
    command = [*COMMAND, "consume", topic, "--from-archive", str(lake.folder), "--max", "15"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(topics.bootstrap)
    ) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(10)] == [b"%d\n" % n for n in range(10)]
        topics.count_up(topic, 10, 5)
        out, err = process.communicate()
    assert out == b"".join(b"%d\n" % n for n in range(10, 15))
    assert (process.returncode, err) == (0, b"")


def test_through_spark_it_is_the_same(
    spark: SparkSession, topics: Topics, lake: HandLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for hdfs: and s3a:, here on a folder, in steps that are smaller than the archive."""
    monkeypatch.setattr("penstock.spark.pipelines.from_archive.files._WAVE_ROWS", 60)
    topic = topics.create(partitions=2)
    for first in (0, 100):
        topics.produce(topic, messages(first, 100))
        lake.take(topic)
    folder = FolderLake(lake.folder)
    archive = Manifest.load(folder).topic(topic)
    assert archive is not None
    files = archive.files.values()
    through = SparkRows(folder, own_session(spark))
    for partition, start, end in ((0, 0, 100), (1, 13, 77)):
        local = list(LocalRows(folder).batches(files, partition, start, end))
        found = list(through.batches(files, partition, start, end))
        assert [row for batch in found for row in console_rows(topic, batch)] == [
            row for batch in local for row in console_rows(topic, batch)
        ]
        assert sum(batch.num_rows for batch in found) == end - start
