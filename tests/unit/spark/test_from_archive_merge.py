"""Rows of one partition out of files that overlap."""

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.spark.pipelines.archive.errors import CorruptFileError
from penstock.spark.pipelines.from_archive import merge
from penstock.spark.pipelines.from_archive.merge import LocalFile, merged
from penstock.spark.schema import ARROW_HEADERS

SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", ARROW_HEADERS),
    ]
)


def write(path: Path, at: list[tuple[int, int]], partition: int, row_group_size: int = 16) -> LocalFile:
    rows = [
        {"partition": p, "offset": o, "timestamp": o * 1000, "timestampType": 0, "value": b"%d" % o}
        for p, o in at
    ]
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    pq.write_table(table, path, row_group_size=row_group_size, write_page_checksum=True)
    offsets = [o for p, o in at if p == partition]
    return LocalFile(path, min(offsets), max(offsets), 100.0)


def offsets_of(files: list[LocalFile], partition: int, start: int, end: int) -> list[int]:
    return [o for batch in merged(files, partition, start, end) for o in batch.column("offset").to_pylist()]


@pytest.mark.parametrize("seed", range(15))
def test_every_row_in_order_whatever_file_it_is_in(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    monkeypatch.setattr(merge, "BATCH_ROWS", dice.choice([1, 3, 1000]))
    rows = [(p, o) for p in range(2) for o in range(dice.randrange(1, 200)) if dice.random() < 0.8]
    rows.append((1, 500))
    held: dict[int, list[tuple[int, int]]] = {}
    for at in rows:
        held.setdefault(at[1] // 30 + dice.randrange(3), []).append(at)
    files = [
        write(tmp_path / f"{number}.parquet", sorted(at), 1, dice.choice([1, 7, 1000]))
        for number, at in held.items()
        if any(p == 1 for p, _ in at)
    ]
    wanted = [o for p, o in sorted(rows) if p == 1]
    assert offsets_of(files, 1, 0, 1000) == wanted
    assert offsets_of(files, 1, 50, 120) == [o for o in wanted if 50 <= o < 120]


def test_rows_behind_the_last_offset_that_counts_are_left_out(tmp_path: Path) -> None:
    """The log gave their offsets to other records, which are in another file."""
    old = write(tmp_path / "old.parquet", [(0, o) for o in range(20)], 0)
    new = write(tmp_path / "new.parquet", [(0, o) for o in range(12, 30)], 0)
    assert offsets_of([old._replace(last=11), new], 0, 0, 100) == list(range(30))


def test_a_damaged_or_missing_file_is_named(tmp_path: Path) -> None:
    good = write(tmp_path / "good.parquet", [(0, o) for o in range(100)], 0)
    bad = write(tmp_path / "bad.parquet", [(0, o) for o in range(100, 200)], 0, row_group_size=1000)
    content = bytearray(bad.path.read_bytes())
    content[len(content) // 4] ^= 0xFF
    bad.path.write_bytes(content)
    with pytest.raises(CorruptFileError, match=r"bad\.parquet"):
        offsets_of([good, bad], 0, 0, 200)
    assert offsets_of([good, bad], 0, 0, 100) == list(range(100))
    bad.path.write_bytes(b"not parquet at all")
    with pytest.raises(CorruptFileError, match=r"bad\.parquet"):
        offsets_of([good, bad], 0, 0, 200)
    bad.path.unlink()
    with pytest.raises(FileNotFoundError):
        offsets_of([good, bad], 0, 0, 200)


def test_rows_out_of_order_are_no_archive(tmp_path: Path) -> None:
    wrong = write(tmp_path / "wrong.parquet", [(0, 5), (0, 4)], 0)
    with pytest.raises(CorruptFileError, match="not in order"):
        offsets_of([wrong], 0, 0, 10)
