"""A topic from its archive, then live: where the log has parted from what is archived, and where its leader changes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.unit.spark.archive.lakes import HOUR
from tests.unit.spark.test_from_archive_merge import write

from penstock.client.raw import EARLIEST, OffsetAt, TopicInfo, TopicPartition
from penstock.spark.pipelines.archive.entries import NO_ID, ArchivedFile, Entry, Mark, TopicRound
from penstock.spark.pipelines.archive.lake import FolderLake
from penstock.spark.pipelines.archive.manifest import Manifest
from penstock.spark.pipelines.from_archive import handover
from penstock.spark.pipelines.from_archive.files import LocalRows

T0 = TopicPartition("t", 0)


class Client:
    """Of a log whose epoch 3 ends at 7, and which has grown to 30 since."""

    def describe(self, _: object) -> dict[str, TopicInfo]:
        return {"t": TopicInfo("t", None, (0,), False)}

    def offsets(self, wanted: Mapping[TopicPartition, int], **_: object) -> dict[TopicPartition, OffsetAt]:
        return {at: OffsetAt(0 if which == EARLIEST else 30, -1) for at, which in wanted.items()}

    def epoch_ends(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
        return dict.fromkeys(wanted, (3, 7))


def archived(folder: Path, marks: tuple[Mark, ...]) -> FolderLake:
    lake = FolderLake(folder)
    path = f"topic=t/{HOUR}/0000000001-0000.parquet"
    Path(folder, path).parent.mkdir(parents=True)
    size_bytes = write(folder / path, [(0, offset) for offset in range(20)], 0).path.stat().st_size
    file = ArchivedFile(path, "t", NO_ID, 20, size_bytes, {0: (0, 19)})
    taken = TopicRound("t", NO_ID, {0: (0, 20)}, epochs={0: marks} if marks else {})
    Manifest.load(lake).commit(Entry(1, "round", "0000000001-x", "", (taken,), (file,)))
    return lake


@pytest.mark.parametrize(("marks", "end"), [(((3, 20),), 7), ((), 20)])
def test_the_archive_is_read_as_far_as_the_log_is_the_same(
    marks: tuple[Mark, ...], end: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live: dict[int, Any] = {}
    monkeypatch.setattr(handover, "RawClient", lambda _: Client())
    monkeypatch.setattr(handover, "ConsoleReader", lambda _, __, ranges, **___: live.update(ranges))
    lake = archived(tmp_path / "lake", marks)
    reader = handover.ArchiveThenLive(
        lake, LocalRows(lake), "t", bootstrap="b:1", follow=False, warn=lambda line: None
    )
    assert [row.offset for row in reader.read(0)] == list(range(end))
    assert live[0].start == end


class Leaders(Client):
    """The first has nothing below 30; the next one leads when it is asked again, and has what is not archived."""

    def __init__(self) -> None:
        self.starts = [0, 0, 30]  # the first two while the archive is read

    def offsets(self, wanted: Mapping[TopicPartition, int], **_: object) -> dict[TopicPartition, OffsetAt]:
        found = {}
        for at, which in wanted.items():
            start = self.starts.pop(0) if which == EARLIEST and self.starts else 15
            found[at] = OffsetAt(start if which == EARLIEST else 40, -1)
        return found

    def serves(self, _: TopicPartition, offset: int) -> bool:
        return offset >= (self.starts or [15])[0]


def test_what_a_next_leader_has_is_not_passed_over_as_never_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live: dict[int, Any] = {}
    monkeypatch.setattr(handover, "RawClient", lambda _: Leaders())
    monkeypatch.setattr(handover, "ConsoleReader", lambda _, __, ranges, **___: live.update(ranges))
    lake = archived(tmp_path / "lake", ())
    reader = handover.ArchiveThenLive(
        lake, LocalRows(lake), "t", bootstrap="b:1", follow=False, warn=lambda line: None
    )
    assert [row.offset for row in reader.read(0)] == list(range(20))
    assert live[0].start == 20
