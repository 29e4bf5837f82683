"""What every `Files` promises, run over the operating system and over the simulation's memory."""

import errno
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.core.errors import DiskFailedError
from penstock.core.files import Files, LockedError
from penstock.core.os_files import OsFiles
from penstock.testing.mem_files import MemFiles


@pytest.fixture(params=["os", "memory"])
def files(request: pytest.FixtureRequest) -> Files:
    return OsFiles() if request.param == "os" else MemFiles(seed=1)


@pytest.fixture
def root(files: Files, tmp_path: Path) -> Path:
    # The same absolute path in both worlds; in memory it has to be made first.
    files.make_dirs(tmp_path)
    return tmp_path


def test_written_bytes_can_be_read_at_any_offset(files: Files, root: Path) -> None:
    file = files.open(root / "a", create=True)
    file.pwrite(b"hello", 0)
    file.pwrite(memoryview(bytearray(b" world")), 5)
    assert file.pread(11, 0) == b"hello world"
    assert file.pread(5, 6) == b"world"
    file.warm(5, 6)
    assert file.pread_cached(5, 6) == b"world"
    assert file.size() == 11
    file.close()
    assert files.read(root / "a") == b"hello world"
    assert files.size(root / "a") == 11


def test_reading_past_the_end_gives_what_is_there(files: Files, root: Path) -> None:
    file = files.open(root / "a", create=True)
    file.pwrite(b"abc", 0)
    assert file.pread(10, 1) == b"bc"
    assert file.pread(10, 3) == b""
    assert file.pread_cached(10, 1) == b"bc"
    assert file.pread_cached(10, 7) == b""
    file.close()


def test_a_gap_reads_as_zeros(files: Files, root: Path) -> None:
    file = files.open(root / "a", create=True)
    file.pwrite(b"z", 3)
    assert file.pread(4, 0) == b"\0\0\0z"
    file.close()


def test_truncate_cuts_and_extends(files: Files, root: Path) -> None:
    file = files.open(root / "a", create=True)
    file.pwrite(b"abcdef", 0)
    file.truncate(2)
    assert file.pread(9, 0) == b"ab"
    file.truncate(4)
    assert file.pread(9, 0) == b"ab\0\0"
    file.sync()
    file.close()


def test_two_handles_share_one_file(files: Files, root: Path) -> None:
    file = files.open(root / "a", create=True)
    two = files.open(root / "a", create=True)
    file.pwrite(b"new", 0)
    assert two.pread(3, 0) == b"new"
    file.close()
    assert two.size() == 3
    two.close()


def test_an_open_file_outlives_its_name(files: Files, root: Path) -> None:
    file = files.open(root / "a", create=True)
    file.pwrite(b"still here", 0)
    files.unlink(root / "a")
    assert not files.exists(root / "a")
    assert file.pread(10, 0) == b"still here"
    file.close()


def test_what_is_missing_is_a_file_not_found(files: Files, root: Path) -> None:
    nowhere = root / "nowhere"
    for call in (files.open, files.read, files.size, files.sync_dir, files.sync_all, files.free_bytes):
        with pytest.raises(FileNotFoundError):
            call(nowhere)
    with pytest.raises(FileNotFoundError):
        files.open(nowhere / "deep", create=True)
    with pytest.raises(FileNotFoundError):
        files.rename(nowhere, root / "target")
    with pytest.raises(FileNotFoundError):
        files.lock(nowhere / "lock")
    with pytest.raises(FileNotFoundError):
        files.write_atomically(nowhere / "deep", b"")


def test_absence_is_no_error_where_it_is_an_answer(files: Files, root: Path) -> None:
    assert not files.exists(root / "x")
    assert files.list_dir(root / "x") == []
    files.unlink(root / "x")
    files.unlink(root / "x" / "y")
    files.remove_tree(root / "x")
    assert files.list_dir(root) == []


def test_the_wrong_kind_of_node_is_a_disk_failure(files: Files, root: Path) -> None:
    files.make_dirs(root / "dir")
    files.write_atomically(root / "file", b"x")
    for call in (files.open, files.read, files.unlink):
        with pytest.raises(DiskFailedError):
            call(root / "dir")
    for directory_call in (files.list_dir, files.sync_dir, files.make_dirs):
        with pytest.raises(DiskFailedError):
            directory_call(root / "file")
    with pytest.raises(DiskFailedError):
        files.rename(root / "file", root / "dir")


def test_atomic_write_replaces_the_whole_content(files: Files, root: Path) -> None:
    path = root / "state.json"
    files.write_atomically(path, b"a long first version")
    files.write_atomically(path, b"short")
    assert files.read(path) == b"short"
    assert files.list_dir(root) == ["state.json"]
    files.write_atomically(path, b"")
    assert files.read(path) == b""


def test_names_are_listed_in_order(files: Files, root: Path) -> None:
    files.make_dirs(root / "m" / "n")
    for name in ("z", "a", "b10", "b9"):
        files.open(root / name, create=True).close()
    assert files.list_dir(root) == ["a", "b10", "b9", "m", "z"]
    assert files.list_dir(root / "m") == ["n"]
    files.make_dirs(root / "m" / "n")
    assert files.exists(root / "m" / "n")


def test_rename_moves_and_replaces(files: Files, root: Path) -> None:
    files.write_atomically(root / "a", b"A")
    files.write_atomically(root / "b", b"B")
    files.make_dirs(root / "dir")
    files.rename(root / "a", root / "b")
    assert files.read(root / "b") == b"A"
    files.rename(root / "b", root / "dir" / "c")
    files.sync_all(root)
    assert files.list_dir(root) == ["dir"]
    assert files.read(root / "dir" / "c") == b"A"


def test_rename_moves_a_directory_with_its_content(files: Files, root: Path) -> None:
    files.make_dirs(root / "topic" / "0")
    files.write_atomically(root / "topic" / "0" / "log", b"records")
    files.rename(root / "topic", root / "topic.deleted")
    assert files.read(root / "topic.deleted" / "0" / "log") == b"records"
    files.make_dirs(root / "other" / "x")
    with pytest.raises(DiskFailedError):
        files.rename(root / "topic.deleted", root / "other")


def test_a_tree_is_removed_with_everything_in_it(files: Files, root: Path) -> None:
    files.make_dirs(root / "t" / "u")
    files.write_atomically(root / "t" / "u" / "f", b"x")
    files.write_atomically(root / "keep", b"x")
    files.remove_tree(root / "t")
    assert files.list_dir(root) == ["keep"]


def test_a_tree_that_cannot_be_removed_is_an_error(
    files: Files, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever makes it anew would go on over what is left of it."""
    files.make_dirs(root / "t" / "u")
    files.write_atomically(root / "t" / "u" / "f", b"x")
    with monkeypatch.context() as patch:
        if isinstance(files, MemFiles):
            files.fail_next("unlink", "*/f")
        else:
            patch.setattr(Path, "unlink", broken)
        with pytest.raises(DiskFailedError):
            files.remove_tree(root / "t")
    assert files.exists(root / "t" / "u" / "f")
    files.remove_tree(root / "t")
    assert not files.exists(root / "t")


def broken(path: Path, *, missing_ok: bool) -> None:
    raise OSError(errno.EIO, "Input/output error")


def test_a_lock_is_held_by_one_at_a_time(files: Files, root: Path) -> None:
    held = files.lock(root / ".lock")
    with pytest.raises(LockedError):
        files.lock(root / ".lock")
    held.release()
    files.lock(root / ".lock").release()


def test_there_is_free_space(files: Files, root: Path) -> None:
    assert files.free_bytes(root) > 0


class _Actions:
    """The same file in both worlds and in a plain bytearray, under the same random actions."""

    write = st.tuples(st.just("write"), st.integers(0, 300), st.binary(max_size=120))
    cut = st.tuples(st.just("cut"), st.integers(0, 400), st.just(b""))
    lists = st.lists(st.one_of(write, write, cut), max_size=25)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=_Actions.lists)
def test_a_file_is_a_byte_array(files: Files, root: Path, actions: list[tuple[str, int, bytes]]) -> None:
    files.unlink(root / "model")
    file = files.open(root / "model", create=True)
    model = bytearray()
    for kind, offset, data in actions:
        if kind == "cut":
            file.truncate(offset)
            model = model[:offset].ljust(offset, b"\0")
        else:
            file.pwrite(data, offset)
            if data:
                model = model.ljust(offset, b"\0")
                model[offset : offset + len(data)] = data
        assert file.size() == len(model)
        assert file.pread(1000, 0) == model
    file.close()


def test_what_the_disk_does_not_tell_is_neither_there_nor_missing(tmp_path: Path) -> None:
    """A name that is too long stands for an inode that cannot be read: whoever looks hears of the disk's trouble."""
    path = tmp_path / ("n" * 300)
    for look in (OsFiles().exists, OsFiles().make_dirs):
        with pytest.raises(DiskFailedError):
            look(path)
    assert not OsFiles().exists(tmp_path / "none" / "such")
