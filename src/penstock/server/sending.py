"""One budget for the bytes of answers that all connections hold in memory until their clients read them.

An answer that its socket takes at once is never counted, nor is what waits as a place in a file. What a connection
holds is counted when something is added; what has gone since then is asked for when it matters.

Past half of the budget memory is short: fetches are answered with little, and a client with unread answers must read,
at a modest rate, or its connection is closed; those that hold most are looked at first. Where that is not enough, and
all of the budget is taken, those that hold most are closed at once: a client comes back and asks again.
"""

import asyncio
import logging
from typing import Protocol

from penstock.core.limits import SEND_BYTES_PER_CHECK_MIN, SEND_CHECK_SECONDS, UNSENT_BYTES_MAX

logger = logging.getLogger(__name__)


class Holder(Protocol):
    """A connection, as far as its unread answers go."""

    @property
    def peer(self) -> str: ...

    def kept_bytes(self) -> int:
        """Of answers, in memory, now."""
        ...

    def sent_bytes(self) -> int:
        """Of answers that had to wait: how many have gone, ever."""
        ...

    def abort(self) -> None: ...


class SendBudget:
    def __init__(self, loop: asyncio.AbstractEventLoop, limit_bytes: int = UNSENT_BYTES_MAX) -> None:
        self._loop = loop
        self._limit_bytes = limit_bytes
        self.used_bytes = 0
        self.is_short = False
        self._held: dict[Holder, int] = {}
        self._marks: dict[Holder, int] = {}  # how much they had been sent at the last check
        self._checking: asyncio.TimerHandle | None = None

    def hold(self, holder: Holder, size_bytes: int) -> None:
        """It has so many bytes in memory, all in all."""
        self._note(holder, size_bytes)
        if self.used_bytes > self._limit_bytes:
            self._count_again()
            if self.used_bytes > self._limit_bytes:
                # By more than is needed, so that they are not all counted again for the next answer.
                self._drop(self._by_size(), self._limit_bytes * 3 // 4)
        if self._checking is None and self.is_short:
            self._checking = self._loop.call_later(SEND_CHECK_SECONDS, self._check)

    def _note(self, holder: Holder, size_bytes: int) -> None:
        self.used_bytes += size_bytes - self._held.get(holder, 0)
        self.is_short = self.used_bytes * 2 > self._limit_bytes
        if size_bytes:
            self._held[holder] = size_bytes
        else:
            self._held.pop(holder, None)
            self._marks.pop(holder, None)

    def _count_again(self) -> None:
        for holder in list(self._held):
            self._note(holder, holder.kept_bytes())

    def _by_size(self) -> list[Holder]:
        return sorted(self._held, key=self._held.__getitem__, reverse=True)

    def _check(self) -> None:
        """Drop those that hold what is short, and hardly read anything."""
        self._checking = None
        self._count_again()
        if not self.is_short:
            self._marks.clear()
            return
        marks, self._marks = self._marks, {holder: holder.sent_bytes() for holder in self._held}
        slow = [
            holder
            for holder in self._by_size()
            if holder in marks and self._marks[holder] - marks[holder] < SEND_BYTES_PER_CHECK_MIN
        ]
        self._drop(slow, self._limit_bytes // 2)
        self._checking = self._loop.call_later(SEND_CHECK_SECONDS, self._check)

    def _drop(self, holders: list[Holder], goal_bytes: int) -> None:
        for holder in holders:
            if self.used_bytes <= goal_bytes:
                return
            logger.warning(
                "closing the connection of %s: %d bytes of answers wait for it to read them, and memory is short",
                holder.peer,
                self._held[holder],
            )
            self._note(holder, 0)
            holder.abort()
