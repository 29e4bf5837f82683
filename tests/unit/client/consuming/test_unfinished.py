"""What is finished, what is pending: the positions a consumer commits."""

from collections.abc import Collection
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from penstock.client.consuming.unfinished import Unfinished, Where


@dataclass
class Raw:
    at: int
    number: int

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self.at

    def offset(self) -> int:
        return self.number


def filled(*partitions: int, owned: Collection[Where] = ()) -> Unfinished:
    unfinished = Unfinished(owned)
    unfinished.refill([Raw(partition, offset) for offset, partition in enumerate(partitions)])  # type: ignore[misc]
    return unfinished


def taken(unfinished: Unfinished) -> dict[Where, int]:
    """As a commit takes them."""
    positions = dict(unfinished.positions)
    unfinished.sent(positions)
    return positions


def test_only_what_was_handed_out_and_worked_on_counts() -> None:
    unfinished = filled(0, 1, 0, 1)
    unfinished.index = 3
    unfinished.finish(in_hand=1)
    assert taken(unfinished) == {("t", 0): 1, ("t", 1): 2}
    unfinished.finish()
    assert taken(unfinished) == {("t", 0): 3}
    assert unfinished.pending() == {("t", 1): 3}


@given(st.lists(st.integers(0, 3)), st.sets(st.integers(0, 5)), st.integers(0, 5))
def test_each_partition_is_finished_up_to_its_last_message(
    partitions: list[int], owned: set[int], in_hand: int
) -> None:
    """Where more is owned than there are messages of, too."""
    unfinished = filled(*partitions, owned={("t", partition) for partition in owned | set(partitions)})
    unfinished.index = len(partitions)
    unfinished.finish(in_hand)
    done = partitions[: max(0, len(partitions) - in_hand)]
    last = {("t", partition): offset + 1 for offset, partition in enumerate(done)}
    assert taken(unfinished) == last


def test_what_is_not_owned_any_more_does_not_stand_for_what_is() -> None:
    unfinished = filled(0, 1, 2, owned={("t", 0)})
    unfinished.index = 3
    unfinished.finish()
    assert taken(unfinished)["t", 0] == 1


def test_dropped_messages_are_not_handed_out_and_their_first_is_told() -> None:
    unfinished = filled(0, 1, 0, 1, 1)
    unfinished.index = 1
    assert unfinished.pending_of([("t", 1)]) == {("t", 1): 1}
    unfinished.drop([("t", 1)])
    assert [(raw.partition(), raw.offset()) for raw in unfinished.raws[unfinished.index :]] == [(0, 2)]
    unfinished.index = len(unfinished.raws)
    unfinished.finish()
    assert taken(unfinished) == {("t", 0): 3}


def test_a_pinned_position_stays() -> None:
    unfinished = filled(0, 0, 0)
    unfinished.index = 2
    unfinished.pin(("t", 0), 1)
    unfinished.finish()
    assert taken(unfinished) == {("t", 0): 1}
    unfinished.unpin(("t", 0))
    unfinished.index = 3
    unfinished.finish()
    assert taken(unfinished) == {("t", 0): 3}


@given(st.lists(st.integers(0, 3)), st.data())
def test_a_position_never_passes_what_is_pending(partitions: list[int], data: st.DataObject) -> None:
    unfinished = filled(*partitions)
    for _ in range(4):
        unfinished.index = data.draw(st.integers(unfinished.index, len(unfinished.raws)))
        if data.draw(st.booleans()):
            unfinished.drop([("t", data.draw(st.integers(0, 3)))])
        if data.draw(st.booleans()):
            unfinished.finish(data.draw(st.integers(0, 2)))
        if data.draw(st.booleans()):
            unfinished.refill([])
        for place, offset in unfinished.pending().items():
            assert unfinished.positions.get(place, 0) <= offset
