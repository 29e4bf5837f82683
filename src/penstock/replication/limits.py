"""How far whoever reads a partition may see: its limits, each a place in the log, and who waits for one to move.

    log start ........ stable ........ readable ........ high watermark ........ log end

    log end          what is appended, held back or not: followers read up to it, or nothing would ever be committed
    high watermark   what is committed: coordinators, which are parts of the broker, see all of it
    readable         the same for consumers; where the partition is retired, no more than lies below the ceiling
                     that was put there (`replication.retirement`)
    last stable      what is committed and of no open transaction: relays and compaction go no further
    stable           the same for consumers with `read_committed`: below both ceilings

What holds readers back is a ceiling: an offset, below which somebody sees what lies below the high watermark. Several
compose, and a partition that has none (no transaction is open, and few are retired) pays nothing for them: all but the
log end are one and the same place then. Where transactions begin and end the log knows (`storage.open_transactions`);
that moves the last stable offset when the high watermark moves, for neither counts before it is committed.

How much of the log is durable limits no reader by itself: it is one of the things that the high watermark follows.
"""

from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from enum import IntEnum
from operator import itemgetter
from typing import Protocol

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import StorageError
from penstock.storage.checkpoint import LogEnd
from penstock.storage.log import Log
from penstock.storage.replicated import end_at

# To a waiter: look, however much you are waiting for.
PLENTY = 0x7FFFFFFF


class Reader(IntEnum):
    """Who asks how far it may see; consumers by the numbers of Kafka's isolation levels."""

    __hash__ = int.__hash__  # that of enums is a call in Python

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1
    BROKER = 2  # itself: coordinators
    RELAY = 3
    FOLLOWER = 4


_READ_UNCOMMITTED = Reader.READ_UNCOMMITTED  # at hand for the hot path


class AckWaiter(Protocol):
    """A produce request that waits for its batch to be committed."""

    def committed(self) -> None: ...
    def failed(self, code: ErrorCode, message: str) -> None: ...


class DataWaiter(Protocol):
    """A reader that waits for more to read."""

    def advanced(self, added_bytes: int) -> None: ...


class _Ceiling:
    """An offset that some do not see beyond. Its place is looked for once the high watermark has passed it."""

    __slots__ = ("offset", "place")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.place: LogEnd | None = None

    def below(self, end: LogEnd, log: Log) -> LogEnd:
        """The lower one of the two. StorageError: its place could not be read."""
        if end.offset <= self.offset:
            self.place = end if end.offset == self.offset else None
            return end
        if self.place is None:
            self.place = end_at(log, self.offset)
        return self.place


def _offset_of(ceiling: _Ceiling | None) -> int | None:
    return None if ceiling is None else ceiling.offset


class Limits:
    __slots__ = (
        "_acks",
        "_log",
        "_retired",
        "_unstable",
        "_waiting",
        "high_watermark",
        "last_stable",
        "readable",
        "stable",
    )

    def __init__(self, log: Log, committed: LogEnd | None = None) -> None:
        """Of a log of which so much is known to be committed; None: all of it.

        Never from higher up, to be moved back: which markers lie behind the high watermark is forgotten as it passes.
        """
        end = log.end() if committed is None else committed
        self._log = log
        self.high_watermark = self.last_stable = self.readable = self.stable = end
        self._retired: _Ceiling | None = None
        self._unstable: _Ceiling | None = None
        if log.producers.unstable:
            # Until the first move, whoever wants what is stable sees nothing: where it ends may have to be read.
            self.last_stable = self.stable = LogEnd(log.start_offset, log.segments[0].base_offset, 0)
            with suppress(StorageError):
                self._place(log, end, None)
        self._acks: deque[tuple[int, AckWaiter]] = deque()
        # Dicts for their order: the simulation repeats exactly.
        self._waiting: dict[Reader, dict[DataWaiter, None]] = {}

    def for_reader(self, reader: Reader) -> LogEnd:
        """The one answer to "how far may this reader see"."""
        if reader is _READ_UNCOMMITTED:
            return self.readable
        if reader is Reader.READ_COMMITTED:
            return self.stable
        if reader is Reader.RELAY:
            return self.last_stable
        return self.high_watermark if reader is Reader.BROKER else self._log.end()

    # -- moving --------------------------------------------------------------------------------------------

    def move(self, end: LogEnd) -> None:
        """The high watermark is `end` now: a step up, or down where the log lost its end. All follow who go by it.

        StorageError: where a ceiling lies could not be read, and nothing has changed.
        """
        before = self._seen() if self._waiting else None
        if self._retired is None and not self._log.producers.unstable:
            self.high_watermark = self.last_stable = self.readable = self.stable = end
        else:
            self._place(self._log, end, self._retired)
        acks = self._acks
        while acks and acks[0][0] < end.offset:
            acks.popleft()[1].committed()
        if before is not None:
            self._wake_moved(before)

    def hold_readers(self, offset: int | None) -> None:
        """Consumers see nothing from `offset` on, the beginning of a batch: it is retired. None: it is not."""
        self._hold(self._log, self.high_watermark, offset)

    def look_again(self) -> None:
        """Files were exchanged: ceilings may lie elsewhere in them by now."""
        self._hold(self._log, self.high_watermark, _offset_of(self._retired))

    def replace_log(self, log: Log) -> None:
        """The log was opened anew: the same offsets, as far as it has them, in other places."""
        end = end_at(log, min(self.high_watermark.offset, log.end_offset))
        self._hold(log, end, _offset_of(self._retired))

    def _hold(self, log: Log, end: LogEnd, offset: int | None) -> None:
        before = self._seen()
        retired = None if offset is None else _Ceiling(offset)
        self._unstable = None
        self._place(log, end, retired)
        self._log, self._retired = log, retired
        self._wake_moved(before)

    def _place(self, log: Log, end: LogEnd, retired: _Ceiling | None) -> None:
        # All that reads comes first: where that fails nothing has changed yet.
        readable = end if retired is None else retired.below(end, log)
        unstable = self._unstable_in(log, end.offset)
        last_stable = end if unstable is None else unstable.below(end, log)
        self._unstable = unstable
        self.high_watermark, self.last_stable, self.readable = end, last_stable, readable
        self.stable = min(readable, last_stable)  # by offset, which comes first

    def _unstable_in(self, log: Log, high_watermark: int) -> _Ceiling | None:
        first = log.producers.transactions.first_unstable(high_watermark)
        if first is None:
            return None
        first = max(first, log.start_offset)  # DeleteRecords may have taken its beginning
        known = self._unstable
        return known if known is not None and known.offset == first else _Ceiling(first)

    # -- waiting -------------------------------------------------------------------------------------------

    def wait(self, reader: Reader, waiter: DataWaiter) -> None:
        """It hears of every move of that reader's limit until it leaves."""
        self._waiting.setdefault(reader, {})[waiter] = None

    def leave(self, reader: Reader, waiter: DataWaiter) -> None:
        waiting = self._waiting.get(reader)
        if waiting is not None:
            waiting.pop(waiter, None)
            if not waiting:
                del self._waiting[reader]

    def wake(self, *readers: Reader) -> None:
        """Let them look again, however much they wait for: the log has grown, or it is not to be read here any more."""
        for reader in readers:
            for waiter in list(self._waiting.get(reader, ())):
                waiter.advanced(PLENTY)

    def _seen(self) -> tuple[LogEnd, LogEnd, LogEnd, LogEnd]:
        """In the order of `Reader`, without followers, who see all there is."""
        return self.readable, self.stable, self.high_watermark, self.last_stable

    def _wake_moved(self, before: tuple[LogEnd, LogEnd, LogEnd, LogEnd]) -> None:
        for reader, was, now in zip(Reader, before, self._seen(), strict=False):
            waiting = self._waiting.get(reader)
            if waiting and now.offset > was.offset:
                # From one segment to the next nobody counts.
                added = now.position - was.position if now.segment == was.segment else PLENTY
                for waiter in list(waiting):
                    waiter.advanced(added)

    def wait_for_commit(self, last_offset: int, waiter: AckWaiter) -> None:
        """Once, when the high watermark has passed that offset. Who comes later waits for no less."""
        self._acks.append((last_offset, waiter))

    def wait_among(self, waiting: Iterable[tuple[int, AckWaiter]]) -> None:
        """The same for several, in any order, whoever waits already: those whose commit has come hear at once."""
        acks = self._acks = deque(sorted((*self._acks, *waiting), key=itemgetter(0)))
        while acks and acks[0][0] < self.high_watermark.offset:
            acks.popleft()[1].committed()

    @property
    def waiting_for_commit(self) -> int:
        return len(self._acks)

    def turn_away(self) -> list[AckWaiter]:
        """Nobody waits for an acknowledgement any longer: they are the caller's to tell."""
        waiters, self._acks = self._acks, deque()
        return [waiter for _, waiter in waiters]
