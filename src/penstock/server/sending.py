"""One budget for the bytes of answers that all connections hold in memory until their clients read them.

An answer that its socket takes at once is never counted, nor is what waits as a place in a file. What a connection
holds is counted when something is added; what has gone since then is asked for when it matters.

Past half of the budget memory is short: fetches are answered with little, and a client with unread answers must read,
at a modest rate, or its connection is closed; those that hold most are looked at first. Where that is not enough, and
all of the budget is taken, those that hold most are closed at once: a client comes back and asks again.

A large answer is admitted before it is encoded (`admit`), and counts from then on: in the first half of the budget, so
that nobody who reads is closed for it. Where it does not fit it waits, addresses in turn. One of those that wait is
favoured: it goes ahead, however large its answer is, which is counted apart. So the largest answer gets through, and no
more than one of them is in memory beside the budget. While others wait, the favoured client must read quickly.
"""

import asyncio
import logging
from typing import Protocol

from penstock.core.errors import ClientGoneError
from penstock.core.limits import (
    ANSWER_FAVOURED_BYTES_MIN,
    ANSWER_FAVOURED_SECONDS,
    SEND_BYTES_PER_CHECK_MIN,
    SEND_CHECK_SECONDS,
    UNSENT_BYTES_MAX,
)

logger = logging.getLogger(__name__)


class Holder(Protocol):
    """A connection, as far as its unread answers go."""

    @property
    def peer(self) -> str: ...

    @property
    def promised_bytes(self) -> int:
        """Of an answer that was admitted, until it is there."""
        ...

    def promise(self, size_bytes: int) -> None: ...

    def kept_bytes(self) -> int:
        """Of answers, in memory or promised, now."""
        ...

    def sent_bytes(self) -> int:
        """Of answers that had to wait: how many have gone, ever."""
        ...

    def abort(self) -> None: ...


class _Waiting:
    """For room. A connection has one request at a time that may wait so."""

    __slots__ = ("admitted", "size_bytes")

    def __init__(self, size_bytes: int, admitted: asyncio.Future[None]) -> None:
        self.size_bytes = size_bytes
        self.admitted = admitted


class SendBudget:
    def __init__(self, loop: asyncio.AbstractEventLoop, limit_bytes: int = UNSENT_BYTES_MAX) -> None:
        self._loop = loop
        self._limit_bytes = limit_bytes
        self.used_bytes = 0  # without what the favoured one holds
        self.is_short = False
        self._held: dict[Holder, int] = {}
        self._marks: dict[Holder, int] = {}  # how much they had been sent at the last check
        self._favoured: Holder | None = None
        self._waiting: dict[str, dict[Holder, _Waiting]] = {}  # addresses in turn
        self._checking: asyncio.TimerHandle | None = None
        self._watching: asyncio.TimerHandle | None = None  # the favoured one

    def hold(self, holder: Holder, size_bytes: int) -> None:
        """It has so many bytes in memory, all in all."""
        is_less = size_bytes < self._held.get(holder, 0)
        self._note(holder, size_bytes)
        if self.used_bytes > self._limit_bytes:
            self._count_again()
            if self.used_bytes > self._limit_bytes:
                # By more than is needed, so that they are not all counted again for the next answer.
                self._drop(self._by_size(), self._limit_bytes * 3 // 4)
        if is_less and self._waiting:
            self._let_in()
        if self._checking is None and self.is_short:
            self._check_later()

    # -- large answers ---------------------------------------------------------------------------------------

    def admit(self, holder: Holder, size_bytes: int) -> asyncio.Future[None] | None:
        """Room for an answer that is to be made, to be awaited where there is none yet; ClientGoneError ends that.

        It is promised to the holder, who counts it until the answer is there.
        """
        if not self._fits(size_bytes):
            self._count_again()
        if (not self._waiting or self._fits(size_bytes)) and self._promise(holder, size_bytes):
            return None
        admitted = self._loop.create_future()
        self._waiting.setdefault(holder.peer, {})[holder] = _Waiting(size_bytes, admitted)
        self._watch_favoured()
        if self._checking is None:
            self._check_later()
        return admitted

    def leave(self, holder: Holder) -> None:
        """The connection is gone: it waits no longer."""
        row = self._waiting.get(holder.peer)
        if row is not None and (waiting := row.pop(holder, None)) is not None:
            if not row:
                del self._waiting[holder.peer]
            if not waiting.admitted.done():
                waiting.admitted.set_exception(ClientGoneError("the client has left"))

    def _fits(self, size_bytes: int) -> bool:
        return (self.used_bytes + size_bytes) * 2 <= self._limit_bytes

    def _promise(self, holder: Holder, size_bytes: int) -> bool:
        if not self._fits(size_bytes):
            if self._favoured is not None:
                return False
            self.used_bytes -= self._held.get(holder, 0)
            self._favoured = holder
        holder.promise(size_bytes)
        self._note(holder, holder.kept_bytes())
        return True

    def _let_in(self) -> None:
        """Whoever fits, the first of each address; who does not, and is first of all, may be favoured."""
        for address in list(self._waiting):
            row = self._waiting[address]
            holder, waiting = next(iter(row.items()))
            if not waiting.admitted.done() and not self._promise(holder, waiting.size_bytes):
                continue
            del row[holder], self._waiting[address]
            if row:
                self._waiting[address] = row  # behind the others: it has had its turn
            if not waiting.admitted.done():
                waiting.admitted.set_result(None)
        self._watch_favoured()

    # -- who holds what --------------------------------------------------------------------------------------

    def _note(self, holder: Holder, size_bytes: int) -> None:
        if holder is not self._favoured:
            self.used_bytes += size_bytes - self._held.get(holder, 0)
        if size_bytes:
            self._held[holder] = size_bytes
        else:
            self._held.pop(holder, None)
            self._marks.pop(holder, None)
            if holder is self._favoured:
                self._favoured = None
        self.is_short = self.used_bytes * 2 > self._limit_bytes

    def _count_again(self) -> None:
        for holder in list(self._held):
            self._note(holder, holder.kept_bytes())

    def _by_size(self) -> list[Holder]:
        return sorted(
            (holder for holder in self._held if holder is not self._favoured),
            key=self._held.__getitem__,
            reverse=True,
        )

    # -- who reads too little --------------------------------------------------------------------------------

    def _check_later(self) -> None:
        self._checking = self._loop.call_later(SEND_CHECK_SECONDS, self._check)

    def _check(self) -> None:
        """Drop those that hold what is short, or is waited for, and hardly read anything."""
        self._checking = None
        self._count_again()
        self._let_in()
        if not self.is_short and not self._waiting:
            self._marks.clear()
            return
        marks = self._marks
        # Who has an answer promised has nothing to read yet.
        self._marks = {holder: holder.sent_bytes() for holder in self._held if not holder.promised_bytes}
        read = {holder: sent - marks[holder] for holder, sent in self._marks.items() if holder in marks}
        for holder in self._by_size():
            if not self.is_short and not self._waiting:
                break
            if read.get(holder, SEND_BYTES_PER_CHECK_MIN) < SEND_BYTES_PER_CHECK_MIN:
                self._close(holder)
                self._let_in()
        self._check_later()

    def _watch_favoured(self) -> None:
        favoured = self._favoured
        if self._watching is None and self._waiting and favoured is not None:
            sent = None if favoured.promised_bytes else favoured.sent_bytes()
            self._watching = self._loop.call_later(
                ANSWER_FAVOURED_SECONDS, self._check_favoured, favoured, sent
            )

    def _check_favoured(self, holder: Holder, sent_before: int | None) -> None:
        """Others wait for it, not for each other."""
        self._watching = None
        if sent_before is not None and self._waiting and holder is self._favoured:
            self._note(holder, holder.kept_bytes())
            if holder is self._favoured and holder.sent_bytes() - sent_before < ANSWER_FAVOURED_BYTES_MIN:
                self._close(holder)
            self._let_in()
        self._watch_favoured()

    def _drop(self, holders: list[Holder], goal_bytes: int) -> None:
        for holder in holders:
            if self.used_bytes <= goal_bytes:
                return
            self._close(holder)

    def _close(self, holder: Holder) -> None:
        logger.warning(
            "closing the connection of %s: %d bytes of answers wait for it to read them, and memory is short",
            holder.peer,
            self._held[holder],
        )
        self._note(holder, 0)
        holder.abort()
