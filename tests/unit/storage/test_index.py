from pathlib import Path

import pytest

from penstock.storage import index as index_files
from penstock.storage.index import SegmentIndex
from penstock.testing.mem_files import MemFiles

STEM = Path("/data/00000000000000001000")


def an_index(entries: int = 10) -> SegmentIndex:
    """Batches of ten records and 500 bytes from offset 1000 on; every third one is older than what came before."""
    index = SegmentIndex(1000)
    newest = 0
    for at in range(entries):
        newest = max(newest, 5000 + at * 10 - (40 if at % 3 == 2 else 0))
        index.add(1000 + at * 10, at * 500, newest)
    return index


def files() -> MemFiles:
    made = MemFiles()
    made.make_dirs(STEM.parent)
    return made


def same(index: SegmentIndex | None, other: SegmentIndex) -> bool:
    return index is not None and (index.offsets, index.positions, index.timestamps) == (
        other.offsets,
        other.positions,
        other.timestamps,
    )


def test_offsets_positions_and_times_are_found() -> None:
    index = an_index()
    assert index.floor(999) == (-1, 0)
    assert index.floor(1000) == (1000, 0)
    assert index.floor(1019) == (1010, 500)
    assert index.floor(9999) == (1090, 4500)
    assert index.floor_position(499) == 0
    assert index.floor_position(500) == 500
    assert index.before_timestamp(0) == 0
    assert index.before_timestamp(5011) == 1000
    assert index.before_position(500) == (0, 5000)
    assert index.before_position(501) == (500, 5010)


def test_saving_goes_on_where_it_stopped() -> None:
    disk = files()
    index = an_index(4)
    for entries in (4, 7, 10):
        full = an_index(entries)
        full.persisted = index.persisted
        index = full
        unsaved = index.unsaved()
        assert unsaved is not None
        index_files.save(disk, STEM, unsaved, durable=True)
        index.persisted = len(index)
        assert index.unsaved() is None
        assert same(index_files.load(disk, STEM, 1000), index)
    assert same(index_files.load(disk, STEM, 1000, 7), an_index(7))
    assert index_files.load(disk, STEM, 1000, 11) is None


def test_a_cut_index_is_cut_on_disk_too() -> None:
    disk = files()
    index = an_index()
    index_files.save(disk, STEM, index, durable=True)
    index.persisted = len(index)
    index.truncate(1500)
    assert len(index) == 3
    unsaved = index.unsaved()
    assert unsaved is not None
    index_files.save(disk, STEM, unsaved, durable=True)
    assert same(index_files.load(disk, STEM, 1000), an_index(3))


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_damage_anywhere_is_noticed(suffix: str) -> None:
    disk = files()
    index_files.save(disk, STEM, an_index(), durable=True)
    path = STEM.with_name(STEM.name + suffix)
    size = disk.size(path)
    for at in range(size):
        # The checks of earlier saves, halfway through the file, are not looked at any more.
        if suffix == ".timeindex" and at % 16 >= 8 and at < size - 16:
            continue
        file = disk.open(path)
        before = file.pread(1, at)
        file.pwrite(bytes([before[0] ^ 4]), at)
        assert index_files.load(disk, STEM, 1000) is None, at
        file.pwrite(before, at)
    assert same(index_files.load(disk, STEM, 1000), an_index())


def test_missing_and_short_files_are_no_index() -> None:
    disk = files()
    assert index_files.load(disk, STEM, 1000) is None
    index_files.save(disk, STEM, an_index(), durable=True)
    disk.open(STEM.with_name(STEM.name + ".timeindex")).truncate(100)
    assert index_files.load(disk, STEM, 1000) is None
    disk.unlink(STEM.with_name(STEM.name + ".timeindex"))
    assert index_files.load(disk, STEM, 1000) is None
