"""One budget for the bytes of large requests that all connections hold while they arrive.

A connection's first 64 KB are its own. What its buffer takes beyond that it asks for here, and stops reading where it
is refused; it goes on when others have finished. Two things keep that from ending in a standstill:

- One of those that wait is favoured: it may go past the budget until its request is there, then the next one may. So
  somebody always goes on, and all together never hold more than the budget and one request.
- While anyone waits, a client that holds some of the budget must go on sending, at a modest rate; else it is dropped.
  The favoured one, whom everybody waits for, must not even pause.

Very large requests leave a part of the budget to ordinary ones.
"""

import asyncio
import logging
from typing import Protocol

from penstock.core.limits import (
    RECEIVE_BUFFER_GROWN_BYTES,
    RECEIVE_BUFFER_KEPT_BYTES,
    RECEIVE_BYTES_PER_CHECK_MIN,
    RECEIVE_CHECK_SECONDS,
    RECEIVE_FAVOURED_SECONDS,
    RECEIVE_LARGE_SHARE,
)

log = logging.getLogger(__name__)


class Holder(Protocol):
    """A connection, as far as its receive buffer goes."""

    @property
    def peer(self) -> str: ...

    def received_bytes(self) -> int:
        """What is there of a request that has not arrived whole; -1 when none is awaited."""
        ...

    def go_on_receiving(self) -> None:
        """Ask again: there may be room now."""
        ...

    def give_back_buffer(self) -> None: ...
    def abort(self) -> None: ...


class ReceiveBudget:
    def __init__(self, loop: asyncio.AbstractEventLoop, limit_bytes: int) -> None:
        """Negative: no limit, as in Kafka."""
        self._loop = loop
        self._limit_bytes = limit_bytes
        self.used_bytes = 0  # without those of the favoured one
        self._held: dict[Holder, int] = {}
        self._waiting: dict[
            Holder, tuple[int, bool]
        ] = {}  # in order: what each asked for, and whether it is large
        self._favoured: Holder | None = None
        self._marks: dict[Holder, int] = {}  # how far those that hold something were at the last check
        self._offering = False
        self._checking: asyncio.TimerHandle | None = None
        self._watching: asyncio.TimerHandle | None = None  # the favoured one
        self.kept_bytes = RECEIVE_BUFFER_KEPT_BYTES  # a larger buffer is given back once its request is done

    def hold(self, holder: Holder, size_bytes: int, *, large: bool) -> bool:
        """Whether it may have so many bytes in all; if not, it is told when to ask again. Fewer is always granted."""
        if self._limit_bytes < 0:
            return True
        if not self._fits(holder, size_bytes, large):
            self._reclaim()
            if not self._fits(holder, size_bytes, large):
                self._wait(holder, size_bytes, large)
                return False
        self._waiting.pop(holder, None)
        if size_bytes < self._held.get(holder, 0):
            self.release(holder)
        if size_bytes > 0:
            if holder is not self._favoured:
                self.used_bytes += size_bytes - self._held.get(holder, 0)
            self._held[holder] = size_bytes
        return True

    def release(self, holder: Holder) -> None:
        """It holds nothing any more, and waits for nothing."""
        held = self._held.pop(holder, 0)
        waited = self._waiting.pop(holder, None) is not None
        self._marks.pop(holder, None)
        if holder is self._favoured:
            self._favoured = None
            if self._watching is not None:
                self._watching.cancel()
        elif held:
            self.used_bytes -= held
        elif not waited:
            return
        self._offer_soon()

    def _fits(self, holder: Holder, size_bytes: int, large: bool) -> bool:
        more = size_bytes - self._held.get(holder, 0)
        if more <= 0 or holder is self._favoured:
            return True
        limit = self._limit_bytes * RECEIVE_LARGE_SHARE if large else self._limit_bytes
        return self.used_bytes + more <= limit

    def _reclaim(self) -> None:
        """From now on nobody keeps a large buffer for its next request."""
        if self.kept_bytes != RECEIVE_BUFFER_GROWN_BYTES:
            self.kept_bytes = RECEIVE_BUFFER_GROWN_BYTES
            for holder in list(self._held):
                holder.give_back_buffer()

    def _wait(self, holder: Holder, size_bytes: int, large: bool) -> None:
        self._waiting[holder] = (size_bytes, large)
        if self._checking is None:
            self._checking = self._loop.call_later(RECEIVE_CHECK_SECONDS, self._check)
        if self._favoured is None:
            self._offer_soon()

    def _offer_soon(self) -> None:
        if not self._offering:
            self._offering = True
            self._loop.call_soon(self._offer)

    def _offer(self) -> None:
        """Let those go on that fit by now, in the order in which they asked, and one in any case."""
        self._offering = False
        if self._favoured is None and self._waiting:
            self._favour(next(iter(self._waiting)))
        large_fits = True
        for holder, (size_bytes, large) in list(self._waiting.items()):
            if large and not large_fits:
                continue
            if self._fits(holder, size_bytes, large):
                holder.go_on_receiving()
            elif large:
                large_fits = False
            else:
                break
        if not self._waiting and self._favoured is None:
            self.kept_bytes = RECEIVE_BUFFER_KEPT_BYTES

    def _favour(self, holder: Holder) -> None:
        self._favoured = holder
        self.used_bytes -= self._held.get(holder, 0)
        self._watch_favoured(holder)

    def _watch_favoured(self, holder: Holder) -> None:
        received = holder.received_bytes()
        self._watching = self._loop.call_later(RECEIVE_FAVOURED_SECONDS, self._check_favoured, received)

    def _check_favoured(self, received_bytes: int) -> None:
        holder = self._favoured
        if holder is not None:
            if self._waiting and holder.received_bytes() == received_bytes >= 0:
                _drop(holder)
            else:
                self._watch_favoured(holder)

    def _check(self) -> None:
        """Drop those that hold what others wait for, and hardly send anything."""
        self._checking = None
        marks, self._marks = self._marks, {}
        if not self._waiting:
            return
        for holder in list(self._held):
            received = holder.received_bytes()
            if holder in self._waiting or received < 0:
                continue
            if holder in marks and received - marks[holder] < RECEIVE_BYTES_PER_CHECK_MIN:
                _drop(holder)
            else:
                self._marks[holder] = received
        self._checking = self._loop.call_later(RECEIVE_CHECK_SECONDS, self._check)


def _drop(holder: Holder) -> None:
    log.warning(
        "closing the connection of %s: others wait for the memory its slow request holds", holder.peer
    )
    holder.abort()
