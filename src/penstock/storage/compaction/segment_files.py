"""Segments as compaction reads and writes them: from end to end, in large pieces, at a pace that others can bear."""

from collections.abc import Callable, Iterator
from pathlib import Path

from penstock.core.errors import ApiError
from penstock.core.files import File, Files
from penstock.records.batch import HEADER, HEADER_BYTES, LOG_OVERHEAD_BYTES, BatchHeader, check_batch
from penstock.storage import index as index_files
from penstock.storage.compaction.clean_job import CleanJob
from penstock.storage.index import SegmentIndex
from penstock.storage.layout import CLEANED, LOG, segment_name
from penstock.storage.segment import DamagedSegmentError

# What is written goes to the disk in pieces of this size: a gigabyte at once would make every producer's sync wait.
_SYNC_EVERY_BYTES = 256 * 1024
# A buffer smaller than this would cost more in calls than it saves.
IO_BYTES_MIN = 64 * 1024

# Told of bytes read and written; it may wait.
Pace = Callable[[int], None]


def read_batches(
    file: File, size_bytes: int, io_bytes: int, pace: Pace
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Every batch, in order, with its CRC checked."""
    position = 0
    while position < size_bytes:
        chunk = memoryview(file.pread(min(io_bytes, size_bytes - position), position))
        at = 0
        while len(chunk) - at >= HEADER_BYTES:
            length = BatchHeader._make(HEADER.unpack_from(chunk, at)).batch_length + LOG_OVERHEAD_BYTES
            if length > len(chunk) - at:
                break
            yield _checked(file.path, position + at, chunk[at : at + length])
            at += length
        if not at:  # a batch larger than the buffer
            whole = memoryview(_read_whole(file, position, size_bytes))
            yield _checked(file.path, position, whole)
            at = len(whole)
        pace(at)
        position += at


def _read_whole(file: File, position: int, size_bytes: int) -> bytes:
    head = file.pread(HEADER_BYTES, position)
    if len(head) == HEADER_BYTES:
        length = BatchHeader._make(HEADER.unpack(head)).batch_length + LOG_OVERHEAD_BYTES
        if HEADER_BYTES <= length <= size_bytes - position:
            return file.pread(length, position)
    raise DamagedSegmentError(f"{file.path}: no whole batch at byte {position}")


def _checked(path: Path, position: int, batch: memoryview) -> tuple[BatchHeader, memoryview]:
    try:
        return check_batch(batch), batch
    except ApiError as error:
        raise DamagedSegmentError(f"{path}: at byte {position}: {error}") from error


class CleanedWriter:
    """The new segment and its index, under names that nobody else looks at."""

    def __init__(self, job: CleanJob, base_offset: int, pace: Pace) -> None:
        self._files = job.files
        self._stem = cleaned_stem(job.directory, base_offset)
        self._interval_bytes = job.index_interval_bytes
        self._io_bytes = max(job.io_bytes, IO_BYTES_MIN)
        self._pace = pace
        remove_cleaned(job.files, job.directory, base_offset)
        self._file = job.files.open(self._stem.with_name(self._stem.name + LOG), create=True)
        self._index = SegmentIndex(base_offset)
        self._next_entry_at = 0
        self._buffer = bytearray()
        self._synced_bytes = 0
        self.size = 0
        self.max_timestamp = -1

    def add(self, batch: memoryview | bytearray) -> None:
        header = BatchHeader._make(HEADER.unpack_from(batch))
        self.max_timestamp = max(self.max_timestamp, header.max_timestamp)
        if self.size >= self._next_entry_at:
            self._index.add(header.base_offset, self.size, self.max_timestamp)
            self._next_entry_at = self.size + self._interval_bytes
        self._buffer += batch
        self.size += len(batch)
        if len(self._buffer) >= self._io_bytes:
            self._flush()

    def _flush(self) -> None:
        buffer, self._buffer = self._buffer, bytearray()
        if buffer:
            self._file.pwrite(buffer, self.size - len(buffer))
            self._pace(len(buffer))
            if self.size - self._synced_bytes >= _SYNC_EVERY_BYTES:
                self._file.sync()
                self._synced_bytes = self.size

    def finish(self) -> None:
        """Durable, under its present name. The index need not be: one that is not whole is made anew."""
        self._flush()
        self._file.sync()
        if len(self._index):
            index_files.save(self._files, self._stem, self._index, durable=False)

    def close(self) -> None:
        self._file.close()


def cleaned_stem(directory: Path, base_offset: int) -> Path:
    return directory / segment_name(base_offset, CLEANED)


def remove_cleaned(files: Files, directory: Path, base_offset: int) -> None:
    stem = cleaned_stem(directory, base_offset)
    for suffix in (LOG, *index_files.SUFFIXES):
        files.unlink(stem.with_name(stem.name + suffix))
