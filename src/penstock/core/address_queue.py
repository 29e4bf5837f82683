"""A queue that addresses share: each has its turn, however many wait that came from one of them."""

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

_Waiting = TypeVar("_Waiting")


class AddressQueue(Generic[_Waiting]):
    def __init__(self) -> None:
        self._rows: dict[str, deque[_Waiting]] = {}  # whose turn is next stands first

    def __bool__(self) -> bool:
        return bool(self._rows)

    def __iter__(self) -> Iterator[str]:
        """The addresses, in turn."""
        return iter(self._rows)

    def append(self, address: str, waiting: _Waiting) -> None:
        self._rows.setdefault(address, deque()).append(waiting)

    def pop(self, address: str) -> _Waiting:
        """The first of an address, which goes behind the others: it has had its turn."""
        row = self._rows.pop(address)
        first = row.popleft()
        if row:
            self._rows[address] = row
        return first

    def step_back(self, address: str) -> None:
        """It has had its turn elsewhere."""
        if address in self._rows:
            self._rows[address] = self._rows.pop(address)
