"""A log that lost its end behind the archive's back (A5), with a real broker: killed, its segment cut, grown again."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.integration.cluster.harness import cut_in_half
from tests.integration.spark.lakes import ALake, Watcher
from tests.integration.spark.topics import Sent, Topics

from penstock.client.raw import TopicPartition
from penstock.spark.pipelines import replay
from penstock.spark.pipelines.archive.source import Source
from penstock.spark.pipelines.from_archive.files import LocalRows
from penstock.spark.pipelines.from_archive.handover import ArchiveThenLive
from penstock.spark.planning import Range
from penstock.testing import BrokerProcess

RECORDS = 20


@pytest.fixture
def process(tmp_path: Path) -> Iterator[BrokerProcess]:
    made = BrokerProcess(tmp_path / "data", {"log.retention.ms": "-1"})
    made.start()
    try:
        yield made
    finally:
        made.stop()


def produce(topics: Topics, topic: str, sort: str, count: int) -> None:
    """In batches of their own, so that a cut leaves some."""
    messages = [Sent(f"{sort} {number}".encode()) for number in range(count)]
    topics.produce(topic, messages, **{"batch.num.messages": 1})


def lose_end(process: BrokerProcess, topic: str) -> None:
    process.kill()
    (segment,) = (process.data_dir / "topics" / topic / "Partition-0").glob("*.log")
    cut_in_half(segment)
    process.start()


@pytest.mark.parametrize("required", ["true", "false"])
def test_it_is_archived_again_from_where_it_parted(
    spark: SparkSession, process: BrokerProcess, tmp_path: Path, required: str
) -> None:
    topics = Topics(process.bootstrap)
    topic = topics.create("t", config={"penstock.archive.required": required})
    lake = ALake(spark, process.bootstrap, tmp_path / "lake")
    produce(topics, topic, "old", RECORDS)
    lake.archive(topic)
    lose_end(process, topic)
    produce(topics, topic, "new", RECORDS)
    with closing(Source(process.bootstrap, [topic])) as source:
        (log,) = source.logs(source.find()[0].values()).values()
        ((_, parted), (_, end)) = source.epochs([Range(TopicPartition(topic, 0), 0, log.latest)])[
            TopicPartition(topic, 0)
        ]
    assert 0 < parted < RECORDS < end == log.latest
    expected = [b"old %d" % number for number in range(parted)] + [
        b"new %d" % number for number in range(RECORDS)
    ]
    # Before the archive has noticed: what it has of the lost end is not shown.
    assert from_archive(lake, topic) == expected
    watcher = Watcher()
    lake.archive(topic, listener=watcher)
    assert [line for line in watcher.warnings if f"another one from offset {parted} on" in line]
    rows = lake.rows(topic)
    assert [row.offset for row in rows] == list(range(parted + RECORDS))
    assert [row.value for row in rows] == expected
    assert from_archive(lake, topic) == expected
    done = replay(
        str(lake.folder), f"{topic}-again", bootstrap=process.bootstrap, source_topic=topic, spark=spark
    )
    assert (done.rows, done.finished) == (len(expected), True)


def from_archive(lake: ALake, topic: str) -> list[bytes | None]:
    reader = ArchiveThenLive(
        lake.lake, LocalRows(lake.lake), topic, bootstrap=lake.bootstrap, follow=False, warn=lambda line: None
    )
    try:
        found = []
        while not reader.done:
            found += [row.value for row in reader.read(1.0)]
        return found
    finally:
        reader.close()
