"""News by registration: whoever wants to hear of something registers, and whoever has news tells all of them.

They hear it in the order of their registration, at once and inside the call that tells: nothing may wait there. News
that nobody would miss waking up for is best taken as a note (an event, a flag) for a task of one's own. An error of one
listener keeps nobody else from hearing, and is no error of the teller, who has done what it tells of: it goes to
`failed`. What a broker does not follow any more it must not go on serving, so a broker ends by it.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

NewsT = TypeVar("NewsT")

Failed = Callable[[str, BaseException], None]


class News(Generic[NewsT]):
    def __init__(self, failed: Failed) -> None:
        """`failed` is given the listener's name and its error."""
        self._failed = failed
        # A list, never a set: the simulation repeats exactly, and some listeners rely on who heard before them.
        self._listeners: list[Callable[[NewsT], None]] = []

    def register(self, listener: Callable[[NewsT], None]) -> None:
        self._listeners.append(listener)

    def tell(self, news: NewsT) -> None:
        for listener in tuple(self._listeners):
            try:
                listener(news)
            except Exception as error:
                self._failed(getattr(listener, "__qualname__", repr(listener)), error)
