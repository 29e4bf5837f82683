"""The manifest: what it remembers, that a number is taken once, and that checkpoints change nothing."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.spark.archive.lakes import ID, OTHER_ID, committed, entry, file

from penstock.spark.pipelines.archive.errors import ConflictError, ManifestError
from penstock.spark.pipelines.archive.lake import FolderLake
from penstock.spark.pipelines.archive.manifest import (
    CHECKPOINT_ENTRIES,
    FOLDER,
    KEPT_ENTRIES,
    Manifest,
    TopicArchive,
    entry_path,
)


@pytest.fixture
def lake(tmp_path: Path) -> FolderLake:
    return FolderLake(tmp_path / "lake")


def the(manifest: Manifest, topic: str = "t", topic_id: str | None = None) -> TopicArchive:
    found = manifest.topic(topic, topic_id)
    assert found is not None
    return found


def test_a_lake_that_is_not_there_has_nothing_archived(lake: FolderLake) -> None:
    manifest = Manifest.load(lake)
    assert (manifest.number, manifest.topics, manifest.files) == (0, {}, {})
    assert manifest.topic("t") is None


def test_entries_are_found_again_and_add_up(lake: FolderLake) -> None:
    first_file = file(1, {0: (0, 9), 1: (5, 9)})
    second_file = file(2, {0: (10, 19)})
    committed(
        lake,
        entry(1, {0: (0, 10), 1: (5, 10)}, added=(first_file,)),
        entry(2, {0: (10, 20), 2: (0, 0)}, added=(second_file,)),
    )
    archive = the(Manifest.load(lake))
    assert archive.next_offsets == {0: 20, 1: 10, 2: 0}
    assert archive.ranges == {0: [(0, 20)], 1: [(5, 10)], 2: [(0, 0)]}
    assert archive.files == {first_file.path: first_file, second_file.path: second_file}
    assert (archive.rows, archive.size_bytes, archive.lost_offsets) == (20, 8, 0)


def test_lost_offsets_are_remembered_and_not_asked_for_again(lake: FolderLake) -> None:
    committed(
        lake,
        entry(1, {0: (0, 10)}),
        entry(2, {0: (15, 20)}, lost={0: ((10, 15),), 1: ((0, 7),)}),
    )
    archive = the(Manifest.load(lake))
    assert archive.lost == {0: [(10, 15)], 1: [(0, 7)]}
    assert archive.ranges == {0: [(0, 10), (15, 20)]}
    assert archive.next_offsets == {0: 20, 1: 7}
    assert archive.lost_offsets == 12


def test_a_topic_made_anew_is_archived_beside_the_old_one(lake: FolderLake) -> None:
    manifest = committed(
        lake,
        entry(1, {0: (0, 100)}, added=(file(1),)),
        entry(2, {0: (0, 5)}, topic_id=OTHER_ID, added=(file(2, topic_id=OTHER_ID),)),
    )
    assert [topic.topic_id for topic in manifest.topics["t"]] == [ID, OTHER_ID]
    assert the(manifest).next_offsets == {0: 5}
    assert the(manifest, topic_id=ID).next_offsets == {0: 100}
    assert len(the(manifest, topic_id=ID).files) == len(the(manifest).files) == 1


def test_compaction_replaces_files_and_keeps_ranges(lake: FolderLake) -> None:
    small = [file(1), file(2, {0: (10, 19)})]
    merged = file(3, {0: (0, 19)}, rows=20)
    committed(
        lake,
        entry(1, {0: (0, 10)}, added=(small[0],)),
        entry(2, {0: (10, 20)}, added=(small[1],)),
        entry(3, kind="compaction", added=(merged,), removed=tuple(archived.path for archived in small)),
    )
    archive = the(Manifest.load(lake))
    assert list(archive.files.values()) == [merged]
    assert archive.next_offsets == {0: 20}


def test_of_two_who_commit_the_same_number_one_fails_and_changes_nothing(lake: FolderLake) -> None:
    manifest, other = Manifest.load(lake), Manifest.load(lake)
    manifest.commit(entry(1, {0: (0, 10)}))
    with pytest.raises(ConflictError, match="another archiver has taken over"):
        other.commit(replace(entry(1, {0: (0, 99)}), round="0000000001-other"))
    assert other.number == 0
    assert the(Manifest.load(lake)).next_offsets == {0: 10}


def test_an_entry_that_is_there_already_because_it_is_ours_is_committed(lake: FolderLake) -> None:
    """As where a file system repeats a rename whose answer got lost."""
    manifest = Manifest.load(lake)
    lake.create(entry_path(1), entry(1, {0: (0, 10)}).encode())
    manifest.commit(entry(1, {0: (0, 10)}))
    assert manifest.number == 1
    assert the(manifest).next_offsets == {0: 10}


def test_somebody_who_slept_through_a_checkpoint_cannot_commit_either(lake: FolderLake) -> None:
    asleep = Manifest.load(lake)
    awake = Manifest.load(lake)
    for number in range(1, CHECKPOINT_ENTRIES + KEPT_ENTRIES + 2):
        awake.commit(entry(number, {0: (number - 1, number)}))
        awake.tidy()
    assert not (Path(lake.url().removeprefix("file://")) / entry_path(1)).exists()
    with pytest.raises(ConflictError):
        asleep.commit(entry(1, {0: (0, 99)}))
    assert the(Manifest.load(lake)).next_offsets == {0: CHECKPOINT_ENTRIES + KEPT_ENTRIES + 1}


def test_a_checkpoint_holds_everything_and_few_entries_stay(lake: FolderLake) -> None:
    manifest = Manifest.load(lake)
    rounds = 2 * CHECKPOINT_ENTRIES + KEPT_ENTRIES + 3
    for number in range(1, rounds + 1):
        span = (number - 1, number)
        lost = {1: ((0, 5),)} if number == 7 else {}
        lake.create(file(number).path, b"rows")
        manifest.commit(entry(number, {0: span}, lost=lost, added=(file(number),)))
        manifest.tidy()
    again = Manifest.load(lake)
    assert again.number == manifest.number == rounds
    assert again.checkpoint > 0
    assert len(again.entries) < CHECKPOINT_ENTRIES
    archive = the(again)
    assert archive.files.keys() == the(manifest).files.keys()
    assert archive.since == 1
    assert (archive.next_offsets, archive.lost) == ({0: rounds, 1: 5}, {1: [(0, 5)]})
    names = [Path(stored.path).name for stored in lake.list(FOLDER)]
    assert sum(name.startswith("checkpoint-") for name in names) == 1
    assert len(names) <= KEPT_ENTRIES + CHECKPOINT_ENTRIES + 1
    # Where a file was staged is of no interest once it has moved.
    before = {archived.path for archived in manifest.files.values() if archived.staged is None}
    assert before == set()
    folded = [
        archived
        for archived in again.files.values()
        if archived.path < f"topic=t/date=2025-01-31/hour=07/{again.checkpoint:010}"
    ]
    assert folded
    assert all(archived.staged is None for archived in folded)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is damaged"),
        (b"[]", "no manifest entry"),
        (b'{"format": 1, "number": 1}', "is damaged"),
        (b'{"format": 99}', "later version"),
    ],
)
def test_a_damaged_entry_is_named_and_never_skipped(lake: FolderLake, content: bytes, words: str) -> None:
    committed(lake, entry(1, {0: (0, 10)}))
    lake.create(entry_path(2), content)
    with pytest.raises(ManifestError, match=words) as raised:
        Manifest.load(lake)
    assert entry_path(2) in str(raised.value)


def test_a_missing_entry_is_an_error(lake: FolderLake) -> None:
    committed(lake, entry(1, {0: (0, 10)}), entry(2, {0: (10, 11)}))
    lake.delete(entry_path(1))
    with pytest.raises(ManifestError, match="has no entry 1, but has 2"):
        Manifest.load(lake)


def test_what_a_killed_write_left_beside_the_entries_is_ignored(lake: FolderLake) -> None:
    committed(lake, entry(1, {0: (0, 10)}))
    lake.replace(f"{FOLDER}/.0000000002.json.half", b"{")
    assert Manifest.load(lake).number == 1


def test_an_entry_is_json_for_others_to_read(lake: FolderLake) -> None:
    committed(lake, entry(1, {0: (0, 10)}, added=(file(1),)))
    tree = json.loads(lake.read(entry_path(1)))
    assert tree["topics"] == [{"topic": "t", "id": ID, "partitions": {"0": [0, 10]}, "lost": {}}]
    assert tree["added"][0]["rows"] == 10
