"""Finding whole batches in what a broker sent."""

import pytest
from tests.unit.client.raw.fake import batch_at

from penstock.client.raw.batches import NotABatchError, OldFormatError, Whole, whole_batches

FIRST, SECOND = batch_at(5, [b"a", b"b"]), batch_at(9, [b"c" * 100])
BOTH = FIRST + SECOND


def found(data: bytes, end: int = 100) -> Whole:
    return whole_batches(memoryview(data), end)


@pytest.mark.parametrize("cut", range(1, len(SECOND)))
def test_a_part_of_a_last_batch_does_not_count(cut: int) -> None:
    assert found(BOTH[: len(FIRST) + cut]) == Whole(len(FIRST), 7, 0, at_end=False)


def test_whole_batches_and_nothing() -> None:
    assert found(BOTH) == Whole(len(BOTH), 10, 0, at_end=False)
    assert found(b"") == Whole(0, -1, 0, at_end=False)


def test_batches_behind_the_end_do_not_count() -> None:
    assert found(BOTH, end=9) == Whole(len(FIRST), 7, 0, at_end=True)
    assert found(BOTH, end=10) == Whole(len(BOTH), 10, 0, at_end=False)
    assert found(BOTH, end=5) == Whole(0, -1, 0, at_end=True)


def test_a_cut_first_batch_says_what_it_needs() -> None:
    assert found(FIRST[:30]).needed_bytes == len(FIRST)
    assert found(FIRST[:10]).needed_bytes > 10, "not even the length is there: ask for more"


def test_what_is_no_batch() -> None:
    for magic, error in ((0, OldFormatError), (1, OldFormatError), (3, NotABatchError)):
        with pytest.raises(error, match=str(magic)):
            found(FIRST[:16] + bytes([magic]) + FIRST[17:])
    for length in (-1, 0, 48):
        with pytest.raises(NotABatchError, match=f"length of {length}"):
            found(FIRST[:8] + length.to_bytes(4, "big", signed=True) + FIRST[12:])
