"""The archive when things break: a crash at every step, damaged files, other owners, places that are none."""

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyspark.sql import SparkSession
from tests.integration.spark.forwarding import Forwarding
from tests.integration.spark.lakes import ALake, Watcher
from tests.integration.spark.topics import Sent, Topics

from penstock.spark.pipelines import archive
from penstock.spark.pipelines.archive import rounds
from penstock.spark.pipelines.archive import run as archive_run
from penstock.spark.pipelines.archive.errors import (
    ConflictError,
    CorruptFileError,
    LakeError,
    LockHeldError,
)
from penstock.spark.pipelines.archive.failures import spark_errors
from penstock.spark.pipelines.archive.hadoop_lake import HadoopLake
from penstock.spark.pipelines.archive.lake import FolderLake, Stored
from penstock.spark.pipelines.archive.lock import PATH as LOCK
from penstock.spark.pipelines.archive.lock import Owner, process_space
from penstock.spark.pipelines.archive.rounds import RoundDone
from penstock.spark.pipelines.archive.summary import Summary
from penstock.spark.pipelines.status import process_started
from penstock.testing import BrokerProcess


@pytest.fixture
def lake(spark: SparkSession, topics: Topics, tmp_path: Path) -> ALake:
    return ALake(spark, topics.bootstrap, tmp_path / "lake")


class Crash(BaseException):
    """The process is gone: nothing after this reaches the disk."""


class CrashingLake(FolderLake):
    """Dies before or after the n-th call of an operation, and then does nothing any more."""

    def __init__(self, folder: Path, operation: str, nth: int, *, after: bool) -> None:
        super().__init__(folder)
        self._operation, self._left, self._after = operation, nth, after
        self.dead = False

    def __getattribute__(self, name: str) -> object:
        found = super().__getattribute__(name)
        if name not in {"list", "read", "create", "replace", "sync", "move", "delete"}:
            return found

        def call(*arguments: object) -> object:
            if self.dead:
                raise Crash
            # The lock and its heartbeat come at any time; crashes are counted without them.
            if name != self._operation or (arguments and arguments[0] == LOCK):
                return found(*arguments)  # type: ignore[operator]
            self._left -= 1
            if self._left == 0 and not self._after:
                self.dead = True
                raise Crash
            result = found(*arguments)  # type: ignore[operator]
            if self._left == 0:
                self.dead = True
                raise Crash
            return result

        return call


# Where a round may be when the process dies: two rounds of two files each, then a compaction.
STEPS = [
    ("sync", 1, False),
    ("create", 1, False),
    ("create", 1, True),
    ("move", 1, False),
    ("move", 1, True),
    ("move", 2, True),
    ("create", 2, False),
    ("create", 2, True),
    ("create", 3, True),  # of the compaction
    ("move", 5, False),
    ("move", 5, True),
]


@pytest.mark.parametrize(("operation", "nth", "after"), STEPS)
def test_a_crash_at_any_step_loses_nothing_and_doubles_nothing(
    lake: ALake, topics: Topics, monkeypatch: pytest.MonkeyPatch, operation: str, nth: int, after: bool
) -> None:
    topic = topics.create(partitions=2)
    hour_ms = 3_600_000
    topics.produce(
        topic,
        [Sent(b"%d" % n, partition=n % 2, timestamp=1_700_000_000_000 + n % 2 * hour_ms) for n in range(40)],
    )
    crashing = CrashingLake(lake.folder, operation, nth, after=after)
    monkeypatch.setattr(archive_run, "open_lake", lambda *_: crashing)
    with pytest.raises(Crash):
        lake.archive(topic, round_rows=20, compact_files=1)
    assert crashing.dead
    # A reader that comes now sees whole rounds, wherever their files lie: no row twice, and no hole.
    if topic in lake.manifest.topics:
        seen = sorted(int(row.value) for row in lake.rows(topic))
        assert seen in (list(range(20)), list(range(40)))
    monkeypatch.undo()
    lake.lake.delete(LOCK)  # its owner is this process, which is alive after all
    lake.archive(topic, compact_files=1)
    assert sorted(int(row.value) for row in lake.rows(topic)) == list(range(40))
    lake.check()


@pytest.fixture
def two_files(lake: ALake, topics: Topics) -> tuple[str, Path, Path]:
    """A topic in two files, of ten rows each, not compressed: only a checksum can tell that a value has changed."""
    topic = topics.create()
    for first in (0, 10):
        topics.produce(topic, [Sent(b"value %d" % n * 100) for n in range(first, first + 10)])
        lake.archive(topic, compression="none")
    first_path, second_path = sorted(lake.files())
    return topic, lake.folder / first_path, lake.folder / second_path


def flip_a_page(path: Path) -> None:
    """One bit of a value."""
    content = bytearray(path.read_bytes())
    content[content.index(b"value 13") + 4] ^= 0x01
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


@pytest.mark.parametrize(
    ("damage", "words"),
    [(flip_a_page, "is damaged"), (truncate, "has .* bytes, not"), (Path.unlink, "is missing")],
)
def test_a_damaged_file_is_named_and_skipped_only_on_request(
    lake: ALake, two_files: tuple[str, Path, Path], damage: object, words: str
) -> None:
    topic, path, two = two_files
    damage(two)  # type: ignore[operator]
    with pytest.raises(CorruptFileError, match=words) as raised, spark_errors(str(lake.folder)):
        lake.rows(topic)
    assert two.name in str(raised.value)
    assert path.name not in str(raised.value)
    told: list[str] = []
    kept = lake.rows(topic, skip_corrupt=True, report=told.append)
    assert [row.offset for row in kept] == list(range(10))
    assert len(told) == 1
    assert two.name in told[0]


def test_a_damaged_file_stops_its_compaction_and_nothing_else(
    lake: ALake, topics: Topics, two_files: tuple[str, Path, Path]
) -> None:
    topic, path, two = two_files
    flip_a_page(two)
    topics.produce(topic, [Sent(b"more")])
    watcher = Watcher()
    summary = lake.archive(topic, compact_files=1, listener=watcher)
    assert (summary.rows, summary.files_compacted) == (1, 0)
    assert "is not compacted" in watcher.warnings[0]
    assert two.name in watcher.warnings[0]
    assert path.exists()
    assert two.exists()
    lake.check()


def owner(pid: int, **changes: object) -> bytes:
    now = time.time()
    made = Owner("other", "there", pid, process_started(pid) or "gone", process_space(), now, now)
    return replace(made, **changes).encode()  # type: ignore[arg-type]


def test_a_lake_that_somebody_archives_into_is_left_alone(lake: ALake, topics: Topics) -> None:
    topic = topics.create()
    topics.count_up(topic, 0, 10)
    held = owner(os.getppid())
    lake.lake.create(LOCK, held)
    with pytest.raises(LockHeldError, match=f"process {os.getppid()} on there"):
        lake.archive(topic)
    assert lake.lake.list("") == [Stored(LOCK, len(held))]
    lake.lake.replace(LOCK, owner(os.getppid(), process_started="earlier"))
    assert lake.archive(topic).rows == 10


def test_somebody_who_lost_the_lake_commits_nothing(
    lake: ALake, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.create()
    topics.count_up(topic, 0, 10)

    class Stolen(FolderLake):
        def sync(self, paths: object) -> None:
            self.replace(LOCK, owner(1))

    monkeypatch.setattr(archive_run, "open_lake", lambda *_: Stolen(lake.folder))
    with pytest.raises(ConflictError, match="another archiver has taken over"):
        lake.archive(topic)
    assert lake.manifest.number == 0
    assert lake.files() == []


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("nowhere://host/lake", "Spark knows no file system nowhere:"),
        ("hdfs://127.0.0.1:1/lake", "cannot be reached .*: check the URI"),
        ("s3a://bucket/lake", "needs a jar that does not come with PySpark: add --conf"),
        ("s3://bucket/lake", "write s3a://bucket/lake"),
        ("{file}/lake", "cannot work in .*: Not a directory"),
    ],
)
def test_a_wrong_uri_is_one_clear_line(
    lake: ALake, topics: Topics, tmp_path: Path, uri: str, words: str
) -> None:
    topic = topics.create()
    topics.count_up(topic, 0, 1)
    (tmp_path / "file").write_text("")
    with pytest.raises(LakeError, match=words) as raised:
        archive(topic, to=uri.format(file=tmp_path / "file"), bootstrap=lake.bootstrap, spark=lake.spark)
    assert "\n" not in str(raised.value)


@pytest.fixture
def hadoop(spark: SparkSession, tmp_path: Path) -> HadoopLake:
    return HadoopLake(f"file://{tmp_path}/hadoop", spark)


def test_any_file_system_of_hadoop_does_what_a_folder_does(hadoop: HadoopLake) -> None:
    hadoop.create("a/b/one", b"\x00\xff1")
    hadoop.replace("a/two", b"22")
    hadoop.replace("a/two", b"333")
    assert hadoop.read("a/b/one") == b"\x00\xff1"
    assert hadoop.list("a") == [Stored("a/b/one", 3), Stored("a/two", 3)]
    assert hadoop.list("never") == []
    with pytest.raises(FileExistsError):
        hadoop.create("a/two", b"")
    with pytest.raises(FileNotFoundError):
        hadoop.read("a/never")
    hadoop.move("a/two", "c/two")
    hadoop.move("a/two", "c/two")
    with pytest.raises(FileNotFoundError):
        hadoop.move("a/two", "c/three")
    hadoop.create("a/two", b"4444")
    hadoop.move("a/two", "c/two")
    hadoop.delete("a")
    hadoop.delete("a")
    assert hadoop.list("") == [Stored("c/two", 4)]


class SleepyFiles:
    """Hadoop's file system, of one who falls asleep before the n-th call and wakes when another one has done his."""

    def __init__(self, files: Any, left: int, meanwhile: Callable[[], None]) -> None:
        self._files, self._left, self._meanwhile = files, left, meanwhile

    def __getattr__(self, name: str) -> Any:
        self._left -= 1
        if self._left == 0:
            self._meanwhile()
        return getattr(self._files, name)


@pytest.mark.parametrize("asleep_at", range(1, 8))
def test_a_move_on_hadoop_takes_nothing_away_that_another_one_moved(
    hadoop: HadoopLake, asleep_at: int
) -> None:
    hadoop.create("staging/x", b"rows")
    files = hadoop._fs

    def another_one() -> None:
        hadoop._fs = files
        hadoop.move("staging/x", "topic=t/x")

    hadoop._fs = SleepyFiles(files, asleep_at, another_one)
    hadoop.move("staging/x", "topic=t/x")
    hadoop._fs = files
    hadoop.prune("staging")
    assert hadoop.list("") == [Stored("topic=t/x", 4)]
    assert not files.exists(hadoop._path("staging"))


def test_an_archive_on_hadoop_is_one_of_a_folder(
    lake: ALake, topics: Topics, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.create(partitions=2)
    monkeypatch.setattr(archive_run, "open_lake", lambda *_: HadoopLake(f"file://{lake.folder}", spark))
    for first in (0, 50):
        topics.count_up(topic, first, 50, 2)
        assert lake.archive(topic, compact_files=1).rows == 50
    monkeypatch.undo()
    assert sorted(int(row.value) for row in lake.rows(topic)) == list(range(100))
    assert lake.archive(topic).rows == 0
    lake.check()


def test_a_lake_can_be_moved_elsewhere(lake: ALake, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create()
    topics.count_up(topic, 0, 10)
    lake.archive(topic)
    shutil.copytree(lake.folder, tmp_path / "copy")
    shutil.rmtree(lake.folder)
    copy = ALake(lake.spark, lake.bootstrap, tmp_path / "copy")
    topics.count_up(topic, 10, 5)
    assert copy.archive(topic).rows == 5
    assert len(copy.rows(topic)) == 15


def test_an_archive_that_goes_on_outlives_its_broker(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = BrokerProcess(tmp_path / "data")
    process.start()
    address = Forwarding(process.port)
    address.start()
    lake, topics = ALake(spark, address.bootstrap, tmp_path / "lake"), Topics(process.bootstrap)
    topic = topics.create()
    topics.count_up(topic, 0, 10)
    honest = rounds.write_round

    def write_round(*args: Any, **more: Any) -> Any:
        """The round is planned; now Spark asks the broker, from another process."""
        if killer.goes == ["broker"]:
            process.kill()
            killer.goes.append("broker when Spark plans")
        elif len(killer.goes) == 2:
            address.stop()
            killer.goes.append("bootstrap address")
        return honest(*args, **more)

    class Killer(Watcher):
        """Something goes away, and comes back when that has been noticed."""

        goes: ClassVar[list[str]] = []
        back: ClassVar[list[str]] = []

        def round_done(self, done: RoundDone, summary: Summary) -> None:
            super().round_done(done, summary)
            if not self.goes:
                process.kill()
                self.goes.append("broker")

        def warn(self, line: str) -> None:
            super().warn(line)
            if "; trying again in 0.05 s" not in line or self.goes[-1] in self.back:
                return
            self.back.append(self.goes[-1])
            if self.goes[-1] == "bootstrap address":
                address.start()
            else:
                process.start()
            if self.goes == ["broker"]:
                topics.count_up(topic, 10, 10)

    killer = Killer(stop_after_rounds=2)
    monkeypatch.setattr(rounds, "write_round", write_round)
    try:
        summary = lake.archive(topic, every_s=0.05, listener=killer, kafka={"default.api.timeout.ms": "1000"})
        assert len(killer.back) == 3
        assert summary.rows == 20
        assert [int(row.value) for row in lake.rows(topic)] == list(range(20))
        lake.check()
    finally:
        address.stop()
        process.stop()
