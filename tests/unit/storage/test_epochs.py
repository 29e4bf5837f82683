import random

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


def test_a_later_start_keeps_the_epoch_that_holds_it_and_that_of_the_record_before() -> None:
    known = history((1, 0), (3, 10), (4, 20))
    known.advance_start(15)
    assert known.entries() == [(3, 14), (4, 20)]
    known.advance_start(20)
    assert known.entries() == [(3, 19), (4, 20)]
    assert known.end_of(3, 25) == (3, 20)
    # Who had that offset from another leader is told so, though it is gone here.
    known = history((1, 0), (3, 10), (5, 20))
    known.advance_start(20)
    assert known.end_of(4, 25) == (3, 20)
    # And what a new leader writes to a log that is empty does not make it forget.
    known = history((3, 10))
    known.advance_start(20)
    known.assign(6, 20)
    assert known.entries() == [(3, 19), (6, 20)]
    known.advance_start(20)
    known.advance_start(0)
    assert known.entries() == [(3, 19), (6, 20)]


@pytest.mark.parametrize(
    ("told", "entries"),
    [
        ([(5, 120), (7, 150)], [(1, 0), (3, 60), (5, 120), (7, 150)]),
        ([(7, 160)], [(1, 0), (3, 60), (7, 160)]),
        ([(1, 0), (3, 60), (5, 90), (7, 200), (8, 210)], [(1, 0), (3, 60), (5, 100), (7, 160)]),
        ([(5, 100), (6, 100), (7, 100)], [(1, 0), (3, 60), (7, 100)]),
    ],
    ids=["several", "one", "out of bounds", "empty ones"],
)
def test_epochs_that_began_within_a_gap_are_noted_where_they_did(
    told: list[tuple[int, int]], entries: list[tuple[int, int]]
) -> None:
    known = history((1, 0), (3, 60))
    assert known.cross_gap(told, 7, range(100, 160))
    assert known.entries() == entries


def test_a_list_without_the_epoch_tells_nothing_of_what_came_before_it() -> None:
    known = history((1, 0), (3, 60))
    assert not known.cross_gap([(5, 120), (8, 150)], 7, range(100, 160))
    assert known.entries() == [(1, 0), (3, 60)]


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


def test_the_latest_is_the_last_of_them_whatever_happens() -> None:
    rng = random.Random(1)
    known = EpochHistory()
    for _ in range(500):
        epoch, offset = rng.randrange(40), rng.randrange(100)
        rng.choice(
            [
                lambda e=epoch, o=offset: known.assign(e, o),
                lambda o=offset: known.truncate_from(o),
                lambda e=epoch: known.forget_after(e),
                lambda o=offset: known.advance_start(o),
            ]
        )()
        for epochs in (known, known.copy(), EpochHistory.parse(known.dump())):
            assert epochs.latest == (epochs.entries()[-1][0] if len(epochs) else UNKNOWN_EPOCH)
