"""What the archive has lost is not left out of a replay without a word."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.spark.pipelines.archive.entries import ArchivedFile, Entry, TopicRound
from penstock.spark.pipelines.archive.errors import CorruptFileError
from penstock.spark.pipelines.archive.lake import FolderLake
from penstock.spark.pipelines.archive.manifest import Manifest
from penstock.spark.pipelines.replaying import run as replaying
from penstock.spark.pipelines.replaying.selection import Selection
from penstock.spark.pipelines.replaying.summary import PartitionReplayed, Replayed
from penstock.spark.pipelines.replaying.target import TargetOptions
from penstock.spark.pipelines.replaying.waves import next_wave
from penstock.spark.pipelines.replaying.writing import Done

LOST = "5 offsets of t are not replayed (partition 0: 0 to 4)"


class Heard(replaying.Logged):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def warn(self, line: str) -> None:
        self.lines.append(line)


def archived(number: int) -> ArchivedFile:
    path = f"topic=t/date=2026-11-16/hour=1{number}/{number}.parquet"
    return ArchivedFile(path, "t", "-", 5, 4, {0: (5 * number, 5 * number + 4)})


FILES = (archived(0), archived(1))


@pytest.fixture
def lake(tmp_path: Path) -> FolderLake:
    """Of two files the first is gone."""
    made = FolderLake(tmp_path)
    Manifest(made).commit(Entry(1, "round", "1-a", "", (TopicRound("t", "-", {0: (0, 10)}),), FILES))
    made.create(FILES[1].path, b"rows")
    return made


def give_up(lake: FolderLake) -> None:
    Manifest.load(lake).commit(Entry(2, "loss", "2-b", "", given_up=FILES[:1]))


def found(lake: FolderLake, heard: Heard) -> replaying._Run:
    run = replaying._Run(lake, "b:1", Selection(), TargetOptions("copy"), heard, skip_corrupt=False)
    run.find(None, None)
    return run


def test_what_is_lost_is_told_at_the_start(lake: FolderLake) -> None:
    found(lake, before := Heard())
    assert not before.lines
    give_up(lake)
    found(lake, heard := Heard())
    assert [line for line in heard.lines if line.startswith(LOST)] == heard.lines != []


def test_what_is_given_up_in_the_middle_of_a_replay_is_told(
    lake: FolderLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = found(lake, heard := Heard())

    def run_wave(
        _: object, __: object, ___: object, files: Sequence[ArchivedFile], *____: object
    ) -> list[Done]:
        return [Done(0, sum(file.rows for file in files), 0, 0, 9)]

    monkeypatch.setattr(replaying, "run_wave", run_wave)
    summary = Replayed(lake.uri, "t", "-", "copy", partitions={0: PartitionReplayed()})
    wave = next_wave(run._files(), {0: 0})
    assert wave is not None
    with pytest.raises(CorruptFileError):
        run._run_wave(None, wave, None, summary)  # type: ignore[arg-type]
    assert not heard.lines
    give_up(lake)
    run._run_wave(None, wave, None, summary)  # type: ignore[arg-type]
    assert summary.rows == 5
    assert [line for line in heard.lines if line.startswith(LOST)] == heard.lines != []
