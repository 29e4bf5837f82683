"""What `penstock verify --data-dir` makes of the files of one partition."""

from pathlib import Path

import pytest

from penstock.diagnosis.data_files import check_partition
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
    assert wrong(tmp_path, compacted=True) == ""
    lay_out(tmp_path, [batch(0, records=1, last=7)])
    assert wrong(tmp_path) == "", "a batch may lack records that a leader compacted away"


def test_a_batch_that_is_missing_inside_a_segment_is_found(tmp_path: Path) -> None:
    first = batch(0)
    (file,) = lay_out(tmp_path, [first, batch(4)])
    assert wrong(tmp_path) == f"{file.name}: offsets 2 to 3 are missing at byte {len(first)}"


def vouched(directory: Path, offset: int, segment: int, position: int, *, start: int = 0) -> None:
    point = RecoveryPoint(start, offset, segment, position, 0, 1, 0, -1)
    (directory / RECOVERY_POINT_FILE).write_bytes(point.dump())


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("clean", [False, True])
def test_an_end_that_was_vouched_for_and_is_gone_is_found(
    tmp_path: Path, *, clean: bool, compacted: bool
) -> None:
    files = lay_out(tmp_path, [batch(0), batch(2)], [batch(4), batch(6)])
    vouched(tmp_path, 8, 4, files[1].stat().st_size)
    assert wrong(tmp_path, clean=clean, compacted=compacted) == ""
    files[1].write_bytes(batch(4))
    cut = wrong(tmp_path, clean=clean, compacted=compacted)
    assert cut == f"{files[1].name}: offsets 6 to 7 are missing behind it"
    files[1].unlink()
    cut = wrong(tmp_path, clean=clean, compacted=compacted)
    assert cut == f"{files[0].name}: offsets 4 to 7 are missing behind it"
    files[0].unlink()
    assert wrong(tmp_path, clean=clean, compacted=compacted) == "offsets 0 to 7 are missing"


def test_a_beginning_that_is_gone_is_found_where_the_log_was_closed(tmp_path: Path) -> None:
    files = lay_out(tmp_path, [batch(0), batch(2)], [batch(4)])
    vouched(tmp_path, 6, 4, files[1].stat().st_size)
    files[0].unlink()
    assert wrong(tmp_path) == f"{files[1].name}: offsets 0 to 3 are missing before it"
    assert wrong(tmp_path, clean=False) == "", "retention may have taken it since the last checkpoint"
    vouched(tmp_path, 6, 4, files[1].stat().st_size, start=4)
    assert wrong(tmp_path) == ""


def test_what_retention_or_an_order_deleted_is_not_missing(tmp_path: Path) -> None:
    (tmp_path / segment_name(8, ".log")).write_bytes(b"")  # everything went, and nothing came since
    vouched(tmp_path, 8, 8, 0, start=8)
    assert wrong(tmp_path) == ""
    vouched(tmp_path, 6, 4, 100)
    (tmp_path / segment_name(8, ".start")).touch()  # DeleteRecords, after the last checkpoint
    assert wrong(tmp_path) == ""
    (tmp_path / segment_name(8, ".log")).unlink()
    assert wrong(tmp_path) == ""


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


def test_whole_batches_far_behind_the_damage_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are read in pieces: the first whole batch may lie in the next one."""
    batches = [batch(offset) for offset in range(0, 12, 2)]
    monkeypatch.setattr("penstock.diagnosis.data_files._PIECE_BYTES", 3 * len(batches[0]))
    (file,) = lay_out(tmp_path, batches)
    flip(file, 3 * len(batches[0]) - 1)
    assert "offset 4 or later" in wrong(tmp_path, clean=False)
    file.write_bytes(file.read_bytes()[: 3 * len(batches[0])] + bytes(5000))
    assert wrong(tmp_path, clean=False) == "", "torn off at the end"
