"""A folder as a lake: exclusive names, whole files, moves that can be repeated, and errors that say what to do."""

import errno
import os
from pathlib import Path

import pytest

from penstock.spark.pipelines.archive.errors import LakeError, LakeFullError
from penstock.spark.pipelines.archive.lake import FolderLake, Stored, local_folder, open_lake


@pytest.fixture
def lake(tmp_path: Path) -> FolderLake:
    return FolderLake(tmp_path / "lake")


def test_files_are_written_read_listed_and_deleted(lake: FolderLake) -> None:
    lake.create("a/b/one", b"1")
    lake.replace("a/two", b"22")
    lake.replace("a/two", b"333")
    assert lake.list("a") == [Stored("a/b/one", 1), Stored("a/two", 3)]
    assert lake.read("a/two") == b"333"
    lake.delete("a/b")
    lake.delete("a/never")
    assert lake.list("") == [Stored("a/two", 3)]
    with pytest.raises(FileNotFoundError):
        lake.read("a/b/one")


def test_a_name_is_given_once(lake: FolderLake) -> None:
    lake.create("one", b"first")
    with pytest.raises(FileExistsError):
        lake.create("one", b"second")
    assert lake.read("one") == b"first"
    assert lake.list("") == [Stored("one", 5)]  # and nothing half-written beside it


def test_a_move_can_be_repeated(lake: FolderLake) -> None:
    lake.create("from/x", b"x")
    lake.move("from/x", "to/deep/x")
    lake.move("from/x", "to/deep/x")
    assert lake.list("") == [Stored("to/deep/x", 1)]
    with pytest.raises(FileNotFoundError):
        lake.move("from/y", "to/deep/y")


def test_sync_takes_what_is_there(lake: FolderLake) -> None:
    lake.create("a/x", b"x")
    lake.sync(["a/x"])
    with pytest.raises(FileNotFoundError):
        lake.sync(["a/never"])


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_one_clear_line_and_leaves_nothing(
    lake: FolderLake, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    lake.create("before", b"")

    def full(_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(LakeFullError, match=r"is full .* nothing of this round was archived; make room"):
        lake.create("entry", b"x")
    assert lake.list("") == [Stored("before", 0)]


def test_a_folder_that_is_a_file_is_a_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LakeError, match=r"cannot work in .*file: Not a directory .* give a folder"):
        FolderLake(tmp_path / "file").create("a", b"")


@pytest.mark.parametrize(
    ("uri", "folder"),
    [
        ("/data/lake", "/data/lake"),
        ("file:/data/lake", "/data/lake"),
        ("file:///data/a%20b", "/data/a b"),
        ("~/lake", str(Path.home() / "lake")),
        ("lake", str(Path.cwd() / "lake")),
        ("hdfs://host/lake", None),
        ("s3a://bucket/lake", None),
    ],
)
def test_uris(uri: str, folder: str | None) -> None:
    assert local_folder(uri) == (None if folder is None else Path(folder))


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("", "is empty"),
        ("s3://bucket/x", "write s3a://bucket/x"),
        ("file://host/x", "not a folder of this machine"),
        ("/data/{a,b}", "choose a place without them"),
        ("hdfs://host/x", "only be reached through a Spark session"),
    ],
)
def test_uris_that_cannot_be(uri: str, words: str) -> None:
    with pytest.raises(LakeError, match=words):
        open_lake(uri)
