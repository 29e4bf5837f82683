"""What is finished, what is pending: the positions a consumer commits."""

from collections.abc import Collection
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from penstock.client.window import Where, Window


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


def filled(*partitions: int, owned: Collection[Where] = ()) -> Window:
    window = Window(owned)
    window.refill([Raw(partition, offset) for offset, partition in enumerate(partitions)])  # type: ignore[misc]
    return window


def taken(window: Window) -> dict[Where, int]:
    """As a commit takes them."""
    positions = dict(window.positions)
    window.sent(positions)
    return positions


def test_only_what_was_handed_out_and_worked_on_counts() -> None:
    window = filled(0, 1, 0, 1)
    window.index = 3
    window.finish(unfinished=1)
    assert taken(window) == {("t", 0): 1, ("t", 1): 2}
    window.finish()
    assert taken(window) == {("t", 0): 3}
    assert window.pending() == {("t", 1): 3}


@given(st.lists(st.integers(0, 3)), st.sets(st.integers(0, 5)), st.integers(0, 5))
def test_each_partition_is_finished_up_to_its_last_message(
    partitions: list[int], owned: set[int], unfinished: int
) -> None:
    """Where more is owned than there are messages of, too."""
    window = filled(*partitions, owned={("t", one) for one in owned | set(partitions)})
    window.index = len(partitions)
    window.finish(unfinished)
    done = partitions[: max(0, len(partitions) - unfinished)]
    last = {("t", partition): offset + 1 for offset, partition in enumerate(done)}
    assert taken(window) == last


def test_what_is_not_owned_any_more_does_not_stand_for_what_is() -> None:
    window = filled(0, 1, 2, owned={("t", 0)})
    window.index = 3
    window.finish()
    assert taken(window)["t", 0] == 1


def test_dropped_messages_are_not_handed_out_and_their_first_is_told() -> None:
    window = filled(0, 1, 0, 1, 1)
    window.index = 1
    assert window.drop([("t", 1)]) == {("t", 1): 1}
    assert [(raw.partition(), raw.offset()) for raw in window.raws[window.index :]] == [(0, 2)]
    window.index = len(window.raws)
    window.finish()
    assert taken(window) == {("t", 0): 3}


def test_a_pinned_position_stays() -> None:
    window = filled(0, 0, 0)
    window.index = 2
    window.pin(("t", 0), 1)
    window.finish()
    assert taken(window) == {("t", 0): 1}
    window.unpin(("t", 0))
    window.index = 3
    window.finish()
    assert taken(window) == {("t", 0): 3}


@given(st.lists(st.integers(0, 3)), st.data())
def test_a_position_never_passes_what_is_pending(partitions: list[int], data: st.DataObject) -> None:
    window = filled(*partitions)
    for _ in range(4):
        window.index = data.draw(st.integers(window.index, len(window.raws)))
        if data.draw(st.booleans()):
            window.drop([("t", data.draw(st.integers(0, 3)))])
        if data.draw(st.booleans()):
            window.finish(data.draw(st.integers(0, 2)))
        if data.draw(st.booleans()):
            window.refill([])
        for place, offset in window.pending().items():
            assert window.positions.get(place, 0) <= offset
