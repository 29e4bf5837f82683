"""Waves and selections: what is read when, by arithmetic alone."""

import random
from collections.abc import Iterable

import pytest

from penstock.spark.pipelines.archive.entries import ArchivedFile
from penstock.spark.pipelines.replaying.selection import Selection, hour_of
from penstock.spark.pipelines.replaying.waves import next_wave, pieces, spread

HOUR_MS = 3_600_000
SEVEN_MS = 1_738_306_800_000  # 2025-01-31T07:00Z


def file(name: str, offsets: dict[int, tuple[int, int]], rows: int = 100, hour: str = "07") -> ArchivedFile:
    path = f"topic=t/date=2025-01-31/hour={hour}/{name}.parquet"
    return ArchivedFile(path, "t", "id", rows, 1000, offsets)


def test_a_wave_ends_where_the_first_file_begins_that_it_does_not_take() -> None:
    files = [file("a", {0: (0, 99)}), file("b", {0: (50, 149)}), file("c", {0: (120, 219)})]
    wave = next_wave(files, {0: 0}, rows_max=200)
    assert wave is not None
    assert (wave.slices[0].start, wave.slices[0].end) == (0, 120)
    assert [archived.path for archived in wave.files] == [files[0].path, files[1].path]
    wave = next_wave(files, {0: 120}, rows_max=200)
    assert wave is not None
    # The rest of b is read again, for what it has behind the end of the first wave.
    assert (wave.slices[0].start, wave.slices[0].end) == (120, 220)
    assert [archived.path for archived in wave.files] == [files[1].path, files[2].path]
    assert next_wave(files, {0: 220}, rows_max=200) is None


def test_a_wave_gets_somewhere_however_small_it_must_be() -> None:
    files = [file("a", {0: (0, 99)}), file("b", {0: (0, 99)}), file("c", {0: (100, 199)})]
    wave = next_wave(files, {0: 0}, rows_max=1)
    assert wave is not None
    assert wave.slices[0].end == 100
    assert len(wave.files) == 2


@pytest.mark.parametrize("seed", range(20))
def test_waves_cover_every_offset_once_with_the_files_that_have_it(seed: int) -> None:
    dice = random.Random(seed)
    rows = [(partition, offset) for partition in range(3) for offset in range(dice.randrange(1, 300))]
    held: dict[str, set[tuple[int, int]]] = {}
    for at in rows:
        # Rows lie in files by their clocks: roughly in order, with overlaps.
        held.setdefault(f"f{at[1] // 40 + dice.randrange(3):03}", set()).add(at)
    files = [file(name, _spans(found), rows=len(found)) for name, found in held.items()]
    seen: list[tuple[int, int]] = []
    starts = {0: 0, 1: 0, 2: 0}
    while (wave := next_wave(files, starts, rows_max=90)) is not None:
        taken = {archived.path.rpartition("/")[2].removesuffix(".parquet") for archived in wave.files}
        for at in sorted(set().union(*(held[name] for name in taken))):
            part = wave.slices.get(at[0])
            if part is not None and part.start <= at[1] < part.end:
                seen.append(at)
        starts |= {partition: part.end for partition, part in wave.slices.items()}
    assert sorted(seen) == sorted(rows)


def _spans(found: Iterable[tuple[int, int]]) -> dict[int, tuple[int, int]]:
    spans: dict[int, tuple[int, int]] = {}
    for partition, offset in found:
        low, high = spans.get(partition, (offset, offset))
        spans[partition] = (min(low, offset), max(high, offset))
    return spans


def test_pieces_share_the_rows_of_a_file_by_offsets() -> None:
    shared = file("a", {0: (0, 29), 1: (0, 9)}, rows=40)
    assert [piece.rows for piece in pieces([shared], 0, 0)] == [30]
    assert pieces([shared], 1, 10) == []


def test_tasks_get_about_as_much_to_do() -> None:
    given = spread({0: 100, 1: 60, 2: 50, 3: 1}, 2)
    assert given[0] != given[1] == given[2]
    assert spread({5: 1.0}, 1) == {5: 0}


def test_files_are_left_out_by_the_hour_of_their_folder() -> None:
    seven = file("a", {0: (0, 9)}, hour="07")
    assert hour_of(seven) == SEVEN_MS
    assert Selection(since_ms=SEVEN_MS + HOUR_MS - 1).may_hold(seven)
    assert not Selection(since_ms=SEVEN_MS + HOUR_MS).may_hold(seven)
    assert Selection(until_ms=SEVEN_MS + 1).may_hold(seven)
    assert not Selection(until_ms=SEVEN_MS).may_hold(seven)
    assert not Selection(partitions=frozenset({1})).may_hold(seven)
    odd = ArchivedFile("topic=t/date=+10000-01-01/hour=07/x.parquet", "t", "id", 1, 1, {0: (0, 0)})
    assert Selection(since_ms=SEVEN_MS).may_hold(odd)


def test_a_selection_has_a_name_that_only_the_same_rows_share() -> None:
    names = {
        Selection().name("a"),
        Selection().name("b"),
        Selection(since_ms=1).name("a"),
        Selection(until_ms=1).name("a"),
        Selection(key=b"k").name("a"),
        Selection(key=b"").name("a"),
        Selection(tags=("k",)).name("a"),
    }
    assert len(names) == 7
    assert Selection(tags=("x", "y")).name("a") == Selection(tags=("y", "x")).name("a")
    # What was replayed of one partition says nothing about another.
    assert Selection(partitions=frozenset({1})).name("a") == Selection().name("a")
