"""Which transactions of a log were aborted: readers of what was committed leave their records out.

Each segment has those whose markers it holds, in the order of these, in a file of Kafka's layout (`.txnindex`):

    version 0  producer  first offset  offset of the marker  last stable offset then
    2          8         8             8                     8

Few logs have any, and of most segments nobody asks: so what no file has yet is in memory, whatever else is, and what
files have is there for the last segment, and for others when somebody reads there. A damaged file is made anew from
the log.

The last stable offset says when to stop looking: a transaction that was aborted later began no earlier than that.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from penstock.core.files import Files
from penstock.storage.layout import TXN_INDEX, segment_name
from penstock.storage.segment import ColdRead

_ENTRY = Struct(">hqqqq")
_VERSION = 0
# Sealed segments whose transactions stay in memory once they were read: readers far behind are few.
_KEPT = 4


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int  # of its marker
    last_stable_offset: int = -1  # when that was written


Rebuild = Callable[[int], list[AbortedTransaction]]


class _Known:
    """Of one segment: its file's come before those that no file has yet."""

    __slots__ = ("saved", "unsaved")

    def __init__(self, saved: list[AbortedTransaction] | None, unsaved: list[AbortedTransaction]) -> None:
        self.saved = saved  # None: they are in the file alone
        self.unsaved = unsaved

    def with_saved(self, saved: list[AbortedTransaction]) -> list[AbortedTransaction]:
        """All of them. What was read may have some that were written meanwhile, or come from the log itself."""
        stop = _count_below(saved, self.unsaved[0].last_offset) if self.unsaved else len(saved)
        return saved[:stop] + self.unsaved


class _Read(NamedTuple):
    """What a thread has read for a reader."""

    generation: int  # when it was asked to
    needed: list[int]
    loaded: dict[int, list[AbortedTransaction]]
    rebuilt: set[int]  # which of these no file has


class AbortedTransactions:
    """Of one log, by the base offset of the segment. Owned by the loop; what blocks is for threads, and says so."""

    __slots__ = ("_by_base", "_directory", "_files", "_generation", "_read", "_recent")

    def __init__(self, files: Files, directory: Path) -> None:
        self._files = files
        self._directory = directory
        self._by_base: dict[int, _Known] = {}  # only segments that have any, oldest first
        self._generation = 0  # what was read of files in an earlier one is not what they have
        self._read: deque[_Read] = deque()  # by threads, and not taken over yet
        # Whose were read from their files, the last at the end. Not the last segment's: those were never away.
        self._recent: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._by_base)

    # -- at a start ------------------------------------------------------------------------------------------

    def found(self, base: int) -> None:
        """There is a file; nobody has looked into it."""
        self._by_base[base] = _Known(None, [])

    def take_over(self, base: int, transactions: list[AbortedTransaction]) -> None:
        """These are all that the segment has by now; whatever else its file has goes. Blocks."""
        saved = cut_file(self._files, self._directory, base, len(transactions))
        if transactions:
            self._by_base[base] = _Known(transactions[:saved], transactions[saved:])

    # -- growing and shrinking -------------------------------------------------------------------------------

    def add(self, base: int, transaction: AbortedTransaction) -> None:
        """Its marker is in the log by now: nothing that is in memory or not keeps it from being noted."""
        known = self._by_base.get(base)
        if known is None:
            known = self._by_base[base] = _Known([], [])
        known.unsaved.append(transaction)

    def keep_from(self, base: int) -> None:
        """Segments before that one have left the log."""
        self.drop([each for each in self._by_base if each < base])

    def drop(self, bases: Iterable[int]) -> None:
        for base in bases:
            self._by_base.pop(base, None)
            if base in self._recent:
                self._recent.remove(base)

    def cut(self, end_offset: int, last_base: int) -> None:
        """The log ends there now, in that segment; its file was cut by whoever cut the log."""
        self._generation += 1
        # Of a segment that is cut to its beginning nothing is left, whether its list was in memory or not.
        self.drop([each for each in self._by_base if each > last_base or each >= end_offset])
        known = self._by_base.get(last_base)
        if known is None:
            return
        del known.unsaved[_count_below(known.unsaved, end_offset) :]
        if known.saved is not None:
            del known.saved[_count_below(known.saved, end_offset) :]
            if not known.saved and not known.unsaved:
                self.drop([last_base])

    # -- saving ----------------------------------------------------------------------------------------------

    def unsaved(self) -> list["UnsavedTransactions"]:
        return [
            UnsavedTransactions(base, list(known.unsaved), None if known.saved is None else len(known.saved))
            for base, known in self._by_base.items()
            if known.unsaved
        ]

    def saved(self, done: Iterable["UnsavedTransactions"], active_base: int) -> None:
        """Those are in their files: of sealed segments they leave memory."""
        for base, written, _ in done:
            known = self._by_base.get(base)
            if known is None:
                continue
            del known.unsaved[: len(written)]
            if known.saved is None:
                self._generation += 1
            else:
                known.saved += written
        recent = {active_base, *self._recent}
        for base, known in self._by_base.items():
            if base not in recent and not known.unsaved:
                known.saved = None

    # -- reading ---------------------------------------------------------------------------------------------

    def between(self, first: int, end: int, rebuild: Rebuild) -> list[tuple[int, int]]:
        """(Producer, first offset) of each that has records from `first` on and below `end`, by first offset.

        ColdRead: they are in a file.
        """
        if self._read:
            self._take_read()
        found = []
        for base in self._from(first):
            known = self._by_base[base]
            if known.saved is None:
                here = [(each, self._by_base[each].saved) for each in self._from(first)]
                raise ColdRead(partial(self._load, self._generation, here, (first, end), rebuild))
            for part in (known.saved, known.unsaved):
                for transaction in part[_count_below(part, first) :]:
                    if transaction.first_offset < end:
                        found.append((transaction.first_offset, transaction.producer_id))
                    if transaction.last_stable_offset >= end:
                        return _by_first(found)
        return _by_first(found)

    def _from(self, offset: int) -> Iterator[int]:
        bases = list(self._by_base)
        yield from bases[max(bisect_right(bases, offset) - 1, 0) :]

    def _load(
        self,
        generation: int,
        here: list[tuple[int, list[AbortedTransaction] | None]],
        wanted: tuple[int, int],
        rebuild: Rebuild,
    ) -> None:
        """All that a reader of `wanted` needs and is not `here`. Blocks; the loop takes it over, or not."""
        first, end = wanted
        read = _Read(generation, [], {}, set())
        for base, known in here:
            read.needed.append(base)
            if known is None:
                known = load(self._files, self._directory, base)
                if known is None:
                    known = rebuild(base)
                    read.rebuilt.add(base)
                read.loaded[base] = known
            if any(each.last_stable_offset >= end for each in known[_count_below(known, first) :]):
                break
        self._read.append(read)

    def _take_read(self) -> None:
        """Into memory, on the loop: a cut may have come in between, and others take it from there."""
        read = [self._read.popleft() for _ in range(len(self._read))]
        read = [each for each in read if each.generation == self._generation]
        loaded = {base: each for each in read for base in each.loaded if base in self._by_base}
        needed = {base: None for each in read for base in each.needed}
        others = [base for base in self._recent if base not in needed]
        for base in others[:-_KEPT]:
            if not self._by_base[base].unsaved:
                self._by_base[base].saved = None
        were_read = {*self._recent, *loaded}
        self._recent = others[-_KEPT:] + [base for base in needed if base in were_read]
        for base, each in loaded.items():
            known = self._by_base[base]
            if known.saved is not None:
                continue
            transactions = known.with_saved(each.loaded[base])
            if base in each.rebuilt:  # to be saved again
                known.saved, known.unsaved = [], transactions
            else:
                known.saved = transactions[: len(transactions) - len(known.unsaved)]
            if not transactions:
                self.drop([base])  # all that it had was cut

    def read(self, bases: Iterable[int], rebuild: Rebuild) -> dict[int, list[AbortedTransaction]]:
        """Of sealed segments, from their files, and not kept in memory. Blocks."""
        found = {}
        for base in bases:
            known = load(self._files, self._directory, base)
            found[base] = rebuild(base) if known is None else known
        return found

    def cold(self) -> list[int]:
        return [base for base, known in self._by_base.items() if known.saved is None]

    def all(self, loaded: dict[int, list[AbortedTransaction]]) -> list[AbortedTransaction] | None:
        """With those of cold segments, as somebody has loaded them; None: some are missing."""
        found: list[AbortedTransaction] = []
        for base, known in self._by_base.items():
            part = loaded.get(base) if known.saved is None else known.saved
            if part is None:
                return None
            found += known.with_saved(part)
        return found


class UnsavedTransactions(NamedTuple):
    """Of one segment, copied on the loop and written by a thread."""

    base: int
    transactions: list[AbortedTransaction]
    behind: int | None  # so many that the file has; None: behind all of them

    def save(self, files: Files, directory: Path, *, durable: bool) -> None:
        file = files.open(_path(directory, self.base), create=True)
        try:
            behind = file.size() // _ENTRY.size if self.behind is None else self.behind
            data = b"".join(_ENTRY.pack(_VERSION, *each) for each in self.transactions)
            file.pwrite(data, behind * _ENTRY.size)
            file.truncate((behind + len(self.transactions)) * _ENTRY.size)
            if durable:
                file.sync()
        finally:
            file.close()


def load(files: Files, directory: Path, base: int) -> list[AbortedTransaction] | None:
    """What the file of a segment has; None: it is gone or damaged. Blocks."""
    try:
        data = files.read(_path(directory, base))
    except FileNotFoundError:
        return None
    if len(data) % _ENTRY.size:
        return None
    found = [
        AbortedTransaction(*fields) for version, *fields in _ENTRY.iter_unpack(data) if version == _VERSION
    ]
    is_whole = len(found) * _ENTRY.size == len(data) and all(
        base <= last and 0 <= first < last and 0 <= stable <= last + 1 for _, first, last, stable in found
    )
    rises = all(before.last_offset < each.last_offset for before, each in pairwise(found))
    return found if is_whole and rises else None


def cut_file(files: Files, directory: Path, base: int, count: int) -> int:
    """Leave the first `count`; returns how many it has. Blocks."""
    path = _path(directory, base)
    if not files.exists(path):
        return 0
    if not count:
        files.unlink(path)
        return 0
    file = files.open(path)
    try:
        file.truncate(count * _ENTRY.size)
        file.sync()
    finally:
        file.close()
    return count


def cut_file_from(files: Files, directory: Path, base: int, end_offset: int) -> None:
    """Leave those that ended before `end_offset`. Blocks."""
    known = load(files, directory, base)
    if known is not None:  # a damaged one stays: it is made anew
        cut_file(files, directory, base, _count_below(known, end_offset))


def _path(directory: Path, base: int) -> Path:
    return directory / segment_name(base, TXN_INDEX)


def _count_below(known: Sequence[AbortedTransaction], offset: int) -> int:
    return bisect_left(known, offset, key=lambda each: each.last_offset)


def _by_first(found: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Clients go through them in this order."""
    return [(producer_id, first) for first, producer_id in sorted(found)]
