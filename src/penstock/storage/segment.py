"""One segment: a file of record batches, and where in it an offset or a time is to be found."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from penstock.core.files import File, Files
from penstock.records.batch import HEADER, HEADER_BYTES, LOG_OVERHEAD_BYTES, BatchHeader
from penstock.storage import index as index_files
from penstock.storage.index import SegmentIndex
from penstock.storage.layout import LOG, OFFSET_INDEX, TIME_INDEX, segment_name

NO_TIMESTAMP = -1
# Walking headers reads ahead this much at once: a stretch between two index entries fits as a rule.
_WALK_BYTES = 8 * 1024
_REBUILT_INTERVAL_BYTES = 4096
# How far a segment's offsets may reach, so that they fit the index's 32 bits.
RELATIVE_OFFSET_MAX = 0x7FFFFFFF


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
        "_files",
        "base_offset",
        "directory",
        "file",
        "first_timestamp",
        "index",
        "max_timestamp",
        "next_entry_at",
        "size",
    )

    def __init__(self, files: Files, directory: Path, base_offset: int, file: File, size: int) -> None:
        self._files = files
        self.directory = directory
        self.base_offset = base_offset
        self.file = file
        self.size = size
        self.index: SegmentIndex | None = None
        self.first_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        self.next_entry_at = 0  # the file size at which the next batch gets an index entry

    @classmethod
    def create(cls, files: Files, directory: Path, base_offset: int) -> "Segment":
        path = directory / segment_name(base_offset, LOG)
        file = files.open(path, create=True)
        if file.size():
            file.truncate(0)  # left over from a roll that a crash undid
        segment = cls(files, directory, base_offset, file, 0)
        segment.index = SegmentIndex()
        return segment

    @property
    def stem(self) -> Path:
        return self.directory / segment_name(self.base_offset, "")

    def paths(self) -> list[Path]:
        return [self.stem.with_name(self.stem.name + suffix) for suffix in (LOG, OFFSET_INDEX, TIME_INDEX)]

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

    def indexed(self) -> SegmentIndex:
        """The index; a sealed segment's may have to be read from its file first, which is ColdRead on the loop."""
        if self.index is None:
            raise ColdRead(self.load_index)
        return self.index

    def load_index(self) -> None:
        """Read the index (or rebuild it from the log) and with it what is known of timestamps. Blocks."""
        index = index_files.load(self._files, self.stem, self.base_offset) or SegmentIndex()
        if len(index) and index.positions[-1] >= self.size:
            index = SegmentIndex()
        position = index.positions[-1] if len(index) else 0
        self.max_timestamp = index.timestamps[-1] if len(index) else NO_TIMESTAMP
        missing = not len(index)
        next_entry_at = 0
        for at, header in self.walk(position, self.size, wait=True):
            self.max_timestamp = max(self.max_timestamp, header.max_timestamp)
            if missing and at >= next_entry_at:
                index.add(header.base_offset, at, self.max_timestamp)
                next_entry_at = at + _REBUILT_INTERVAL_BYTES
        self.index = index

    def drop_index(self) -> None:
        """Give the memory back; a sealed segment's index can be read again."""
        if self.index is not None and self.index.persisted == len(self.index):
            self.index = None

    def walk(self, position: int, end: int, *, wait: bool) -> Iterator[tuple[int, BatchHeader]]:
        """Headers of the batches from `position` up to `end`; without `wait`, ColdRead instead of blocking."""
        chunk, chunk_at = b"", position
        while end - position >= HEADER_BYTES:
            if position + HEADER_BYTES > chunk_at + len(chunk):
                chunk_at = position
                chunk = self._read(position, min(_WALK_BYTES, end - position), wait=wait)
                if len(chunk) < HEADER_BYTES:
                    return
            header = BatchHeader._make(HEADER.unpack_from(chunk, position - chunk_at))
            if header.batch_length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
                return
            yield position, header
            position += header.size_bytes

    def _read(self, position: int, size: int, *, wait: bool) -> bytes:
        if wait:
            return self.file.pread(size, position)
        data = self.file.pread_cached(size, position)
        if data is None:
            raise ColdRead(partial(self.file.pread, size, position))
        return data

    def locate(self, offset: int, end: int) -> int | None:
        """The position of the first batch that holds or follows `offset`, below the byte `end`."""
        entry_offset, position = self.indexed().floor(offset)
        if entry_offset == offset:
            return position if position < end else None
        for at, header in self.walk(position, end, wait=False):
            if header.base_offset + header.last_offset_delta >= offset:
                return at
        return None

    def slice_from(self, position: int, end: int, size_max: int, *, at_least_one: bool) -> Slice | None:
        """As many whole batches as fit into `size_max`, from `position` and below `end`."""
        if end - position <= size_max:
            return Slice(self.file, position, end - position)
        stop = self.indexed().floor_position(position + size_max)
        if stop <= position:  # batches larger than the limit, or a limit finer than the index
            stop = position
            for at, header in self.walk(position, end, wait=False):
                if at + header.size_bytes - position > size_max and not (at_least_one and at == position):
                    break
                stop = at + header.size_bytes
                if stop - position >= size_max:
                    break
        return Slice(self.file, position, stop - position) if stop > position else None

    def read_batch(self, position: int) -> bytes:
        """One whole batch; may wait for the disk, so call it from a thread."""
        header = HEADER.unpack(self.file.pread(HEADER_BYTES, position))
        return self.file.pread(header[1] + LOG_OVERHEAD_BYTES, position)
