"""Archives, as the tests make and look at them."""

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import Row, SparkSession
from tests.integration.spark.topics import Sent

from penstock.spark.pipelines import archive
from penstock.spark.pipelines.archive.lake import FolderLake
from penstock.spark.pipelines.archive.manifest import Manifest
from penstock.spark.pipelines.archive.reader import archived
from penstock.spark.pipelines.archive.rounds import RoundDone
from penstock.spark.pipelines.archive.summary import Summary


def is_writing(lake: Path) -> bool:
    """Whether a round's files are on their way; walked, since they may go while one looks."""
    staging = lake / "_penstock" / "staging"
    return any(name.startswith("part-") for _, _, names in os.walk(staging) for name in names)


@dataclass
class Watcher:
    """A listener that keeps what it hears."""

    warnings: list[str] = field(default_factory=list)
    rounds: list[RoundDone] = field(default_factory=list)
    merged: int = 0
    stop: threading.Event = field(default_factory=threading.Event)
    stop_after_rounds: int | None = None

    def started(self) -> None:
        pass

    def warn(self, line: str) -> None:
        self.warnings.append(line)

    def round_done(self, done: RoundDone, summary: Summary) -> None:
        self.rounds.append(done)
        if len(self.rounds) == self.stop_after_rounds:
            self.stop.set()

    def compacted(self, files: int) -> None:
        self.merged += files


@dataclass
class ALake:
    """One lake and the session and broker that fill it."""

    spark: SparkSession
    bootstrap: str
    folder: Path

    def archive(self, *topics: str, **more: Any) -> Summary:
        watcher = more.setdefault("listener", Watcher())
        more.setdefault("stop", watcher.stop)
        return archive(topics, to=str(self.folder), bootstrap=self.bootstrap, spark=self.spark, **more)

    @property
    def lake(self) -> FolderLake:
        return FolderLake(self.folder)

    @property
    def manifest(self) -> Manifest:
        return Manifest.load(self.lake)

    def rows(self, topic: str, **more: Any) -> list[Row]:
        """Everything archived, by partition and offset."""
        frame = archived(self.spark, str(self.folder), topic, **more)
        return sorted(frame.collect(), key=lambda row: (row.partition, row.offset))

    def sent(self, topic: str, **more: Any) -> list[Sent]:
        return [as_sent(row) for row in self.rows(topic, **more)]

    def files(self) -> list[str]:
        """Data files, wherever they lie."""
        return [stored.path for stored in self.lake.list("") if stored.path.endswith(".parquet")]

    def check(self) -> None:
        """Exactly the files of the manifest are there, each in its place, and nothing is left in staging."""
        named = self.manifest.files
        assert self.files() == sorted(named)
        left = [stored.path for stored in self.lake.list("_penstock/staging")]
        assert left == []


def as_sent(row: Row) -> Sent:
    headers = tuple(
        (header.key, None if header.value is None else bytes(header.value)) for header in row.headers or ()
    )
    return Sent(
        None if row.value is None else bytes(row.value),
        None if row.key is None else bytes(row.key),
        row.partition,
        round(row.timestamp.timestamp() * 1000),
        headers,
    )
