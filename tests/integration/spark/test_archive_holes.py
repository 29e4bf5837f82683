"""Segments that are gone from the middle of a log, with a real broker and Spark (A4)."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.integration.spark.lakes import ALake, Watcher
from tests.integration.spark.topics import Sent, Topics

from penstock.client.admin.admin import Admin
from penstock.core.archive_progress import ArchiveProgress
from penstock.spark.errors import reason
from penstock.spark.pipelines.archive.errors import HoleInLogError
from penstock.testing import BrokerProcess

RECORDS = 10
SETTINGS = {"penstock.archive.required": "true", "internal.segment.bytes": "120"}


def take_middle(process: BrokerProcess, topic: str, backup: Path) -> Path:
    """Move three segments of a stopped broker away; returns where they belong."""
    folder = process.data_dir / "topics" / topic / "Partition-0"
    backup.mkdir()
    for segment in sorted(folder.glob("*.log"))[3:6]:
        for file in folder.glob(f"{segment.stem}.*"):
            file.rename(backup / file.name)
    return folder


def told(process: BrokerProcess, topic: str) -> int:
    """How far retention may delete."""
    configs = Admin(process.bootstrap).describe(topic).configs or {}
    progress = ArchiveProgress.parse(configs.get("penstock.archive.progress", ""))
    return 0 if progress is None else progress.next_offsets.get(0, 0)


def test_what_is_missing_is_not_taken_for_archived(spark: SparkSession, tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path / "data", {"log.retention.ms": "-1"})
    process.start()
    try:
        topics = Topics(process.bootstrap)
        topic = topics.create("t", config=SETTINGS)
        for number in range(RECORDS):
            topics.produce(topic, [Sent(b"%d" % number)])
        process.stop()
        folder = take_middle(process, topic, tmp_path / "backup")
        process.start()
        lake = ALake(spark, process.bootstrap, tmp_path / "lake")
        with pytest.raises(HoleInLogError, match="offsets 3 to 5"):
            lake.archive(topic)
        assert told(process, topic) <= 3
        frame = spark.read.format("penstock").options(
            **{"kafka.bootstrap.servers": process.bootstrap, "subscribe": topic}
        )
        with pytest.raises(Exception, match="offsets 3 to 5") as caught:
            frame.load().collect()
        assert "failOnDataLoss=false" in reason(caught.value)
        # Given up, in another lake.
        watcher, other = Watcher(), ALake(spark, process.bootstrap, tmp_path / "other")
        other.archive(topic, fail_on_data_loss=False, listener=watcher, take_over=True)
        assert [line for line in watcher.warnings if "lost the offsets 3 to 5" in line]
        assert [row.offset for row in other.rows(topic)] == [0, 1, 2, 6, 7, 8, 9]
        # What the message advises.
        process.stop()
        for file in (tmp_path / "backup").iterdir():
            file.rename(folder / file.name)
        process.start()
        again = ALake(spark, process.bootstrap, tmp_path / "lake")
        again.archive(topic)
        assert [row.value for row in again.rows(topic)] == [b"%d" % number for number in range(RECORDS)]
    finally:
        process.stop()
