import pytest

from penstock.core.errors import StorageError
from penstock.storage.epochs import UNKNOWN_EPOCH, UNKNOWN_OFFSET, EpochHistory


def history(*entries: tuple[int, int]) -> EpochHistory:
    made = EpochHistory()
    for epoch, start in entries:
        made.assign(epoch, start)
    return made


def test_an_epoch_is_noted_once_and_never_backwards() -> None:
    known = history((1, 0), (1, 5), (3, 10), (2, 20))
    assert known.entries() == [(1, 0), (3, 10)]


def test_an_epoch_that_wrote_nothing_gives_way_to_the_next() -> None:
    assert history((1, 0), (2, 10), (4, 10)).entries() == [(1, 0), (4, 10)]


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        (0, (0, 5)),  # older than all: it ended where the first known one began
        (1, (1, 10)),
        (2, (1, 10)),  # a gap: the largest one below, and where the next began
        (3, (3, 20)),
        (4, (4, 99)),  # the latest ends where the log does
        (5, (UNKNOWN_EPOCH, UNKNOWN_OFFSET)),
        (-1, (UNKNOWN_EPOCH, UNKNOWN_OFFSET)),
    ],
)
def test_where_an_epoch_ended(epoch: int, answer: tuple[int, int]) -> None:
    assert history((1, 5), (3, 10), (4, 20)).end_of(epoch, 99) == answer


def test_an_empty_history_knows_no_end() -> None:
    assert EpochHistory().end_of(0, 0) == (UNKNOWN_EPOCH, UNKNOWN_OFFSET)
    assert EpochHistory().latest == UNKNOWN_EPOCH


def test_which_epoch_wrote_an_offset() -> None:
    known = history((1, 5), (3, 10))
    assert [known.epoch_at(offset) for offset in (4, 5, 9, 10, 11)] == [-1, 1, 1, 3, 3]


def test_cutting_the_end_forgets_what_began_there() -> None:
    known = history((1, 0), (3, 10), (4, 20))
    known.truncate_from(10)
    assert known.entries() == [(1, 0)]


def test_a_later_start_keeps_the_epoch_that_holds_it() -> None:
    known = history((1, 0), (3, 10), (4, 20))
    known.advance_start(15)
    assert known.entries() == [(3, 15), (4, 20)]
    known.advance_start(20)
    assert known.entries() == [(4, 20)]


def test_it_survives_the_file_and_damage_is_noticed() -> None:
    known = history((1, 0), (3, 10))
    data = known.dump()
    assert EpochHistory.parse(data).entries() == known.entries()
    for at in range(len(data) - 1):
        flipped = bytearray(data)
        flipped[at] ^= 1
        with pytest.raises(StorageError):
            EpochHistory.parse(bytes(flipped))
    with pytest.raises(StorageError):
        EpochHistory.parse(b"")
