"""How a batch is measured out and cut into tasks."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.client.raw import TopicPartition
from penstock.spark.planning import Range, limit_rows, split

A, B, C = (TopicPartition("t", number) for number in range(3))

sizes = st.lists(st.integers(0, 10_000), min_size=1, max_size=12)


def ranges_of(lengths: list[int]) -> list[Range]:
    return [
        Range(TopicPartition("t", number), number * 7, number * 7 + size)
        for number, size in enumerate(lengths)
    ]


def test_each_partition_gets_its_share() -> None:
    ends = limit_rows({A: 0, B: 100, C: 0}, {A: 600, B: 400, C: 100}, 100)
    assert ends == {A: 60, B: 130, C: 10}


def test_everything_fits_under_the_limit() -> None:
    assert limit_rows({A: 0, B: 5}, {A: 5, B: 10}, 10) == {A: 5, B: 10}


def test_a_small_partition_does_not_starve() -> None:
    assert limit_rows({A: 0, B: 0}, {A: 1_000_000, B: 1}, 10)[B] == 1


def test_a_log_that_was_cut_off_keeps_its_new_end() -> None:
    assert limit_rows({A: 50, B: 0}, {A: 30, B: 100}, 10) == {A: 30, B: 10}


@given(sizes, st.integers(1, 5_000))
def test_the_limit_moves_forward_and_stays_near(lengths: list[int], rows_max: int) -> None:
    ranges = ranges_of(lengths)
    start, end = {part.at: part.start for part in ranges}, {part.at: part.end for part in ranges}
    limited = limit_rows(start, end, rows_max)
    taken = sum(limited[at] - start[at] for at in end)
    assert all(start[at] <= limited[at] <= end[at] for at in end)
    assert taken <= rows_max + len(lengths)
    assert taken > 0 or not any(lengths)


def test_one_task_per_partition_unless_told_otherwise() -> None:
    assert split(ranges_of([5, 0, 7])) == [Range(A, 0, 5), Range(C, 14, 21)]


def test_pieces_are_even() -> None:
    assert [part.size for part in split([Range(A, 0, 10)], partitions_min=3)] == [3, 3, 4]
    assert [part.size for part in split([Range(A, 0, 10)], records_max=4)] == [3, 3, 4]


def test_the_largest_is_cut_first() -> None:
    cut = split([Range(A, 0, 100), Range(B, 0, 10)], partitions_min=4)
    assert [(part.at, part.size) for part in cut] == [(A, 33), (A, 33), (A, 34), (B, 10)]


def test_no_empty_pieces() -> None:
    assert split([Range(A, 5, 7)], partitions_min=10) == [Range(A, 5, 6), Range(A, 6, 7)]
    assert split([], partitions_min=10) == []


@given(sizes, st.none() | st.integers(1, 40), st.none() | st.integers(1, 3_000))
def test_pieces_cover_the_ranges_once(
    lengths: list[int], partitions_min: int | None, records_max: int | None
) -> None:
    ranges = ranges_of(lengths)
    cut = split(ranges, partitions_min=partitions_min, records_max=records_max)
    for part in ranges:
        mine = [piece for piece in cut if piece.at == part.at]
        edges = [piece.start for piece in mine] + [part.end]
        assert not mine or edges[0] == part.start
        assert [piece.end for piece in mine] == edges[1:]
    assert sum(piece.size for piece in cut) == sum(lengths)
    assert all(0 < piece.size <= (records_max or 10_000) for piece in cut)
    assert len(cut) >= min(partitions_min or 0, sum(lengths))
