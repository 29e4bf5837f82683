"""The change feed of a local store: the last changes, bounded, and a way to wait for the next."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from itertools import islice

from penstock.coordination.tree import CHANGES_KEPT_MAX, Change, FeedGapError


class ChangeFeed:
    """Watchers pull, so a slow one costs no memory: it falls off the end and is told so."""

    def __init__(self, number: int = 0) -> None:
        self._last = number
        self._kept: deque[Change] = deque(maxlen=CHANGES_KEPT_MAX)
        self._news = asyncio.Event()

    @property
    def last(self) -> int:
        return self._last

    def publish(self, change: Change) -> None:
        # Numbers are dense here, so a change is found by its distance from the oldest.
        if change.number != self._last + 1:
            raise AssertionError(f"change {change.number} published behind {self._last}")
        self._kept.append(change)
        self._last = change.number
        self.wake()

    def restart(self, number: int) -> None:
        """Changes up to `number` were missed: watchers that lack some of them are told."""
        self._kept.clear()
        self._last = number
        self.wake()

    def wake(self) -> None:
        """Let every watcher look again, at new changes or at the state of its session."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def after(self, number: int, check_session: Callable[[], None]) -> AsyncIterator[Change]:
        while True:
            check_session()
            oldest = self._last - len(self._kept)
            if not oldest <= number <= self._last:
                raise FeedGapError(f"change {number} asked for; the feed holds {oldest} to {self._last}")
            news = self._news
            # One at a time: while the consumer works on it, the feed may move on.
            change = next(islice(self._kept, number - oldest, None), None)
            if change is None:
                await news.wait()
                continue
            number = change.number
            yield change
