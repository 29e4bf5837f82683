"""A queue that addresses share: in turn, and those of one in the order in which they came."""

from penstock.core.address_queue import AddressQueue


def filled(*waiting: str) -> AddressQueue[str]:
    """By names of two letters: of the address, and of who came from there."""
    queue: AddressQueue[str] = AddressQueue()
    for name in waiting:
        queue.append(name[0], name)
    return queue


def popped(queue: AddressQueue[str]) -> list[str]:
    taken = []
    while queue:
        taken.append(queue.pop(next(iter(queue))))
    return taken


def test_addresses_have_their_turn() -> None:
    assert popped(filled("a1", "a2", "a3", "b1", "c1", "b2")) == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_who_comes_again_stands_behind_the_others() -> None:
    queue = filled("a1", "b1")
    assert queue.pop("a") == "a1"
    queue.append("a", "a2")
    assert popped(queue) == ["b1", "a2"]


def test_an_address_that_had_its_turn_elsewhere_steps_back() -> None:
    queue = filled("a1", "b1")
    queue.step_back("a")
    queue.step_back("unknown")
    assert popped(queue) == ["b1", "a1"]
