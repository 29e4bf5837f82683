"""One budget for the bytes of large requests that all connections hold while they arrive.

A connection's first 64 KB are its own. What its buffer takes beyond that it asks for here, and stops reading where it
is refused; it goes on when others have finished. Two things keep that from ending in a standstill:

- Of those that wait two are favoured, an ordinary request and a very large one: they may go past the budget until they
  are there, then the next may. So somebody always goes on, and all together never hold more than the budget and these.
- While anyone waits, a client that holds some of the budget must go on sending, at a modest rate; else it is dropped.
  A favoured one, whom others wait for, must send much faster, from second to second. So it is over soon, one way or
  the other, also for those that wait with a part of the budget in hand: each has its turn.

Nobody can keep ordinary requests out for long: very large ones leave them a part of the budget and a favour of their
own, the smallest goes first, and no address has two favours in a row while another waits.
"""

import asyncio
import logging
from typing import Protocol

from penstock.core.limits import (
    RECEIVE_BUFFER_GROWN_BYTES,
    RECEIVE_BUFFER_KEPT_BYTES,
    RECEIVE_BYTES_PER_CHECK_MIN,
    RECEIVE_CHECK_SECONDS,
    RECEIVE_FAVOURED_BYTES_MIN,
    RECEIVE_FAVOURED_SECONDS,
    RECEIVE_LARGE_SHARE,
)

logger = logging.getLogger(__name__)


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
        self.used_bytes = 0  # without those of the favoured ones
        self._held: dict[Holder, int] = {}
        self._waiting: dict[
            Holder, tuple[int, bool]
        ] = {}  # in order: what each asked for, and whether it is large
        self._favours = {large: _Favour(loop, self, large) for large in (False, True)}
        self._marks: dict[Holder, int] = {}  # how far those that hold something were at the last check
        self._offering = False
        self._checking: asyncio.TimerHandle | None = None
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
            if not self._is_favoured(holder):
                self.used_bytes += size_bytes - self._held.get(holder, 0)
            self._held[holder] = size_bytes
        return True

    def release(self, holder: Holder) -> None:
        """It holds nothing any more, and waits for nothing."""
        held = self._held.pop(holder, 0)
        waited = self._waiting.pop(holder, None) is not None
        self._marks.pop(holder, None)
        favour = self._favours[False] if holder is self._favours[False].holder else self._favours[True]
        if holder is favour.holder:
            favour.end()
        elif held:
            self.used_bytes -= held
        elif not waited:
            return
        self._offer_soon()

    def _fits(self, holder: Holder, size_bytes: int, large: bool) -> bool:
        more = size_bytes - self._held.get(holder, 0)
        if more <= 0 or self._is_favoured(holder):
            return True
        limit = self._limit_bytes * RECEIVE_LARGE_SHARE if large else self._limit_bytes
        return self.used_bytes + more <= limit

    def _is_favoured(self, holder: Holder) -> bool:
        return any(favour.holder is holder for favour in self._favours.values())

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
        if self._favours[large].holder is None:
            self._offer_soon()

    def _offer_soon(self) -> None:
        if not self._offering:
            self._offering = True
            self._loop.call_soon(self._offer)

    def _offer(self) -> None:
        """Let those go on that fit by now, in the order in which they asked, and one of each kind in any case."""
        self._offering = False
        for large, favour in self._favours.items():
            if favour.holder is None:
                self._favour_next(favour, large)
            if favour.holder in self._waiting:
                favour.holder.go_on_receiving()
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
        if not self._waiting and all(favour.holder is None for favour in self._favours.values()):
            self.kept_bytes = RECEIVE_BUFFER_KEPT_BYTES

    def _favour_next(self, favour: "_Favour", large: bool) -> None:
        kind = [(holder, size) for holder, (size, is_large) in self._waiting.items() if is_large is large]
        if kind:
            holder = favour.choose(kind)
            self.used_bytes -= self._held.get(holder, 0)
            favour.begin(holder)

    @property
    def is_waited_for(self) -> bool:
        return bool(self._waiting)

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


class _Favour:
    """The right of one request to go past the budget, for as long as it arrives fast."""

    def __init__(self, loop: asyncio.AbstractEventLoop, budget: ReceiveBudget, large: bool) -> None:
        self._loop = loop
        self._budget = budget
        self._large = large
        self.holder: Holder | None = None
        self._last_peer = ""
        self._watching: asyncio.TimerHandle | None = None

    def choose(self, waiting: list[tuple[Holder, int]]) -> Holder:
        """Another address than the last; of ordinary requests the smallest, of very large ones the first."""
        return min(
            waiting,
            key=lambda candidate: (candidate[0].peer == self._last_peer, 0 if self._large else candidate[1]),
        )[0]

    def begin(self, holder: Holder) -> None:
        self.holder = holder
        self._last_peer = holder.peer
        self._watch(holder)

    def end(self) -> None:
        self.holder = None
        if self._watching is not None:
            self._watching.cancel()

    def _watch(self, holder: Holder) -> None:
        due = self._loop.time() + RECEIVE_FAVOURED_SECONDS
        received = holder.received_bytes()
        self._watching = self._loop.call_later(RECEIVE_FAVOURED_SECONDS, self._check, received, due)

    def _check(self, before: int, due: float) -> None:
        holder = self.holder
        if holder is None:
            return
        received = holder.received_bytes()
        # When this comes late nothing was read meanwhile, and it is not the client that was slow.
        in_time = self._loop.time() - due < RECEIVE_FAVOURED_SECONDS / 2
        is_slow = received >= before >= 0 and received - before < RECEIVE_FAVOURED_BYTES_MIN
        if self._budget.is_waited_for and in_time and is_slow:
            _drop(holder)
        else:
            self._watch(holder)


def _drop(holder: Holder) -> None:
    logger.warning(
        "closing the connection of %s: others wait for the memory its slow request holds", holder.peer
    )
    holder.abort()
