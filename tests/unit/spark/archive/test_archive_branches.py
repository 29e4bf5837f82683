"""What counted once and no longer does is kept, and counts again when the log has it again."""

from pathlib import Path

import pytest
from tests.unit.spark.archive.lakes import ID, file
from tests.unit.spark.archive.test_archive_manifest import FolderLake

from penstock.spark.pipelines.archive import manifest as manifests
from penstock.spark.pipelines.archive.entries import ArchivedFile, Entry, Mark, Span, TopicRound
from penstock.spark.pipelines.archive.lines import common
from penstock.spark.pipelines.archive.manifest import Manifest
from penstock.spark.pipelines.archive.topics import TopicArchive


class Lake:
    """A manifest, entry by entry; each state is read back, also from a checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.lake = FolderLake(folder)

    def take(
        self, span: Span, epoch: int | None, parted: int | None = None, branch: int | None = None
    ) -> TopicArchive:
        made = Manifest.load(self.lake)
        number = made.number + 1
        taken = TopicRound(
            "t",
            ID,
            {0: span},
            epochs={} if epoch is None else {0: ((epoch, span[1]),)},
            parted={} if parted is None else {0: parted},
            branches={} if branch is None else {0: branch},
        )
        rows = span[1] - span[0]
        added = (file(number, {0: (span[0], span[1] - 1)}, rows=rows),) if rows else ()
        made.commit(Entry(number, "round", f"{number:010}-x", "", (taken,), added))
        made.tidy()
        archive = Manifest.load(self.lake).topic("t")
        assert archive is not None
        return archive


def counting(archive: TopicArchive) -> dict[str, Span]:
    """Of each file the offsets that count, by its number."""
    found: dict[str, ArchivedFile] = {
        path.rpartition("/")[2][9:10]: archived for path, archived in archive.files.items()
    }
    assert all(
        archived.offsets.get(0, (0, -1))[1] < archived.limits.get(0, 1 << 60) for archived in found.values()
    )
    return {
        name: (archived.offsets[0][0], archived.offsets[0][1] + 1)
        for name, archived in found.items()
        if 0 in archived.offsets
    }


@pytest.fixture(params=[1, 50], ids=["checkpoints", "entries"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setattr(manifests, "CHECKPOINT_ENTRIES", request.param)
    return Lake(tmp_path / "lake")


def test_a_log_that_comes_back_finds_what_was_archived_of_it(lake: Lake) -> None:
    lake.take((0, 10), 3)
    lake.take((10, 20), 3)
    archive = lake.take((7, 15), 5, parted=7)
    assert counting(archive) == {"1": (0, 7), "3": (7, 15)}
    assert (archive.rows, archive.next_offsets) == (15, {0: 15})
    # The first one leads again, and has written more.
    archive = lake.take((20, 25), 6, parted=20, branch=3)
    assert counting(archive) == {"1": (0, 10), "2": (10, 20), "4": (20, 25)}
    assert (archive.rows, archive.marks) == (25, {0: [(3, 20), (6, 25)]})
    assert not any(archive.files[file(number).path].limits for number in (1, 2))
    # And then the other one again, of which half is left.
    archive = lake.take((10, 10), None, parted=10, branch=4)
    assert counting(archive) == {"1": (0, 7), "3": (7, 10)}
    assert archive.marks == {0: [(3, 7), (5, 10)]}
    # All of it is there still.
    archive = lake.take((15, 15), None, parted=15, branch=4)
    assert counting(archive) == {"1": (0, 7), "3": (7, 15)}
    archive = lake.take((25, 25), None, parted=25, branch=archive.branches[0][0].number)
    assert counting(archive) == {"1": (0, 10), "2": (10, 20), "4": (20, 25)}


def test_a_branch_of_a_branch(lake: Lake) -> None:
    lake.take((0, 10), 3)
    lake.take((8, 12), 4, parted=8)
    lake.take((10, 14), 5, parted=10)
    archive = lake.take((4, 9), 6, parted=4)
    assert counting(archive) == {"1": (0, 4), "4": (4, 9)}
    assert [(branch.number, branch.fork, branch.line.end) for branch in archive.branches[0]] == [
        (2, 4, 10),
        (3, 4, 12),
        (4, 4, 14),
    ]
    archive = lake.take((12, 12), None, parted=12, branch=3)
    assert counting(archive) == {"1": (0, 8), "2": (8, 12)}
    assert {branch.number: branch.fork for branch in archive.branches[0]} == {2: 8, 4: 10, 5: 4}
    archive = lake.take((10, 10), None, parted=10, branch=2)
    assert counting(archive) == {"1": (0, 10)}


def test_what_two_branches_share_is_known_where_there_are_no_epochs(lake: Lake) -> None:
    lake.take((0, 100), None)
    lake.take((50, 80), 4, parted=50)
    archive = lake.take((30, 40), 5, parted=30)
    assert [(branch.number, branch.fork) for branch in archive.branches[0]] == [(2, 30), (3, 30)]
    archive = lake.take((80, 80), None, parted=80, branch=3)
    assert counting(archive) == {"1": (0, 50), "2": (50, 80)}
    archive = lake.take((100, 100), None, parted=100, branch=2)
    assert counting(archive) == {"1": (0, 100)}


@pytest.mark.parametrize(
    ("marks", "other", "end"),
    [
        ([(3, 10), (4, 20)], [(3, 10), (4, 15)], 15),
        ([(3, 10), (4, 20)], [(3, 10), (5, 15)], 10),
        ([(3, 10)], [(3, 8), (5, 15)], 8),
        # Nobody knows whether these are the same.
        ([(-1, 10), (4, 20)], [(-1, 10), (4, 15)], 5),
    ],
)
def test_up_to_where_two_lines_are_the_same(marks: list[Mark], other: list[Mark], end: int) -> None:
    assert common(marks, other, 5) == end


def test_what_an_earlier_version_hid_stays_hidden_and_the_rest_comes_back() -> None:
    tree = ArchivedFile("p", "t", ID, 3, 9, {0: (0, 2)}, limits={0: 3}).as_json()
    archive = TopicArchive("t", ID, 1, files={"p": ArchivedFile.from_json(tree)})
    archive.line(0).take((0, 9), [(3, 9)])

    def found() -> tuple[object, object]:
        archive.files["p"] = ArchivedFile.from_json(archive.files["p"].as_json())
        return archive.files["p"].limits, archive.files["p"].offsets

    archive.turn(2, 0, 2)
    assert found() == ({0: 2}, {0: (0, 1)})
    archive.turn(3, 0, 9, branch=2)
    assert found() == ({0: 3}, {0: (0, 2)})
    archive.turn(4, 0, 1)
    assert found() == ({0: 1}, {0: (0, 0)})
