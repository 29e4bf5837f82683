"""One segment: a file of record batches, and where in it an offset or a time is to be found.

Its file is open while it is used, and may be closed in between (`core.descriptors`). It is opened again by its name, so
whoever takes a name from a segment says so first: `rename_deleted` goes from one name to the other with both in hand,
and `shut` ends it, for a name that another file may have from now on. `close` ends also what others read from it: the
file may become another log's, and grow.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

from penstock.core.errors import StorageError
from penstock.core.files import File, Files
from penstock.records.batch import HEADER, HEADER_BYTES, LOG_OVERHEAD_BYTES, BatchHeader, header_at
from penstock.storage import index as index_files
from penstock.storage.index import SegmentIndex
from penstock.storage.layout import (
    DAMAGED,
    DELETED,
    DRAFT,
    GAP,
    LOG,
    OFFSET_INDEX,
    TIME_INDEX,
    TXN_INDEX,
    range_name,
    segment_name,
)

NO_TIMESTAMP = -1
# Walking headers reads ahead this much at once: a stretch between two index entries fits as a rule.
_WALK_BYTES = 8 * 1024
_REBUILT_INTERVAL_BYTES = 4096
# How far a segment's offsets may reach, so that they fit the index's 32 bits.
RELATIVE_OFFSET_MAX = 0x7FFFFFFF
# Ends of earlier answers whose place a segment remembers: as many readers can follow the tail without a search.
_ENDS_KEPT = 16
# Of the files that it may have; the records come first.
_SUFFIXES = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX)
# What its names may end with, while it is in the log.
_IN_PLACE: tuple[str, ...] = ("",)
# Each has a hidden name of its own: the one that compaction puts in its place may be hidden before it is unlinked.
_hidden_numbers = count()


class DamagedSegmentError(StorageError):
    """It does not hold whole, sound batches where it should: it is left as it is."""


class ColdRead(Exception):  # noqa: N818 - not an error: the bytes are on disk but not in memory
    """A read on the event loop would have to wait for the disk: call `warm` in a thread, then try again."""

    def __init__(self, warm: Callable[[], object]) -> None:
        super().__init__()
        self.warm = warm


class Slice(NamedTuple):
    """Whole batches in a file: what a fetch answers with, sent without ever being opened."""

    file: File
    position: int
    size: int


class Segment:
    __slots__ = (
        "__weakref__",
        "_ends",
        "_files",
        "_is_closed",
        "_is_shut",
        "_suffixes",
        "base_offset",
        "directory",
        "first_timestamp",
        "former",
        "handle",
        "index",
        "max_timestamp",
        "next_entry_at",
        "pinned",
        "size",
        "times_known",
        "unsynced",
        "used",
    )

    def __init__(self, files: Files, directory: Path, base_offset: int, size: int) -> None:
        self._files = files
        self.directory = directory
        self.base_offset = base_offset
        self.handle: File | None = None
        self.former: tuple[Callable[[], File | None], ...] = ()
        self.used = self.unsynced = False  # for `core.descriptors`
        self._suffixes = _IN_PLACE  # of the names that its file may have
        self._is_shut = self._is_closed = False
        self.size = size
        self.index: SegmentIndex | None = None
        self.first_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        self.times_known = False  # whether `max_timestamp` is; a sealed segment's may still have to be read
        # Being replaced: its files may be another segment's already, so only what is in memory counts.
        self.pinned = False
        self.next_entry_at = 0  # the file size at which the next batch gets an index entry
        self._ends: dict[int, int] = {}  # offset -> position: where recent answers ended

    @classmethod
    def create(cls, files: Files, directory: Path, base_offset: int) -> "Segment":
        """A new, empty one. StorageError when there are records under its name: nobody may take them for nothing."""
        segment = cls(files, directory, base_offset, 0)
        path = segment.paths()[0]
        try:
            file = files.descriptors.open(segment, partial(files.open, path, create=True))
        except FileNotFoundError as error:  # the directory was taken away from under us
            raise StorageError(f"{error} is gone") from error
        if size := file.size():
            segment.shut()
            raise StorageError(f"{path} was to be made new, and has {size} bytes")
        segment.index = SegmentIndex(base_offset)
        segment.times_known = True
        return segment

    def followed_by(self, base_offset: int) -> "Segment":
        """The next one of its log, made new. One that is empty goes: its offsets did not reach so far."""
        segment = Segment.create(self._files, self.directory, base_offset)
        if not self.size:
            # Recovery takes no segment behind a hole, but for one that this name tells of.
            gap = range_name(self.base_offset, base_offset, GAP)
            self._files.open(self.directory / gap, create=True).close()
            self.shut()
            self._files.unlink(self.paths()[0])  # a restart removes its indexes
        return segment

    def beside(self, base_offset: int) -> "Segment":
        """An empty one of the same log."""
        return Segment.create(self._files, self.directory, base_offset)

    def emptied(self) -> "Segment":
        """An empty one under its name, in another file: whoever still reads from this one does not see it grow."""
        self.shut()
        path = self.paths()[0]
        draft = path.with_name(path.name + DRAFT)
        self._files.open(draft, create=True).close()
        self._files.rename(draft, path)
        return Segment.create(self._files, self.directory, self.base_offset)

    @property
    def stem(self) -> Path:
        return self.directory / segment_name(self.base_offset, "")

    def paths(self) -> list[Path]:
        return [self.stem.with_name(self.stem.name + suffix) for suffix in _SUFFIXES]

    # -- its file ------------------------------------------------------------------------------------------

    @property
    def file(self) -> File:
        """To be worked with at once, or kept by whoever works with it for longer. Opening it may wait for the disk."""
        handle = self.handle
        return self.open() if handle is None else handle

    def open(self) -> File:
        file = self._files.descriptors.open(self, self._opened)
        if self._is_closed:  # meanwhile
            self.close()
        return file

    def _opened(self) -> File:
        path = self.paths()[0]
        while not self._is_shut:
            suffixes = self._suffixes
            for suffix in suffixes:
                try:
                    file = self._files.open(path.with_name(path.name + suffix))
                except FileNotFoundError:
                    continue
                # Looked at behind the opening: a name is another's only after it has been taken from this one.
                if suffix in self._suffixes and not self._is_shut:
                    return file
            if suffixes is self._suffixes:
                break
        raise StorageError(f"{path} is gone")

    def _at_hand(self) -> File:
        """For the loop: ColdRead when it has to be opened first."""
        handle = self.handle
        if handle is None:
            raise ColdRead(self.open)
        self.used = True
        return handle

    def shut(self) -> None:
        """It is never opened again; whoever has its file goes on with that."""
        self._is_shut = True
        self._files.descriptors.forget(self)

    def let_go(self) -> None:
        """As `shut`, and it has no file itself."""
        self.shut()
        self.handle = None

    def close(self) -> None:
        """Nobody reads from its file any more, nor from one that it had before: answers that wait end."""
        self._is_shut = self._is_closed = True
        self._files.descriptors.revoke(self)

    # -- growing and shrinking -----------------------------------------------------------------------------

    def appended(self, header: BatchHeader, offset: int, size: int, index_interval_bytes: int) -> None:
        """Account for a batch that was just written at the end."""
        timestamp = header.max_timestamp
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        if self.first_timestamp < 0:
            self.first_timestamp = timestamp
        if self.size >= self.next_entry_at:
            assert self.index is not None  # the active segment's always is in memory
            self.index.add(offset, self.size, self.max_timestamp)
            self.next_entry_at = self.size + index_interval_bytes
        self.size += size

    def restore(self, index: SegmentIndex, size: int, max_timestamp: int, index_interval_bytes: int) -> None:
        """Be a segment that ends at `size` and goes on growing: after a restart, or cut back."""
        self.size = size
        self.index = index
        self.max_timestamp = max_timestamp
        self.times_known = True
        self.first_timestamp = index.timestamps[0] if len(index) else NO_TIMESTAMP
        self.next_entry_at = index.positions[-1] + index_interval_bytes if len(index) else 0
        self._ends = {}

    def rename_deleted(self) -> None:
        """Out of the log's sight: a restart removes what carries this name. It stays readable."""
        hidden = self._suffixes[-1] or f".{next(_hidden_numbers)}{DELETED}"
        self._suffixes = ("", hidden)
        for path in self.paths():
            if self._files.exists(path):
                self._files.rename(path, path.with_name(path.name + hidden))
        self._suffixes = (hidden,)

    def set_aside(self) -> str:
        """Nobody serves it under its new name, which is returned."""
        self.close()
        path, *indexes = self.paths()
        damaged, number = path.with_name(path.name + DAMAGED), 0
        while self._files.exists(damaged):  # of an earlier loss, and perhaps the only copy of something
            number += 1
            damaged = path.with_name(f"{path.name}.{number}{DAMAGED}")
        self._files.rename(path, damaged)
        for index in indexes:
            self._files.unlink(index)
        return damaged.name

    def unlink_deleted(self) -> None:
        self.shut()
        if hidden := self._suffixes[-1]:
            for path in self.paths():
                self._files.unlink(path.with_name(path.name + hidden))

    # -- the index -----------------------------------------------------------------------------------------

    def indexed(self) -> SegmentIndex:
        """The index; a sealed segment's may have to be read from its file first, which is ColdRead on the loop."""
        if self.index is None:
            raise ColdRead(self.load_index)
        return self.index

    def load_index(self, *, replacing: bool = False) -> SegmentIndex:
        """Read the index (or rebuild it from the log) and with it what is known of timestamps. Blocks."""
        index, self.max_timestamp = self.index_up_to(self.size, replacing=replacing)
        self.times_known = True
        self.index = index
        return index

    def load_times(self) -> None:
        """Only what is known of timestamps, without keeping the index. Blocks."""
        if not self.times_known:
            self.max_timestamp = self.index_up_to(self.size)[1]
            self.times_known = True

    def first_time(self) -> int:
        """The time of its first batch, by which it has waited for compaction; -1: none. Blocks."""
        return next((header.max_timestamp for _, header in self.walk(0, self.size, wait=True)), NO_TIMESTAMP)

    def next_offset(self) -> int:
        """Behind its last batch. Blocks."""
        position = self.index_up_to(self.size)[0].before_position(self.size)[0] if self.size else 0
        headers = self.walk(position, self.size, wait=True)
        return max((header.next_offset for _, header in headers), default=self.base_offset)

    def index_up_to(self, size: int, *, replacing: bool = False) -> tuple[SegmentIndex, int]:
        """The index of the first `size` bytes, as saved if it is sound, and their largest timestamp. Blocks.

        `replacing` is for whoever replaces the segment, and knows that its files are still its own.
        """
        index = index_files.load(self._files, self.stem, self.base_offset)
        # Looked at behind the reading: a segment is pinned before its files are exchanged.
        may_be_of_another = self.pinned and not replacing
        if index is None or index.positions[-1] >= size or may_be_of_another:
            return self.rebuilt_index(size)
        position, max_timestamp = index.before_position(size)
        for _, header in self.walk(position, size, wait=True):
            max_timestamp = max(max_timestamp, header.max_timestamp)
        return index, max_timestamp

    def rebuilt_index(self, size: int) -> tuple[SegmentIndex, int]:
        """The same from the log alone. Blocks."""
        index = SegmentIndex(self.base_offset)
        max_timestamp = NO_TIMESTAMP
        next_entry_at = 0
        for at, header in self.walk(0, size, wait=True):
            max_timestamp = max(max_timestamp, header.max_timestamp)
            if at >= next_entry_at:
                index.add(header.base_offset, at, max_timestamp)
                next_entry_at = at + _REBUILT_INTERVAL_BYTES
        return index, max_timestamp

    def drop_index(self) -> None:
        """Give the memory back; a sealed segment's index can be read again."""
        if self.index is not None and self.index.persisted == len(self.index) and not self.pinned:
            self.index = None

    # -- reading -------------------------------------------------------------------------------------------

    def walk(self, position: int, end: int, *, wait: bool) -> Iterator[tuple[int, BatchHeader]]:
        """Headers of the batches from `position` up to `end`; without `wait`, ColdRead instead of blocking."""
        chunk, chunk_at = b"", position
        while end - position >= HEADER_BYTES:
            if position + HEADER_BYTES > chunk_at + len(chunk):
                chunk_at = position
                chunk = self._read(position, min(_WALK_BYTES, end - position), wait=wait)
                if len(chunk) < HEADER_BYTES:
                    return
            header = header_at(chunk, position - chunk_at)
            length = header.batch_length
            if length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
                return
            yield position, header
            position += length + LOG_OVERHEAD_BYTES

    def _read(self, position: int, size: int, *, wait: bool) -> bytes:
        if wait:
            return self.file.pread(size, position)
        file = self._at_hand()
        data = file.pread_cached(size, position)
        if data is None:
            raise ColdRead(partial(file.pread, size, position))
        return data

    def locate(self, offset: int, end: int) -> int | None:
        """The position of the first batch that holds or follows `offset`, below the byte `end`."""
        known = self._ends.get(offset)
        if known is not None:
            return known if known < end else None
        entry_offset, position = self.indexed().floor(offset)
        if entry_offset == offset:
            return position if position < end else None
        for at, header in self.walk(position, end, wait=False):
            if header.base_offset + header.last_offset_delta >= offset:
                return at
        return None

    def remember_end(self, offset: int, position: int) -> None:
        """A reader got everything up to here and will ask for `offset` next: spare it the search."""
        ends = self._ends
        if offset not in ends:
            ends[offset] = position
            if len(ends) > _ENDS_KEPT:
                del ends[next(iter(ends))]

    def slice_from(self, position: int, end: int, size_max: int, *, at_least_one: bool) -> Slice | None:
        """As many whole batches as fit into `size_max`, from `position` and below `end`."""
        file = self.handle  # as `_at_hand`: the hot path
        if file is None:
            raise ColdRead(self.open)
        self.used = True
        if end - position <= size_max:
            return Slice(file, position, end - position)
        stop = self.indexed().floor_position(position + size_max)
        if stop <= position:  # batches larger than the limit, or a limit finer than the index
            stop = position
            for at, header in self.walk(position, end, wait=False):
                behind = at + header.size_bytes
                if behind - position > size_max and not (at_least_one and at == position):
                    break
                stop = behind
                if stop - position >= size_max:
                    break
        return Slice(file, position, stop - position) if stop > position else None

    def read_batch(self, position: int) -> bytes:
        """One whole batch; may wait for the disk, so call it from a thread."""
        file = self.file
        header = HEADER.unpack(file.pread(HEADER_BYTES, position))
        return file.pread(header[1] + LOG_OVERHEAD_BYTES, position)
