"""Replay: what was archived comes back as it was, where it was, once."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.integration.spark.hand_lake import HandLake
from tests.integration.spark.topics import Sent, Topics

from penstock.client.raw import EARLIEST, LATEST, RawClient, TopicPartition
from penstock.core.errors import PenstockError
from penstock.spark.pipelines import archive, replay
from penstock.spark.pipelines.replaying.errors import OtherRecordsError, OtherWriterError
from penstock.spark.pipelines.replaying.summary import Replayed
from penstock.spark.pipelines.replaying.tail import Tail, look
from penstock.spark.pipelines.replaying.waves import next_wave
from penstock.spark.pipelines.replaying.writing import Writer
from penstock.spark.schema import ARROW_TYPES

NOON_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
WRITER_COLUMNS = ("partition", "offset", "timestamp", "key", "value", "headers")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Warnings:
    """A listener that keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def warn(self, line: str) -> None:
        self.lines.append(line)

    def wave_done(self, so_far: Replayed, rows_left: int) -> None: ...

    def starting(self) -> None: ...

    def started(self) -> None: ...


def mixed(count: int, partitions: int = 3, first: int = 0) -> list[Sent]:
    """Of every sort, over several hours and out of order by their clocks; the last partition stays empty."""
    return [
        Sent(
            value=None if n % 11 == 0 else b"value-%d" % n,
            key=None if n % 3 == 0 else b"key-%d" % (n % 7),
            partition=n % (partitions - 1),
            timestamp=NOON_MS + (n % 4) * HOUR_MS + n,
            headers=() if n % 2 else (("tags", b"a, b" if n % 4 else b"c"), ("n", b"%d" % n), ("none", None)),
        )
        for n in range(first, first + count)
    ]


def own(sent: Sequence[Sent]) -> list[Sent]:
    """Without the headers of the replay."""
    return [
        record._replace(
            headers=tuple(pair for pair in record.headers if not pair[0].startswith("penstock.replay."))
        )
        for record in sent
    ]


def origins(sent: Sequence[Sent]) -> list[tuple[int, int, int]]:
    found = []
    for record in sent:
        headers = dict(record.headers)
        offset, timestamp = headers["penstock.replay.offset"], headers["penstock.replay.timestamp"]
        assert offset is not None
        assert timestamp is not None
        found.append((record.partition, int(offset), int(timestamp)))
    return found


def held(topics: Topics, topic: str) -> int:
    with RawClient(topics.bootstrap) as client:
        ats = [TopicPartition(topic, number) for number in client.describe([topic])[topic].partitions]
        ends = client.offsets(dict.fromkeys(ats, LATEST))
        starts = client.offsets(dict.fromkeys(ats, EARLIEST))
        return sum(ends[at].offset - starts[at].offset for at in ats)


class Lake(HandLake):
    def __init__(self, spark: SparkSession, topics: Topics, folder: Path) -> None:
        super().__init__(topics.bootstrap, folder)
        self.spark, self.topics = spark, topics

    def replay(self, topic: str, **options: Any) -> Replayed:
        return replay(str(self.folder), topic, bootstrap=self.topics.bootstrap, spark=self.spark, **options)

    def files(self) -> list[Path]:
        return sorted(self.folder.glob("topic=*/**/*.parquet"))


@pytest.fixture
def lake(spark: SparkSession, topics: Topics, tmp_path: Path) -> Lake:
    return Lake(spark, topics, tmp_path / "lake")


def test_everything_comes_back_as_it_was_and_only_once(topics: Topics, lake: Lake) -> None:
    source, target = topics.create("source", partitions=3), f"{topics.prefix}.target"
    sent = mixed(500)
    for index, codec in enumerate(CODECS):
        topics.produce(source, sent[index * 100 : (index + 1) * 100], **{"compression.type": codec})
    archive(source, to=str(lake.folder), bootstrap=topics.bootstrap, spark=lake.spark)
    done = lake.replay(target)
    assert (done.created, done.rows, done.skipped) == (True, 500, 0)
    assert {at: partition.rows for at, partition in done.partitions.items()} == {0: 250, 1: 250, 2: 0}
    original, found = topics.consume(source, 500), topics.consume(target, 500)
    assert own(found) == original
    assert origins(found) == [
        (at, offset, record.timestamp)
        for at in (0, 1)
        for offset, record in enumerate(record for record in original if record.partition == at)
    ]
    again = lake.replay(target)
    assert (again.created, again.rows) == (False, 0)
    topics.produce(source, mixed(50, first=500))
    lake.take(source)
    assert lake.replay(target).rows == 50
    assert own(topics.consume(target, 550)) == topics.consume(source, 550)
    assert held(topics, target) == 550


def test_a_replay_that_was_cut_off_goes_on_where_each_partition_stopped(topics: Topics, lake: Lake) -> None:
    source, target = topics.create("source", partitions=3), topics.create("target", partitions=3)
    topics.produce(source, mixed(400))
    lake.take(source)
    whole = f"{topics.prefix}.whole"
    assert lake.replay(whole).rows == 400
    # A part of one partition and nothing of the other, as a killed run leaves it.
    topics.produce(target, topics.consume(whole, 400)[:117])
    done = lake.replay(target)
    assert {at: (partition.rows, partition.last) for at, partition in done.partitions.items()} == {
        0: (83, 199),
        1: (200, 199),
        2: (0, -1),
    }
    assert own(topics.consume(target, 400)) == topics.consume(source, 400)
    assert held(topics, target) == 400


def test_many_steps_and_a_stop_between_them(
    topics: Topics, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps smaller than the archive, whose files overlap: no row is in two of them, or in none."""
    monkeypatch.setattr("penstock.spark.pipelines.replaying.run.next_wave", partial(next_wave, rows_max=60))
    source, target = topics.create("source", partitions=3), f"{topics.prefix}.target"
    for first in range(0, 300, 100):
        # One partition is ahead of the other, so that a step ends at another offset in each.
        ahead = 80 if first == 0 else 0
        sent = mixed(100, first=first)
        topics.produce(source, [record._replace(partition=1) for record in sent[:ahead]] + sent[ahead:])
        lake.take(source)
    stop = threading.Event()

    class StopSoon(Warnings):
        def wave_done(self, so_far: Replayed, rows_left: int) -> None:
            assert rows_left > 0
            stop.set()

    begun = lake.replay(target, listener=StopSoon(), stop=stop)
    assert not begun.finished
    assert 0 < begun.rows < 300
    done = lake.replay(target)
    assert done.finished
    assert begun.rows + done.rows == 300
    assert own(topics.consume(target, 300)) == topics.consume(source, 300)
    assert held(topics, target) == 300


def test_a_task_that_spark_repeats_adds_nothing(topics: Topics, lake: Lake) -> None:
    target = topics.create("target", partitions=2)
    writer = Writer(topics.bootstrap, target, "t/1", append=False)
    rows = pa.RecordBatch.from_pylist(
        [
            {"partition": n // 5, "offset": n % 5, "timestamp": n * 1000, "key": None, "value": b"%d" % n}
            for n in range(10)
        ],
        schema=pa.schema([(name, ARROW_TYPES[name]) for name in WRITER_COLUMNS]),
    )
    # Cut off in the second partition, then whole, then whole again.
    first = writer.write(iter([rows.slice(0, 7)]))
    assert [(result.partition, result.rows, result.skipped) for result in first] == [(0, 5, 0), (1, 2, 0)]
    again = writer.write(iter([rows.slice(0, 3), rows.slice(3)]))
    assert [(result.partition, result.rows, result.skipped) for result in again] == [(0, 0, 5), (1, 3, 2)]
    assert [result.rows for result in writer.write(iter([rows]))] == [0, 0]
    assert [record.value for record in topics.consume(target, 10)] == [b"%d" % n for n in range(10)]
    assert held(topics, target) == 10
    with pytest.raises(OtherRecordsError, match=r"records of another replay \(t/1\)"):
        replace(writer, source="t/2").write(iter([rows]))


def test_another_writer_is_noticed(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    target = topics.create("target")
    rows = pa.RecordBatch.from_pylist(
        [{"partition": 0, "offset": 0, "timestamp": 0, "key": None, "value": b"v"}],
        schema=pa.schema([(name, ARROW_TYPES[name]) for name in WRITER_COLUMNS]),
    )

    def meanwhile(*given: Any, **named: Any) -> Tail:
        tail = look(*given, **named)
        topics.produce(target, [Sent(b"other")])
        return tail

    monkeypatch.setattr("penstock.spark.pipelines.replaying.writing.look", meanwhile)
    with pytest.raises(OtherWriterError, match="somebody else writes to"):
        Writer(topics.bootstrap, target, "t/1", append=False).write(iter([rows]))
    assert Writer(topics.bootstrap, target, "t/1", append=True).write(iter([rows]))[0].rows == 0


def test_selections(topics: Topics, lake: Lake) -> None:
    source = topics.create("source", partitions=3)
    topics.produce(source, mixed(120))
    lake.take(source)
    early, late = NOON_MS + HOUR_MS + 5, NOON_MS + 3 * HOUR_MS
    selections: list[tuple[dict[str, Any], Callable[[Sent], bool]]] = [
        ({"partitions": [1]}, lambda record: record.partition == 1),
        ({"key": "key-4"}, lambda record: record.key == b"key-4"),
        ({"tags": ["b"]}, lambda record: ("tags", b"a, b") in record.headers),
        ({"tags": ["c", "a"]}, lambda record: bool(record.headers)),
        ({"tags": ["ab"]}, lambda _: False),
        ({"since": early, "until": late}, lambda record: early <= record.timestamp < late),
    ]
    original = topics.consume(source, 120)
    for number, (options, wanted) in enumerate(selections):
        target = f"{topics.prefix}.{number}"
        expected = [record for record in original if wanted(record)]
        assert lake.replay(target, **options).rows == len(expected), options
        assert own(topics.consume(target, len(expected))) == expected
    assert lake.replay(target, **options).rows == 0


def test_other_records_in_the_target_are_refused_unless_told(topics: Topics, lake: Lake) -> None:
    source, target = topics.create("source", partitions=2), topics.create("target", partitions=2)
    topics.count_up(source, 0, 20, partitions=2)
    lake.take(source)
    topics.produce(target, [Sent(b"other", partition=1)])
    with pytest.raises(PenstockError, match=r"target-1 holds other records: .*--append"):
        lake.replay(target)
    assert lake.replay(target, append=True).rows == 20
    topics.produce(target, [Sent(b"later", partition=0)])
    # Looked for behind what others wrote: a second run adds nothing.
    assert lake.replay(target, append=True).rows == 0
    found = topics.consume(target, 22)
    assert next(record.value for record in found if record.partition == 1) == b"other"
    assert [record.value for record in found if record.partition == 0][-1] == b"later"
    with pytest.raises(PenstockError, match=r"target-0 holds other records"):
        lake.replay(target)


def test_another_selection_is_another_replay(topics: Topics, lake: Lake) -> None:
    source, target = topics.create("source"), f"{topics.prefix}.target"
    topics.produce(source, [Sent(b"%d" % n, key=b"%d" % (n % 2)) for n in range(10)])
    lake.take(source)
    assert lake.replay(target, key="0").rows == 5
    with pytest.raises(PenstockError, match=r"holds records of another replay \(.*source/[0-9a-f]+\)"):
        lake.replay(target, key="1")


def test_a_target_that_does_not_fit_is_said(topics: Topics, lake: Lake) -> None:
    source, small = topics.create("source", partitions=3), topics.create("small", partitions=1)
    topics.count_up(source, 0, 6, partitions=3)
    lake.take(source)
    with pytest.raises(
        PenstockError, match=r"has 1 partition, but .* has records in partition 2: give it more"
    ):
        lake.replay(small)
    with pytest.raises(PenstockError, match="--partitions 2 is too few"):
        lake.replay(f"{topics.prefix}.new", partition_count=2)
    with pytest.raises(PenstockError, match=r"there is no topic .*new"):
        lake.replay(f"{topics.prefix}.new", create=False)
    with pytest.raises(PenstockError, match="has no partition 7"):
        lake.replay(small, partitions=[7])
    warned = Warnings()
    assert lake.replay(small, partitions=[0], listener=warned).rows == 2
    assert any("some that are replayed are older" in line for line in warned.lines)
    assert lake.replay(f"{topics.prefix}.wide", partition_count=5).rows == 6


def test_a_damaged_file_is_named_and_skipped_on_request(topics: Topics, lake: Lake) -> None:
    source, target = topics.create("source"), f"{topics.prefix}.target"
    for hour in range(3):
        topics.produce(source, [Sent(b"%d" % n, timestamp=NOON_MS + hour * HOUR_MS) for n in range(10)])
        lake.take(source)
    damaged = lake.files()[1]
    content = bytearray(damaged.read_bytes())
    content[4:100] = bytes(96)
    damaged.write_bytes(content)
    with pytest.raises(PenstockError, match=damaged.name):
        lake.replay(target)
    assert held(topics, target) == 0
    warned = Warnings()
    done = lake.replay(target, skip_corrupt=True, listener=warned)
    assert (done.rows, len(done.corrupt)) == (20, 1)
    assert damaged.name in done.corrupt[0]
    assert any(damaged.name in line and "10 rows" in line for line in warned.lines)


def test_an_archive_of_several_topics_or_none_asks_which(topics: Topics, lake: Lake) -> None:
    with pytest.raises(PenstockError, match="is no archive"):
        lake.replay("new")
    topic, other = topics.create("one"), topics.create("two")
    topics.count_up(topic, 0, 3)
    topics.count_up(other, 0, 4)
    lake.take(topic)
    lake.take(other)
    with pytest.raises(PenstockError, match=r"holds 2 topics .*--source-topic"):
        lake.replay(f"{topics.prefix}.target")
    with pytest.raises(PenstockError, match="holds no topic three, only"):
        lake.replay(f"{topics.prefix}.target", source_topic="three")
    assert lake.replay(f"{topics.prefix}.target", source_topic=other).rows == 4
