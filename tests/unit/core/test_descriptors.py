"""Files of segments are opened when they are needed, and closed when others are (`core.descriptors`)."""

import pickle
import resource
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from penstock.core.descriptors import Descriptors, Shares
from penstock.core.errors import ShortageError, TooManyFilesError
from penstock.core.files import File
from penstock.core.os_files import OsFiles
from penstock.testing.mem_files import MemFiles


class Holder:
    def __init__(self, files: MemFiles, number: int) -> None:
        self.handle: File | None = None
        self.former: tuple[Callable[[], File | None], ...] = ()
        self.used = self.unsynced = False
        self._files = files
        self._path = Path(f"/{number}.log")

    def open(self) -> File:
        return self._files.descriptors.open(self, partial(self._files.open, self._path, create=True))


def holders(files: MemFiles, count: int) -> list[Holder]:
    return [Holder(files, number) for number in range(count)]


def are_open(row: list[Holder]) -> list[int]:
    return [number for number, holder in enumerate(row) if holder.handle is not None]


@pytest.fixture
def files() -> MemFiles:
    files = MemFiles()
    files.limit_files(4)
    return files


def test_the_one_that_was_not_used_for_longest_is_closed(files: MemFiles) -> None:
    row = holders(files, 5)
    for holder in row[:3]:
        holder.open()
    row[0].used = True
    row[3].open()
    assert are_open(row) == [0, 2, 3]
    row[4].open()
    assert are_open(row) == [0, 3, 4]
    assert len(files.descriptors.live) == 3


def test_whoever_has_a_file_keeps_it_open(files: MemFiles) -> None:
    row = holders(files, 4)
    file = row[0].open()
    file.pwrite(b"here", 0)
    for holder in row[1:]:
        holder.open()
    assert row[0].handle is None
    assert file.pread(4, 0) == b"here"
    assert len(files.descriptors.live) == 3
    del file
    assert len(files.descriptors.live) == 2


def test_when_all_are_in_use_one_more_is_refused_until_one_is_done(files: MemFiles) -> None:
    held = [holder.open() for holder in holders(files, 4)]
    late = Holder(files, 9)
    with pytest.raises(TooManyFilesError, match="ulimit -n"):
        late.open()
    held.pop()
    late.open()


def test_a_file_with_unsynced_bytes_is_not_closed(files: MemFiles) -> None:
    row = holders(files, 6)
    row[0].open()
    files.descriptors.pin(row[0])
    for holder in row[1:]:
        holder.open()
    assert row[0].handle is not None
    files.descriptors.pin(row[5])
    files.descriptors.pin(row[4])
    assert files.descriptors.pressed
    files.descriptors.unpin(row[0])
    assert not files.descriptors.pressed
    row[1].open()
    row[2].open()
    assert row[0].handle is None


def test_one_that_is_forgotten_costs_nothing_when_it_is_gone(files: MemFiles) -> None:
    holder = Holder(files, 0)
    holder.open()
    del holder
    assert not files.descriptors.live
    for other in holders(files, 9):
        other.open()


def test_others_take_descriptors_from_segments_that_are_not_in_use() -> None:
    files = MemFiles()
    files.limit_files(100, open_max=5)
    row = holders(files, 5)
    for holder in row:
        holder.open()
    small = files.open(Path("/small"), create=True)
    assert are_open(row) == []
    held = [holder.open() for holder in row[:4]]
    with pytest.raises(ShortageError):
        files.open(Path("/another"), create=True)
    assert len(held) + 1 == len(files.descriptors.live)
    small.close()


@pytest.mark.parametrize(("limit", "files_min", "connections_min"), [(300, 50, 50), (4096, 1000, 1000)])
def test_there_is_something_left_for_everybody(limit: int, files_min: int, connections_min: int) -> None:
    shares = Shares.of(limit)
    assert shares.files >= files_min
    assert shares.connections >= connections_min
    assert shares.files + 2 * shares.connections <= limit - min(limit // 4, 160)


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    """Of this process: what is open already, and a few more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = {int(path.name) for path in Path("/proc/self/fd").iterdir()}
    free = [number for number in range(soft) if number not in taken]
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[9], hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("few_descriptors")
def test_the_system_refuses_and_segments_give_way(tmp_path: Path) -> None:
    files = OsFiles()
    files.descriptors = Descriptors(Shares(1000, 1000))
    kept: list[File] = []
    with pytest.raises(TooManyFilesError):
        kept.extend(files.open(tmp_path / str(number), create=True) for number in range(100))
    with pytest.raises(TooManyFilesError):
        files.list_dir(tmp_path)
    count = len(kept)
    kept.clear()
    row = []
    for number in range(3 * count):  # each takes the place of those before it
        row.append(Holder(files, 0))  # type: ignore[arg-type]
        files.descriptors.open(row[-1], partial(files.open, tmp_path / str(number), create=True))
    assert len(files.list_dir(tmp_path)) == 3 * count
    files.write_atomically(tmp_path / "small", b"x")
    assert files.read(tmp_path / "small") == b"x"


def test_another_process_has_its_own() -> None:
    files = OsFiles()
    assert pickle.loads(pickle.dumps(files)).descriptors is not files.descriptors


def test_answers_are_lent_half_of_the_files_and_no_one_of_them_all(files: MemFiles) -> None:
    files.limit_files(100)
    descriptors = files.descriptors
    lent = []
    while share := descriptors.lendable:
        lent.append(share)
        descriptors.lent += share
    assert descriptors.lent == 50
    assert lent[0] == 25


def test_who_is_refused_a_file_is_told_of_in_the_log(
    files: MemFiles, caplog: pytest.LogCaptureFixture
) -> None:
    row = holders(files, 5)
    held = [holder.open() for holder in row[:4]]
    with pytest.raises(TooManyFilesError):
        row[4].open()
    assert "a file is not opened: all 4 files" in caplog.text
    del held
