"""After a kill, at any step: what was committed is finished, what was not is removed, nothing is there twice."""

from pathlib import Path

import pytest
from tests.unit.spark.archive.lakes import HOUR, committed, entry, file, round_name

from penstock.spark.pipelines.archive import manifest as manifest_module
from penstock.spark.pipelines.archive.committing import put_in_place, recover
from penstock.spark.pipelines.archive.entries import ArchivedFile
from penstock.spark.pipelines.archive.errors import ConflictError, CorruptFileError
from penstock.spark.pipelines.archive.lake import FolderLake, Stored
from penstock.spark.pipelines.archive.losses import _is_nowhere
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
    with pytest.raises(CorruptFileError, match=gone.path) as raised:
        recover(Manifest.load(lake))
    # What the archive itself can do, not what its readers can.
    assert "--no-fail-on-data-loss" in str(raised.value)
    assert "skip_corrupt" not in str(raised.value)


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
    assert "skip_corrupt" not in told[0]


@pytest.mark.parametrize("left", ["first", "merged", "both"])
def test_so_is_what_a_lost_file_was_merged_from_before_that(lake: FolderLake, left: str) -> None:
    """Where the file in between is there, too, it has the rows."""
    first, merged, last = file(1), file(2), file(3)
    kept = {"first": [first], "merged": [merged], "both": [first, merged]}[left]
    for archived in kept:
        lake.create(archived.path, b"data")
    committed(
        lake,
        entry(1, {0: (0, 10)}, added=(first,)),
        entry(2, kind="compaction", added=(merged,), removed=(first.path,)),
        entry(3, kind="compaction", added=(last,), removed=(merged.path,)),
    )
    manifest = Manifest.load(lake)
    recover(manifest, report=lambda line: None)
    assert data(lake) == [kept[-1].path]
    assert not _is_nowhere(manifest, last)


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


def test_a_task_that_writes_after_its_round_was_compacted_stops_nobody(lake: FolderLake) -> None:
    first, merged, last = file(1), file(2), file(3)
    lake.create(last.path, b"data")
    lake.create(merged.path, b"data")  # its removal was interrupted
    committed(
        lake,
        entry(1, {0: (0, 10)}, added=(first,)),
        entry(2, kind="compaction", added=(merged,), removed=(first.path,)),
        entry(3, kind="compaction", added=(last,), removed=(merged.path,)),
    )
    lake.create(f"{STAGING}/{round_name(1)}/_temporary/0/_temporary/attempt_7/p.parquet", b"da")
    recover(Manifest.load(lake))
    assert data(lake) == [last.path]


def test_nothing_to_recover_changes_nothing(lake: FolderLake) -> None:
    committed(lake, entry(1, {0: (0, 10)}))
    before = lake.list("")
    recover(Manifest.load(lake))
    assert lake.list("") == before


def test_what_was_staged_since_it_looked_is_another_ones(tmp_path: Path) -> None:
    """One who slept past his lock, with nothing to recover; meanwhile another one has committed a round."""
    added, awake = file(2, {0: (10, 19)}), FolderLake(tmp_path / "lake")

    class Slept(FolderLake):
        def prune(self, path: str) -> None:
            stage(awake, added)
            Manifest.load(awake).commit(entry(2, {0: (10, 20)}, added=(added,)))
            super().prune(path)

    committed(awake, entry(1, {0: (0, 10)}))
    (tmp_path / "lake" / STAGING / "0000000001-killed/_temporary/0").mkdir(parents=True)
    recover(Manifest.load(Slept(tmp_path / "lake")))
    assert sorted(path.name for path in (tmp_path / "lake" / STAGING).iterdir()) == [round_name(2)]
    recover(Manifest.load(awake))
    assert data(awake) == [added.path]


def test_one_who_was_replaced_removes_nothing(lake: FolderLake) -> None:
    def replaced() -> None:
        raise ConflictError(lake.uri)

    committed(lake, entry(1, {0: (0, 10)}))
    stage(lake, file(1))
    before = data(lake)
    with pytest.raises(ConflictError):
        recover(Manifest.load(lake), still_owner=replaced)
    assert data(lake) == before


def test_a_file_that_is_missing_is_looked_for_until_it_is_back(
    lake: FolderLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint would forget that it never came to its place."""
    monkeypatch.setattr(manifest_module, "CHECKPOINT_ENTRIES", 1)
    committed(lake, entry(1, {0: (0, 10)}, added=(file(1),)))
    told: list[str] = []
    for runs in (1, 2):
        recover(Manifest.load(lake), report=told.append)
        assert len(told) == runs
    lake.create(file(1).path, b"data")
    manifest = Manifest.load(lake)
    recover(manifest)
    assert manifest.checkpoint == 1


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
