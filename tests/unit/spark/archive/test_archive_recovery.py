"""After a kill, at any step: what was committed is finished, what was not is removed, nothing is there twice."""

from pathlib import Path

import pytest
from tests.unit.spark.archive.lakes import HOUR, committed, entry, file, round_name

from penstock.spark.pipelines.archive.committing import put_in_place, recover
from penstock.spark.pipelines.archive.entries import ArchivedFile
from penstock.spark.pipelines.archive.errors import ConflictError, CorruptFileError
from penstock.spark.pipelines.archive.lake import FolderLake, Stored
from penstock.spark.pipelines.archive.manifest import FOLDER, STAGING, Manifest
from penstock.spark.pipelines.archive.reader import locate, topic_files


@pytest.fixture
def lake(tmp_path: Path) -> FolderLake:
    return FolderLake(tmp_path / "lake")


def stage(lake: FolderLake, archived: ArchivedFile) -> None:
    assert archived.staged is not None
    lake.create(archived.staged, b"data")


def data(lake: FolderLake) -> list[str]:
    return [stored.path for stored in lake.list("") if not stored.path.startswith(FOLDER)]


def test_a_round_that_was_not_committed_is_removed(lake: FolderLake) -> None:
    committed(lake, entry(1, {0: (0, 10)}))
    stage(lake, file(2))
    recover(Manifest.load(lake))
    assert data(lake) == []
    assert Manifest.load(lake).topic("t").next_offsets == {0: 10}  # type: ignore[union-attr]


def test_its_owner_cannot_commit_it_any_more(lake: FolderLake) -> None:
    asleep = committed(lake, entry(1, {0: (0, 10)}))
    stage(lake, file(2))
    recover(Manifest.load(lake))
    with pytest.raises(ConflictError):
        asleep.commit(entry(2, {0: (10, 20)}, added=(file(2),)))


def test_moves_that_were_interrupted_are_finished(lake: FolderLake) -> None:
    moved, waiting = file(1), file(2)
    waiting = ArchivedFile(
        waiting.path,
        "t",
        waiting.topic_id,
        10,
        4,
        {0: (10, 19)},
        f"{STAGING}/{round_name(1)}/topic=t/{HOUR}/p",
    )
    lake.create(moved.path, b"data")
    stage(lake, waiting)
    committed(lake, entry(1, {0: (0, 20)}, added=(moved, waiting)))
    recover(Manifest.load(lake))
    assert data(lake) == [moved.path, waiting.path]
    recover(Manifest.load(lake))
    assert data(lake) == [moved.path, waiting.path]
    assert Manifest.load(lake).number == 1


def test_a_compaction_that_was_interrupted_ends_without_the_old_files(lake: FolderLake) -> None:
    old = [file(1), file(2)]
    for archived in old:
        lake.create(archived.path, b"data")
    merged = file(3)
    stage(lake, merged)
    committed(
        lake,
        entry(1, {0: (0, 10)}, added=(old[0],)),
        entry(2, {0: (10, 20)}, added=(old[1],)),
        entry(3, kind="compaction", added=(merged,), removed=tuple(archived.path for archived in old)),
    )
    recover(Manifest.load(lake))
    assert data(lake) == [merged.path]


def test_a_committed_file_that_is_nowhere_is_named(lake: FolderLake) -> None:
    gone, there = file(1), file(1, topic="u")
    stage(lake, there)
    committed(lake, entry(1, {0: (0, 10)}, added=(gone,)))
    with pytest.raises(CorruptFileError, match=gone.path):
        recover(Manifest.load(lake))


def test_so_is_one_whose_round_left_nothing_in_staging(lake: FolderLake) -> None:
    committed(lake, entry(1, {0: (0, 10)}, added=(file(1),)))
    with pytest.raises(CorruptFileError, match=file(1).path):
        recover(Manifest.load(lake))


def test_whoever_does_without_it_keeps_what_it_should_have_replaced(lake: FolderLake) -> None:
    old, merged = file(1), file(2)
    lake.create(old.path, b"data")
    committed(
        lake,
        entry(1, {0: (0, 10)}, added=(old,)),
        entry(2, kind="compaction", added=(merged,), removed=(old.path,)),
    )
    told: list[str] = []
    recover(Manifest.load(lake), report=told.append)
    assert data(lake) == [old.path]
    assert merged.path in told[0]


def test_files_that_a_compaction_replaced_are_not_missed(lake: FolderLake) -> None:
    merged = file(2)
    lake.create(merged.path, b"data")
    committed(
        lake,
        entry(1, {0: (0, 10)}, added=(file(1),)),
        entry(2, kind="compaction", added=(merged,), removed=(file(1).path,)),
    )
    recover(Manifest.load(lake))
    assert data(lake) == [merged.path]


def test_nothing_to_recover_changes_nothing(lake: FolderLake) -> None:
    committed(lake, entry(1, {0: (0, 10)}))
    before = lake.list("")
    recover(Manifest.load(lake))
    assert lake.list("") == before


def test_a_file_that_moves_while_it_is_looked_for_is_found(tmp_path: Path) -> None:
    class Busy(FolderLake):
        def list(self, path: str) -> list[Stored]:
            found = super().list(path)
            put_in_place(FolderLake(tmp_path / "lake"), new_entry)
            return found

    added = file(1)
    new_entry = entry(1, {0: (0, 10)}, added=(added,))
    lake = Busy(tmp_path / "lake")
    assert added.staged is not None
    lake.create(added.staged, b"rows")
    Manifest.load(FolderLake(tmp_path / "lake")).commit(new_entry)
    files = topic_files(Manifest.load(FolderLake(tmp_path / "lake")), "t")
    assert locate(lake, files) == {added.path: added.path}
