"""What `penstock verify --data-dir` makes of the files of one partition."""

from pathlib import Path

import pytest

from penstock.cli.verify_data import check_partition
from penstock.records.builder import BatchBuilder, BatchOptions
from penstock.storage.checkpoint import RecoveryPoint
from penstock.storage.layout import RECOVERY_POINT_FILE, segment_name


class Unseen:
    def show(self, done: float, total: float) -> None:
        pass


def batch(offset: int, records: int = 2, last: int | None = None) -> bytes:
    builder = BatchBuilder(BatchOptions(base_offset=offset, last_offset_delta=last))
    for _ in range(records):
        builder.append(b"v" * 50, key=b"k", timestamp=1)
    return bytes(builder.build())


def lay_out(directory: Path, *segments: list[bytes]) -> list[Path]:
    """Each from the first offset of its first batch on."""
    files = []
    for batches in segments:
        files.append(directory / segment_name(int.from_bytes(batches[0][:8], "big"), ".log"))
        files[-1].write_bytes(b"".join(batches))
    return files


def wrong(directory: Path, *, clean: bool = True, compacted: bool = False) -> str:
    return check_partition(directory, clean=clean, compacted=compacted, progress=Unseen())[0]


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


def test_a_missing_segment_is_found(tmp_path: Path) -> None:
    files = lay_out(tmp_path, [batch(0), batch(2)], [batch(4), batch(6)], [batch(8)])
    assert wrong(tmp_path) == ""
    files[1].unlink()
    assert wrong(tmp_path) == f"{files[2].name}: offsets 4 to 7 are missing before it"
    assert wrong(tmp_path, clean=False) != ""


def test_what_compaction_took_is_not_missing(tmp_path: Path) -> None:
    lay_out(tmp_path, [batch(0)], [batch(8)])
    assert wrong(tmp_path, compacted=True) == ""
    lay_out(tmp_path, [batch(0), batch(4)])
    assert wrong(tmp_path) == "", "a segment with gaps in it was compacted somewhere"
    lay_out(tmp_path, [batch(0, records=1, last=3)])
    assert wrong(tmp_path) == "", "as was one whose batches lack records"


@pytest.mark.parametrize("at", [3, 8, 16, 17, 30, 80])
def test_a_flipped_byte_is_found_after_a_kill_where_whole_batches_follow(tmp_path: Path, at: int) -> None:
    first = batch(0)
    (file,) = lay_out(tmp_path, [first, batch(2), batch(4)])
    assert wrong(tmp_path, clean=False) == ""
    flip(file, len(first) + at)
    assert wrong(tmp_path, clean=False) != ""


def test_a_flipped_byte_is_found_after_a_kill_in_what_was_vouched_for(tmp_path: Path) -> None:
    first = batch(0)
    (file,) = lay_out(tmp_path, [first, batch(2)])
    flip(file, len(first) + 80)
    assert wrong(tmp_path, clean=False) == "", "may be torn: the next start cuts it"
    assert wrong(tmp_path) != ""
    point = RecoveryPoint(0, 4, 0, file.stat().st_size, 0, 1, 0, -1)
    (tmp_path / RECOVERY_POINT_FILE).write_bytes(point.dump())
    assert wrong(tmp_path, clean=False) != ""


def test_what_a_kill_tore_off_is_fine(tmp_path: Path) -> None:
    first = batch(0)
    (file,) = lay_out(tmp_path, [first, batch(2)])
    for size in (len(first) + 3, len(first) + 40, len(first) + 100):
        file.write_bytes((first + batch(2))[:size])
        assert wrong(tmp_path, clean=False) == ""
        assert wrong(tmp_path) != ""
