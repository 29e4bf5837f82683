"""A folder as a lake: exclusive names, whole files, moves that can be repeated, and errors that say what to do."""

import errno
import os
from contextlib import suppress
from pathlib import Path

import pytest
from tests.unit.spark.archive.faulty_s3 import nothing, s3_lake

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


@pytest.mark.parametrize("before", [("old",), ("new",)])
def test_a_move_that_was_killed_between_copy_and_delete_is_finished(before: tuple[str, ...]) -> None:
    lake = s3_lake(*before)
    for _ in range(2):
        lake.move("old", "new")
        assert lake._fs.files == {"new": f"what was in {before[0]}"}
    with pytest.raises(FileNotFoundError):
        lake.move("never", "nor")


class KilledError(BaseException):
    pass


def kill() -> None:
    raise KilledError


@pytest.mark.parametrize("killed_before", [False, True])
@pytest.mark.parametrize("asleep_at", range(12))
def test_a_move_takes_nothing_away_that_another_one_moved_meanwhile(
    asleep_at: int, killed_before: bool
) -> None:
    """One falls asleep before any step of it, also where a copy is there whose source is not deleted yet."""
    for killed_after in range(16):
        lake = s3_lake("old")
        if killed_before:
            lake._fs.files["new"] = lake._fs.files["old"]
        asleep = [*[nothing] * asleep_at, lambda lake=lake: lake.move("old", "new")]
        lake._fs.steps = iter([*asleep, *[nothing] * killed_after, kill])
        with suppress(KilledError):
            lake.move("old", "new")
        lake._fs.steps = iter(())
        lake.move("old", "new")
        assert lake._fs.files == {"new": "what was in old"}


@pytest.mark.parametrize("asleep_at", range(12))
def test_nor_where_a_file_of_another_round_has_the_name(asleep_at: int) -> None:
    """Names were given by number alone once, and a restored manifest gives a number again: both files stay."""
    lake = s3_lake("old", "new")
    both = dict(lake._fs.files)

    def another_one() -> None:
        with suppress(LakeError):
            lake.move("old", "new")

    lake._fs.steps = iter([*[nothing] * asleep_at, another_one])
    with pytest.raises(LakeError, match="new is in the way of old"):
        lake.move("old", "new")
    assert lake._fs.files == both


@pytest.mark.parametrize("asleep_at", range(5))
def test_a_name_is_given_once_on_s3_too(asleep_at: int) -> None:
    """One falls asleep before any step, and another one creates it meanwhile."""
    lake = s3_lake()
    lake._fs.steps = iter([*[nothing] * asleep_at, lambda: lake.create("a", b"theirs")])
    with pytest.raises(FileExistsError):  # at the very end it is the other one who comes too late
        lake.create("a", b"mine")
    assert lake._fs.files == {"a": b"theirs" if asleep_at < 4 else b"mine"}


@pytest.mark.parametrize("asleep_at", range(3))
def test_what_is_cut_off_while_it_is_written_is_not_there_on_s3(asleep_at: int) -> None:
    lake = s3_lake()
    lake._fs.steps = iter([*[nothing] * asleep_at, kill])
    with pytest.raises(KilledError):
        lake.create("a", b"mine")
    assert lake._fs.files == {}


def test_that_files_are_gone_is_synced_once_for_each_folder(
    lake: FolderLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("a/1", "a/2", "b/3"):
        lake.create(path, b"x")
        lake.delete(path)
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.readlink(f"/proc/self/fd/{handle}")))
    lake.sync_removed(["a/1", "a/2", "b/3", "never/4"])
    assert synced == [str(tmp_path / "lake/a"), str(tmp_path / "lake/b")]


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
