"""Leader epochs and partings in the manifest: what is remembered, what counts, and which versions can read it."""

import json
from pathlib import Path

import pytest
from tests.unit.spark.archive.lakes import ID, committed, entry, file

from penstock.spark.pipelines.archive import compaction
from penstock.spark.pipelines.archive import manifest as manifests
from penstock.spark.pipelines.archive.entries import Entry, TopicRound
from penstock.spark.pipelines.archive.lake import FolderLake
from penstock.spark.pipelines.archive.manifest import CHECKPOINT_ENTRIES, Manifest, entry_path
from penstock.spark.pipelines.archive.reader import by_limits, topic_files


def test_epochs_are_remembered_also_through_a_checkpoint(tmp_path: Path) -> None:
    lake = FolderLake(tmp_path / "lake")
    manifest = Manifest.load(lake)
    for number in range(1, CHECKPOINT_ENTRIES + 1):
        taken = TopicRound("t", ID, {0: (number - 1, number)}, epochs={0: ((number // 20, number),)})
        manifest.commit(Entry(number, "round", f"{number:010}-x", "", (taken,)))
        manifest.tidy()
    archive = Manifest.load(lake).topic("t")
    assert archive is not None
    assert archive.marks == {0: [(0, 19), (1, 39), (2, 50)]}
    assert archive.epochs == {0: 2}
    # A round of a broker that told none: what is known stays, but is not that of the end.
    archive = committed(lake, entry(CHECKPOINT_ENTRIES + 1, {0: (50, 60)})).topic("t")
    assert archive is not None
    assert (archive.epochs, archive.marks[0][-1]) == ({}, (2, 50))


def test_an_entry_with_the_last_epoch_alone_is_read() -> None:
    taken = TopicRound("t", ID, {0: (5, 9)})
    tree = taken.as_json() | {"epochs": {"0": 3}}
    assert TopicRound.from_json(tree).epochs == {0: ((3, 9),)}


def parted_lake(folder: Path) -> FolderLake:
    lake = FolderLake(folder / "lake")
    parted = TopicRound("t", ID, {0: (12, 30)}, epochs={0: ((5, 30),)}, parted={0: 12})
    committed(
        lake,
        entry(1, {0: (0, 10), 1: (0, 10)}, added=(file(1, {0: (0, 9), 1: (0, 9)}, rows=20),)),
        entry(2, {0: (10, 15), 1: (10, 20)}, added=(file(2, {0: (10, 14), 1: (10, 19)}, rows=15),)),
        entry(3, {0: (15, 20)}, added=(file(3, {0: (15, 19)}, rows=5),)),
        Entry(4, "round", "0000000004-x", "", (parted,), (file(4, {0: (12, 29)}, rows=18),)),
    )
    for number in range(1, 5):
        lake.create(file(number).path, b"rows")
    return lake


@pytest.mark.parametrize("checkpoint", [False, True])
def test_what_is_behind_the_parting_counts_only_as_it_was_archived_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, checkpoint: bool
) -> None:
    lake = parted_lake(tmp_path)
    manifest = Manifest.load(lake)
    if checkpoint:
        monkeypatch.setattr(manifests, "CHECKPOINT_ENTRIES", 1)
        manifest.tidy()
        manifest = Manifest.load(lake)
        assert manifest.checkpoint == 4
    archive = manifest.topic("t")
    assert archive is not None
    assert (archive.ranges, archive.next_offsets) == ({0: [(0, 30)], 1: [(0, 20)]}, {0: 30, 1: 20})
    first, second, third, fourth = (archive.files[file(number).path] for number in range(1, 5))
    assert (first.limits, fourth.limits) == ({}, {})
    assert (second.offsets, second.limits, second.rows) == ({0: (10, 11), 1: (10, 19)}, {0: 12}, 12)
    assert (third.offsets, third.limits, third.rows) == ({}, {0: 12}, 0)
    assert archive.rows == 20 + 12 + 18
    # Readers open nothing of which no row counts, and know of every other file which do.
    files = topic_files(manifest, "t")
    assert files == [first, second, fourth]
    assert by_limits(lake, files, {archived.path: archived.path for archived in files}) == {
        (): [lake.url(first.path), lake.url(fourth.path)],
        ((0, 12),): [lake.url(second.path)],
    }
    # What the broker has lost is not merged away: nobody else has it.
    (group,) = compaction.groups(archive.files.values(), files_max=1)
    assert group.files == (first, fourth)


def test_only_what_needs_it_is_refused_by_earlier_versions(tmp_path: Path) -> None:
    lake = parted_lake(tmp_path)
    formats = [json.loads(lake.read(entry_path(number)))["format"] for number in range(1, 5)]
    assert formats == [1, 1, 1, 2]
