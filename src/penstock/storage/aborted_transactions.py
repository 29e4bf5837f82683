"""Which transactions of a log were aborted: readers of what was committed leave their records out.

Each segment has those whose markers it holds, in the order of these, in a file of Kafka's layout (`.txnindex`):

    version 0  producer  first offset  offset of the marker  last stable offset then
    2          8         8             8                     8

Few logs have any, and of most segments nobody asks: so those of the last segment, and what no file has yet, are in
memory, and those of others when somebody reads there. A damaged file is made anew from the log.

The last stable offset says when to stop looking: a transaction that was aborted later began no earlier than that.
"""

from bisect import bisect_left, bisect_right
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


class AbortedTransactions:
    """Of one log, by the base offset of the segment. Owned by the loop; what blocks is for threads, and says so."""

    __slots__ = ("_by_base", "_directory", "_files", "_persisted", "_recent")

    def __init__(self, files: Files, directory: Path) -> None:
        self._files = files
        self._directory = directory
        # Only segments that have any, oldest first; None: in the file alone.
        self._by_base: dict[int, list[AbortedTransaction] | None] = {}
        self._persisted: dict[int, int] = {}  # how many of them the file has
        self._recent: list[int] = []  # read from their files, the last at the end

    def __bool__(self) -> bool:
        return bool(self._by_base)

    # -- at a start ------------------------------------------------------------------------------------------

    def found(self, base: int) -> None:
        """There is a file; nobody has looked into it."""
        self._by_base[base] = None

    def take_over(self, base: int, transactions: list[AbortedTransaction]) -> None:
        """These are all that the segment has by now; whatever else its file has goes. Blocks."""
        saved = cut_file(self._files, self._directory, base, len(transactions))
        if transactions:
            self._by_base[base], self._persisted[base] = transactions, saved

    # -- growing and shrinking -------------------------------------------------------------------------------

    def add(self, base: int, transaction: AbortedTransaction) -> None:
        """Of the segment that is written to: its own are in memory."""
        known = self._by_base.setdefault(base, [])
        assert known is not None
        known.append(transaction)

    def keep_from(self, base: int) -> None:
        """Segments before that one have left the log."""
        self.drop([each for each in self._by_base if each < base])

    def drop(self, bases: Iterable[int]) -> None:
        for base in bases:
            self._by_base.pop(base, None)
            self._persisted.pop(base, None)

    def cut(self, end_offset: int, last_base: int) -> None:
        """The log ends there now, in that segment; its file was cut by whoever cut the log."""
        self.drop([each for each in self._by_base if each > last_base])
        known = self._by_base.get(last_base)
        if known is not None:
            del known[_count_below(known, end_offset) :]
            self._persisted[last_base] = min(self._persisted.get(last_base, 0), len(known))
            if not known:
                self.drop([last_base])

    # -- saving ----------------------------------------------------------------------------------------------

    def unsaved(self) -> list["UnsavedTransactions"]:
        return [
            UnsavedTransactions(base, list(known), self._persisted.get(base, 0))
            for base, known in self._by_base.items()
            if known is not None and len(known) > self._persisted.get(base, 0)
        ]

    def saved(self, done: Iterable["UnsavedTransactions"], active_base: int) -> None:
        """Those are in their files: of sealed segments they leave memory."""
        for base, written, _ in done:
            known = self._by_base.get(base)
            if known is None:
                continue
            self._persisted[base] = max(self._persisted.get(base, 0), len(written))
            if base != active_base and len(known) == len(written):
                self._by_base[base] = None

    # -- reading ---------------------------------------------------------------------------------------------

    def between(self, first: int, end: int, rebuild: Rebuild) -> list[tuple[int, int]]:
        """(Producer, first offset) of each that has records from `first` on and below `end`, by first offset.

        ColdRead: they are in a file.
        """
        found = []
        for base in self._from(first):
            known = self._by_base[base]
            if known is None:
                raise ColdRead(partial(self._load, first, end, rebuild))
            for transaction in known[_count_below(known, first) :]:
                if transaction.first_offset < end:
                    found.append((transaction.first_offset, transaction.producer_id))
                if transaction.last_stable_offset >= end:
                    return _by_first(found)
        return _by_first(found)

    def _from(self, offset: int) -> Iterator[int]:
        bases = list(self._by_base)
        yield from bases[max(bisect_right(bases, offset) - 1, 0) :]

    def _load(self, first: int, end: int, rebuild: Rebuild) -> None:
        """All that such a reader needs. Blocks. The log may have changed meanwhile: then nobody asks for them."""
        needed = []
        for base in self._from(first):
            needed.append(base)
            known = self._by_base.get(base) or self._loaded(base, rebuild)
            if any(each.last_stable_offset >= end for each in known):
                break
        recent = [base for base in self._recent if base not in needed]
        for old in recent[:-_KEPT]:
            if len(self._by_base.get(old) or ()) == self._persisted.get(old):
                self._by_base[old] = None
        self._recent = recent[-_KEPT:] + needed

    def _loaded(self, base: int, rebuild: Rebuild) -> list[AbortedTransaction]:
        known = load(self._files, self._directory, base)
        saved = 0 if known is None else len(known)  # one that is made anew is saved again
        known = rebuild(base) if known is None else known
        if base in self._by_base and self._by_base[base] is None:
            self._persisted[base], self._by_base[base] = saved, known
        return known

    def read(self, bases: Iterable[int], rebuild: Rebuild) -> dict[int, list[AbortedTransaction]]:
        """Of sealed segments, from their files, and not kept in memory. Blocks."""
        found = {}
        for base in bases:
            known = load(self._files, self._directory, base)
            found[base] = rebuild(base) if known is None else known
        return found

    def cold(self) -> list[int]:
        return [base for base, known in self._by_base.items() if known is None]

    def all(self, loaded: dict[int, list[AbortedTransaction]]) -> list[AbortedTransaction] | None:
        """With those of cold segments, as somebody has loaded them; None: some are missing."""
        found: list[AbortedTransaction] = []
        for base, known in self._by_base.items():
            part = loaded.get(base) if known is None else known
            if part is None:
                return None
            found += part
        return found


class UnsavedTransactions(NamedTuple):
    """Of one segment, copied on the loop and written by a thread."""

    base: int
    transactions: list[AbortedTransaction]
    persisted: int

    def save(self, files: Files, directory: Path, *, durable: bool) -> None:
        file = files.open(_path(directory, self.base), create=True)
        try:
            rest = b"".join(_ENTRY.pack(_VERSION, *each) for each in self.transactions[self.persisted :])
            file.pwrite(rest, self.persisted * _ENTRY.size)
            file.truncate(len(self.transactions) * _ENTRY.size)
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
