"""What is finished, what is pending: the positions a consumer commits."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from penstock.client.window import Window


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


def filled(*partitions: int) -> Window:
    window = Window()
    window.refill([Raw(partition, offset) for offset, partition in enumerate(partitions)])  # type: ignore[misc]
    return window


def test_only_what_was_handed_out_and_worked_on_counts() -> None:
    window = filled(0, 1, 0, 1)
    window.index = 3
    window.finish(unfinished=1)
    assert window.take_positions() == {("t", 0): 1, ("t", 1): 2}
    window.finish()
    assert window.take_positions() == {("t", 0): 3}
    assert window.pending() == {("t", 1): 3}


def test_dropped_messages_are_not_handed_out_and_their_first_is_told() -> None:
    window = filled(0, 1, 0, 1, 1)
    window.index = 1
    assert window.drop([("t", 1)]) == {("t", 1): 1}
    assert [(raw.partition(), raw.offset()) for raw in window.raws[window.index :]] == [(0, 2)]
    window.index = len(window.raws)
    window.finish()
    assert window.take_positions() == {("t", 0): 3}


def test_a_pinned_position_stays() -> None:
    window = filled(0, 0, 0)
    window.index = 2
    window.pin(("t", 0), 1)
    window.finish()
    assert window.take_positions() == {("t", 0): 1}
    window.unpin(("t", 0))
    window.index = 3
    window.finish()
    assert window.take_positions() == {("t", 0): 3}


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
