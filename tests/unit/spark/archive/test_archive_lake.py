"""A folder as a lake: exclusive names, whole files, moves that can be repeated, and errors that say what to do."""

import errno
import os
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from penstock.spark.pipelines.archive.errors import LakeError, LakeFullError
from penstock.spark.pipelines.archive.hadoop_lake import HadoopLake
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


class S3:
    """As S3A has it: a rename copies and then deletes, and refuses a file that is there."""

    def __init__(self, *files: str) -> None:
        self.files = {path: f"what was in {path}" for path in files}
        self.steps: Any = iter(())  # what happens before each call

    def _step(self) -> None:
        next(self.steps, lambda: None)()

    def getScheme(self) -> str:  # noqa: N802 - Hadoop's names
        return "s3a"

    def getFileStatus(self, path: PurePosixPath) -> Any:  # noqa: N802
        content = self.open(path).content
        return SimpleNamespace(getLen=lambda: len(content))

    def open(self, path: PurePosixPath) -> Any:
        self._step()
        if str(path) not in self.files:
            raise FileNotFoundError(path)
        return SimpleNamespace(content=self.files[str(path)], close=lambda: None)

    def exists(self, path: PurePosixPath) -> bool:
        self._step()
        return str(path) in self.files

    def mkdirs(self, path: PurePosixPath) -> None:
        self._step()

    def delete(self, path: PurePosixPath, recursive: bool) -> None:
        self._step()
        assert not recursive
        self.files.pop(str(path), None)

    def rename(self, source: PurePosixPath, target: PurePosixPath) -> bool:
        self._step()
        if str(target) in self.files:
            return False
        if str(source) not in self.files:
            raise FileNotFoundError(source)
        self.files[str(target)] = self.files.pop(str(source))
        return True


def s3_lake(monkeypatch: pytest.MonkeyPatch, *files: str) -> HadoopLake:
    monkeypatch.setattr(HadoopLake, "_path", lambda _, path: Path3(path))
    lake = HadoopLake.__new__(HadoopLake)
    lake._uri, lake._fs, lake._jvm = "s3a://bucket/lake", S3(*files), MagicMock()
    lake._jvm.org.apache.commons.io.IOUtils.contentEquals = lambda left, right: left.content == right.content
    return lake


class Path3(PurePosixPath):
    def getParent(self) -> PurePosixPath:  # noqa: N802 - Hadoop's name
        return self.parent


@pytest.mark.parametrize("before", [("old",), ("new",)])
def test_a_move_that_was_killed_between_copy_and_delete_is_finished(
    before: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = s3_lake(monkeypatch, *before)
    for _ in range(2):
        lake.move("old", "new")
        assert lake._fs.files == {"new": f"what was in {before[0]}"}
    with pytest.raises(FileNotFoundError):
        lake.move("never", "nor")


@pytest.mark.parametrize("killed_before", [False, True])
def test_a_move_takes_nothing_away_that_another_one_moved_meanwhile(
    killed_before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One falls asleep before any step of it, also where a copy is there whose source is not deleted yet."""
    for asleep_at in range(12):
        lake = s3_lake(monkeypatch, "old")
        if killed_before:
            lake._fs.files["new"] = lake._fs.files["old"]
        awake = [lambda: None] * asleep_at
        lake._fs.steps = iter([*awake, lambda lake=lake: lake.move("old", "new")])
        lake.move("old", "new")
        assert lake._fs.files == {"new": "what was in old"}, asleep_at


@pytest.mark.parametrize("asleep_at", range(16))
def test_nor_where_a_file_of_another_round_has_the_name(
    asleep_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that a restored manifest does not know: it makes room, and stays under a name that Spark passes over."""
    lake = s3_lake(monkeypatch, "old", "new")
    lake._fs.steps = iter([*[lambda: None] * asleep_at, lambda: lake.move("old", "new")])
    lake.move("old", "new")
    assert lake._fs.files.pop("new") == "what was in old"
    assert list(lake._fs.files.values()) == ["what was in new"]
    assert all(Path(path).name.startswith(".") for path in lake._fs.files)


def test_the_folders_that_spark_made_are_synced_too(
    lake: FolderLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut right after the entry is durable must not take the folder with the files that it names."""
    (tmp_path / "lake/staging/round/topic=t").mkdir(parents=True)
    (tmp_path / "lake/staging/round/topic=t/x").write_bytes(b"x")
    synced, fsync = [], os.fsync

    def noted(handle: int) -> None:
        synced.append(Path(f"/proc/self/fd/{handle}").readlink().relative_to(tmp_path).as_posix())
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    lake.sync(["staging/round/topic=t/x"])
    above = [".", "lake", "lake/staging", "lake/staging/round", "lake/staging/round/topic=t"]
    assert sorted(synced) == [*above, "lake/staging/round/topic=t/x"]


def test_a_folder_that_could_not_be_synced_is_an_error(
    lake: FolderLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.create("a/x", b"x")

    def failing(code: int) -> None:
        def fsync(handle: int) -> None:
            if Path(f"/proc/self/fd/{handle}").readlink().is_dir():
                raise OSError(code, os.strerror(code))

        monkeypatch.setattr(os, "fsync", fsync)

    failing(errno.EINVAL)  # a file system that has no such thing
    lake.sync(["a/x"])
    failing(errno.EIO)
    with pytest.raises(LakeError):
        lake.sync(["a/x"])
    with pytest.raises(LakeError):
        lake.move("a/x", "b/x")


def test_sync_takes_what_is_there(lake: FolderLake) -> None:
    lake.create("a/x", b"x")
    lake.sync(["a/x"])
    with pytest.raises(FileNotFoundError):
        lake.sync(["a/never"])


@pytest.mark.parametrize("code", [errno.EIO, errno.EMFILE, errno.ESTALE, errno.EACCES])
def test_a_folder_that_cannot_be_listed_is_not_taken_for_empty(
    lake: FolderLake, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    lake.create("a/b/one", b"1")
    scandir = os.scandir

    def failing(path: str) -> object:
        if str(path).endswith("/b"):
            raise OSError(code, os.strerror(code), path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", failing)
    with pytest.raises(LakeError):
        lake.list("a")
    with pytest.raises(LakeError):
        lake.list("a/b")
    assert lake.list("never") == []


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
