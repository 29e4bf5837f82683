"""One budget for the bytes of answers that all connections hold in memory until their clients read them.

An answer that its socket takes at once is never counted, nor is what waits as a place in a file. What a connection
holds is counted when something is added; what has gone since then is asked for when it matters.

Past half of the budget memory is short: fetches are answered with little, and a client with unread answers must read,
at a modest rate, or its connection is closed; those that hold most are looked at first. Little that waits for another
answer of the same connection is nobody's fault. Where that is not enough, and all of the budget is taken, those that
hold most are closed at once: a client comes back and asks again.

A large answer is admitted before it is encoded (`admit`), and counts from then on: in the first half of the budget, so
that nobody who reads is closed for it. Where it does not fit it waits, addresses in turn. One of those that wait is
favoured: it goes ahead, however large its answer is, which is counted apart. So the largest answer gets through, and no
more than one of them is in memory beside the budget. While others wait, the favoured client must read quickly.

A favour is for that very answer: it begins with the promise, which becomes a place in what is sent to the client when
the answer is handed to its writer (`answered`), and ends when all up to there has gone. What is answered before or
behind it makes no difference.
"""

import asyncio
import logging
from typing import NamedTuple, Protocol

from penstock.core.errors import ClientGoneError
from penstock.core.limits import (
    ANSWER_FAVOURED_BYTES_MIN,
    ANSWER_FAVOURED_SECONDS,
    SEND_BYTES_PER_CHECK_MIN,
    SEND_CHECK_SECONDS,
    SEND_CHECKS_BEHIND_MAX,
    UNSENT_BYTES_MAX,
)

logger = logging.getLogger(__name__)

_BEHIND_BYTES_MAX = SEND_CHECKS_BEHIND_MAX * SEND_BYTES_PER_CHECK_MIN


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
        """Of answers, in memory or promised, now: none is left out on its way from the one to the other."""
        ...

    def sent_bytes(self) -> int:
        """Of answers that had to wait: how many have gone, ever."""
        ...

    def unsent_bytes(self) -> int:
        """Of answers that it may read: they wait for nothing else."""
        ...

    def abort(self) -> None: ...


class _Mark(NamedTuple):
    """A client with unread answers, as of the last check."""

    sent_bytes: int
    behind_bytes: int  # what it should have read besides


class _Waiting:
    """For room. A connection has one request at a time that may wait so."""

    __slots__ = ("admitted", "size_bytes")

    def __init__(self, size_bytes: int, admitted: asyncio.Future[None]) -> None:
        self.size_bytes = size_bytes
        self.admitted = admitted


class _Favour:
    """Of one connection, for one large answer."""

    __slots__ = ("ends_at_bytes", "holder", "size_bytes", "watch")

    def __init__(self, holder: Holder, size_bytes: int) -> None:
        self.holder = holder
        self.size_bytes = (
            size_bytes  # of it, at most, counted apart; what the connection holds besides is not
        )
        self.ends_at_bytes: int | None = None  # sent to it, ever; unknown before its writer has the answer
        self.watch: asyncio.TimerHandle | None = None

    def is_over(self, kept_bytes: int) -> bool:
        """Its answer has gone, or will never come; it may always keep something that came behind it."""
        ends_at = self.ends_at_bytes
        return not kept_bytes or (ends_at is not None and self.holder.sent_bytes() >= ends_at)

    def shrink(self, kept_bytes: int) -> None:
        """The answer is there, and gets less: what the connection is promised from now on is none of it."""
        if self.ends_at_bytes is not None:
            self.size_bytes = min(self.size_bytes, kept_bytes)

    def end(self) -> None:
        if self.watch is not None:
            self.watch.cancel()


class SendBudget:
    def __init__(self, loop: asyncio.AbstractEventLoop, limit_bytes: int = UNSENT_BYTES_MAX) -> None:
        self._loop = loop
        self._limit_bytes = limit_bytes
        self.used_bytes = 0  # without the favoured answer
        self.is_short = False
        self._held: dict[Holder, int] = {}
        self._marks: dict[Holder, _Mark] = {}
        self._favour: _Favour | None = None
        self._waiting: dict[str, dict[Holder, _Waiting]] = {}  # addresses in turn
        self._checking: asyncio.TimerHandle | None = None

    def hold(self, holder: Holder, size_bytes: int) -> None:
        """It has so many bytes in memory, all in all."""
        is_less, favour = size_bytes < self._held.get(holder, 0), self._favour
        self._note(holder, size_bytes)
        if self.used_bytes > self._limit_bytes:
            self._count_again()
            if self.used_bytes > self._limit_bytes:
                # By more than is needed, so that they are not all counted again for the next answer.
                self._drop(self._by_size(), self._limit_bytes * 3 // 4)
        if (is_less or favour is not self._favour) and self._waiting:
            self._let_in()
        if self._checking is None and self.is_short:
            self._check_later()

    # -- large answers ---------------------------------------------------------------------------------------

    def admit(self, holder: Holder, size_bytes: int) -> asyncio.Future[None] | None:
        """Room for an answer that is to be made, to be awaited where there is none yet; ClientGoneError ends that.

        It is promised to the holder, who counts it until the answer is there.
        """
        if not self._fits(size_bytes) or self._is_favoured(holder):
            self._count_again()
            self._let_in()
        if (not self._waiting or self._fits(size_bytes)) and self._promise(holder, size_bytes):
            return None
        admitted = self._loop.create_future()
        self._waiting.setdefault(holder.peer, {})[holder] = _Waiting(size_bytes, admitted)
        self._watch_favoured()
        if self._checking is None:
            self._check_later()
        return admitted

    def answered(self, holder: Holder) -> None:
        """Its writer has all of what was promised to it, or that will never be made."""
        favour = self._favour
        if favour is not None and favour.holder is holder and favour.ends_at_bytes is None:
            favour.ends_at_bytes = holder.sent_bytes() + holder.unsent_bytes()
            self.hold(holder, holder.kept_bytes())

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
            if self._favour is not None:
                return False
            self.used_bytes -= min(self._held.get(holder, 0), size_bytes)
            self._favour = _Favour(holder, size_bytes)
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
        favour = self._favour if self._is_favoured(holder) else None
        apart_bytes = 0 if favour is None else favour.size_bytes
        held_bytes = self._held.get(holder, 0)
        self.used_bytes += max(size_bytes - apart_bytes, 0) - max(held_bytes - apart_bytes, 0)
        if size_bytes:
            self._held[holder] = size_bytes
        else:
            self._held.pop(holder, None)
            self._marks.pop(holder, None)
        if favour is not None:
            favour.shrink(size_bytes)
            if favour.is_over(size_bytes):
                favour.end()
                self._favour = None
                self.used_bytes += min(size_bytes, apart_bytes)  # as everybody's
        self.is_short = self.used_bytes * 2 > self._limit_bytes

    def _is_favoured(self, holder: Holder) -> bool:
        return self._favour is not None and self._favour.holder is holder

    def _count_again(self) -> None:
        for holder in list(self._held):
            self._note(holder, holder.kept_bytes())

    def _by_size(self) -> list[Holder]:
        return sorted(
            (holder for holder in self._held if not self._is_favoured(holder)),
            key=self._held.__getitem__,
            reverse=True,
        )

    # -- who reads too little --------------------------------------------------------------------------------

    def _check_later(self) -> None:
        self._checking = self._loop.call_later(SEND_CHECK_SECONDS, self._check)

    def _check(self) -> None:
        """Drop those that hold what is short, or is waited for, and are far behind with reading it."""
        self._checking = None
        self._count_again()
        self._let_in()
        if not self.is_short and not self._waiting:
            self._marks.clear()
            return
        self._mark()
        for holder in self._by_size():
            if not self.is_short and not self._waiting:
                break
            if holder in self._marks and self._marks[holder].behind_bytes >= _BEHIND_BYTES_MAX:
                self._close(holder)
                self._let_in()
        self._check_later()

    def _mark(self) -> None:
        marks, self._marks = self._marks, {}
        for holder, kept_bytes in self._held.items():
            # There is nothing to read yet of what was promised, nor of what waits for answers before it.
            if holder.promised_bytes or not (holder.unsent_bytes() or kept_bytes >= SEND_BYTES_PER_CHECK_MIN):
                continue
            sent, behind = holder.sent_bytes(), 0
            if holder in marks:
                before = marks[holder]
                read = sent - before.sent_bytes
                behind = max(before.behind_bytes + SEND_BYTES_PER_CHECK_MIN - read, 0)
            self._marks[holder] = _Mark(sent, behind)

    def _watch_favoured(self) -> None:
        favour = self._favour
        if favour is not None and favour.watch is None and self._is_waited_for(favour.holder):
            holder = favour.holder
            sent = None if holder.promised_bytes else holder.sent_bytes()
            favour.watch = self._loop.call_later(ANSWER_FAVOURED_SECONDS, self._check_favoured, favour, sent)

    def _is_waited_for(self, favoured: Holder) -> bool:
        """By others: it may wait itself, for its next answer."""
        return any(holder is not favoured for row in self._waiting.values() for holder in row)

    def _check_favoured(self, favour: _Favour, sent_before: int | None) -> None:
        """Others wait for it, not for each other."""
        favour.watch = None
        holder = favour.holder
        if sent_before is not None and self._is_waited_for(holder):
            self._note(holder, holder.kept_bytes())
            if favour is self._favour and holder.sent_bytes() - sent_before < ANSWER_FAVOURED_BYTES_MIN:
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
