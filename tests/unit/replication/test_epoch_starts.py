"""What a follower asks when it comes to a gap, and what it makes of the answers."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.replication.epoch_starts import starts_within
from penstock.storage.epochs import EpochHistory

LOG_END = 200


def asked(
    entries: list[tuple[int, int]], gap: range, epoch: int, latest: int
) -> tuple[list[tuple[int, int]], list[int]]:
    history = EpochHistory()
    for each, start in entries:
        history.assign(each, start)
    questions: list[int] = []

    async def end_of(before: int) -> tuple[int, int]:
        questions.append(before)
        return history.end_of(before, LOG_END)

    return asyncio.run(starts_within(end_of, gap, epoch, latest)), questions


LEADER = [(3, 0), (5, 120), (7, 150), (9, 180)]


@pytest.mark.parametrize(
    ("gap", "epoch", "latest", "starts", "questions"),
    [
        (range(100, 160), 7, 3, [(5, 120), (7, 150)], [6, 4]),
        (range(120, 160), 7, 3, [(5, 120), (7, 150)], [6, 4]),  # 5 began at our end
        (range(130, 160), 7, 5, [(7, 150)], [6]),
        (range(130, 150), 7, 5, [(7, 150)], [6]),
        (range(100, 190), 9, 3, [(5, 120), (7, 150), (9, 180)], [8, 6, 4]),
        (range(160), 7, -1, [(3, 0), (5, 120), (7, 150)], [6, 4, 2]),  # a copy from the beginning
        (range(130, 160), 7, -1, [(5, 130), (7, 150)], [6, 4]),  # from a log that begins at 130
    ],
)
def test_epochs_are_asked_for_one_by_one_down_to_the_one_we_have(
    gap: range, epoch: int, latest: int, starts: list[tuple[int, int]], questions: list[int]
) -> None:
    assert asked(LEADER, gap, epoch, latest) == (starts, questions)


@pytest.mark.parametrize("entries", [[(7, 160)], [(7, 155)], [(7, 200)]])
def test_a_leader_that_knows_of_none_before_is_not_asked_for_ever(entries: list[tuple[int, int]]) -> None:
    starts, questions = asked(entries, range(100, 160), 7, 3)
    assert starts == [(7, min(entries[0][1], 160))]
    assert questions == [6, 5]


def test_a_leader_that_knows_nothing_leaves_it_at_what_the_batch_says() -> None:
    assert asked([], range(100, 160), 7, 3) == ([(7, 160)], [6])


def test_there_is_no_epoch_before_the_first() -> None:
    assert asked([(0, 0), (1, 5)], range(3, 9), 0, -1) == ([(0, 3)], [])


@given(st.data())
def test_a_copy_over_gaps_has_the_history_of_its_leader(data: st.DataObject) -> None:
    """Whichever batches compaction left."""
    size = st.integers(min_value=1, max_value=40)
    starts = sorted(data.draw(st.sets(size, max_size=6)) | {0})
    epochs = sorted(data.draw(st.sets(size, min_size=len(starts), max_size=len(starts))))
    leader, copy = EpochHistory(), EpochHistory()
    for epoch, start in zip(epochs, starts, strict=True):
        leader.assign(epoch, start)
    left = sorted(data.draw(st.sets(st.integers(min_value=0, max_value=50), min_size=1)))
    end = 0
    for offset in left:
        epoch, gap = leader.epoch_at(offset), range(end, offset)
        if epoch > copy.latest and gap:
            told, _ = asked(leader.entries(), gap, epoch, copy.latest)
            assert copy.cross_gap(told, epoch, gap)
        copy.assign(epoch, offset)
        end = offset + 1
    assert copy.entries() == [(epoch, start) for epoch, start in leader.entries() if start < end]
