"""Compaction of one log's sealed segments: read once to learn each key's last offset, once more to write what stays.

For a thread or a process of its own: a round opens the segments by their names, touches nothing but files of its own
(`*.cleaned.*`), and can be thrown away at any moment. `storage.compaction.swap` puts what it made in place, segment
by segment, so that no more than one needs room on the disk twice.

What stays, as in Apache Kafka. A record goes when a later one has its key, when it has no key, or when it is a
tombstone whose batch is past its delete horizon; the horizon is set by the first compaction that sees the tombstone.
Nothing goes behind the last offset that the map of keys could take in: then the log is clean up to there, and the
rest is for another round. A batch keeps its offsets and sequences; one that lost all its records goes, unless it is
the last of a living producer, or the last of the round: those say how far producer and log had come. Transactions
and their markers: see `storage.compaction.transactions`.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from math import inf
from pathlib import Path
from typing import NamedTuple

from penstock.core.errors import ApiError
from penstock.core.files import File, Files
from penstock.records.batch import HEADER, HEADER_BYTES, LOG_OVERHEAD_BYTES, BatchHeader, Buffer, check_batch
from penstock.records.filtering import Walked, emptied, walk, without
from penstock.records.reader import payload_of
from penstock.storage import index as index_files
from penstock.storage.compaction.cleanable import SizedSegment, group_segments
from penstock.storage.compaction.offset_map import OffsetMap
from penstock.storage.compaction.transactions import AbortedTransaction, CleanedTransactions
from penstock.storage.index import SegmentIndex
from penstock.storage.layout import CLEANED, LOG, OFFSET_INDEX, segment_name
from penstock.storage.retention import SegmentSummary
from penstock.storage.segment import DamagedSegmentError

_INDEX_ENTRY_BYTES = 8
# What is written goes to the disk in pieces of this size: a gigabyte at once would make every producer's sync wait.
_SYNC_EVERY_BYTES = 256 * 1024
# A buffer smaller than this would cost more in calls than it saves.
_IO_BYTES_MIN = 64 * 1024

Pace = Callable[[int], None]


class CleanedSegment(NamedTuple):
    """What takes the place of the segments from `base_offset` up to `end_offset`, which is excluded."""

    base_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp: int
    changed: bool  # False: it would be the same as before, and was not kept
    read_bytes: int
    tombstones_to: int  # behind the last tombstone that is left out


class Learned(NamedTuple):
    end_offset: int  # up to here the log is clean when the round is done
    complete: bool  # False: the keys did not fit, and what is left needs another round
    keys: int
    read_bytes: int


class CleanJob(NamedTuple):
    """Everything a round needs to know: picklable, so that another process can run it."""

    files: Files
    directory: Path
    segments: list[SegmentSummary]  # from the log's first on
    first_dirty: int
    now_ms: int
    delete_retention_ms: int
    producers: dict[int, int]  # the last offset of each living producer
    memory_bytes: int
    load_factor: float
    io_bytes: int
    segment_bytes: int
    index_interval_bytes: int
    index_bytes_max: int
    aborted: tuple[AbortedTransaction, ...] = ()
    bytes_per_second_max: float = inf  # for whoever paces it
    tombstones_stay_from: float = inf  # a follower is on its way to them


def _at_full_speed(size_bytes: int) -> None:
    pass


class CleanRound:
    """`learn` once, then `rewrite_next` until it has nothing more; each blocks."""

    def __init__(self, job: CleanJob, pace: Pace | None = None) -> None:
        """`pace` is told of bytes read and written, and may wait."""
        self._job = job
        self._pace = pace or _at_full_speed
        self._map = OffsetMap(job.memory_bytes, job.load_factor)
        self._transactions = CleanedTransactions(job.aborted)
        self._last_mapped = job.first_dirty - 1
        self._groups: list[list[SizedSegment]] = []
        self._read_bytes = 0
        self._tombstones_to = 0

    def learn(self) -> Learned:
        """The last offset of every key in the dirty part, as far as the map goes."""
        try:
            complete = self._learn()
        except ApiError as error:
            raise self._damaged(error) from error
        sized = [
            self._sized(segment) for segment in self._job.segments if segment.base_offset <= self._last_mapped
        ]
        self._groups = group_segments(sized, self._job.segment_bytes, self._job.index_bytes_max)
        self._groups.reverse()
        return Learned(self._last_mapped + 1, complete, self._map.count, self._read_bytes)

    def rewrite_next(self) -> CleanedSegment | None:
        """The next segment of the compacted log, oldest first."""
        try:
            return self._rewrite(self._groups.pop()) if self._groups else None
        except ApiError as error:
            raise self._damaged(error) from error

    def _damaged(self, error: ApiError) -> DamagedSegmentError:
        """A batch with the right CRC around records that are none."""
        return DamagedSegmentError(f"{self._job.directory}: {error}")

    def close(self) -> None:
        """Nothing to give back; those in other processes have."""

    def _sized(self, summary: SegmentSummary) -> SizedSegment:
        try:
            index_bytes = self._job.files.size(
                self._job.directory / segment_name(summary.base_offset, OFFSET_INDEX)
            )
        except FileNotFoundError:
            index_bytes = summary.size_bytes // max(self._job.index_interval_bytes, 1) * _INDEX_ENTRY_BYTES
        return SizedSegment(summary.base_offset, summary.next_offset, summary.size_bytes, index_bytes)

    # -- the first reading ---------------------------------------------------------------------------------

    def _learn(self) -> bool:
        """The last offset of every key in the dirty part; False when not all of it went into the map."""
        for segment in self._job.segments:
            if segment.next_offset <= self._job.first_dirty:
                continue
            with closing(self._batches(segment)) as batches:
                for header, batch in batches:
                    if header.last_offset >= self._job.first_dirty and not self._learn_batch(header, batch):
                        return False
            self._last_mapped = segment.next_offset - 1
        return True

    def _learn_batch(self, header: BatchHeader, batch: memoryview) -> bool:
        if header.record_count and not (header.is_control or self._transactions.is_aborted(header)):
            put, base, first_dirty = self._map.put, header.base_offset, self._job.first_dirty
            for record in walk(payload_of(batch, 0, header), header.record_count):
                offset = base + record.offset_delta
                if record.key is not None and offset >= first_dirty and not put(record.key, offset):
                    self._last_mapped = offset - 1
                    return False
        self._last_mapped = header.last_offset
        return True

    # -- the second ----------------------------------------------------------------------------------------

    def _rewrite(self, group: list[SizedSegment]) -> CleanedSegment:
        base = group[0].base_offset
        read_before = self._read_bytes
        writer = _Writer(self._job, base, self._pace)
        changed = len(group) > 1
        try:
            for segment in group:
                with closing(self._batches(segment)) as batches:
                    for header, batch in batches:
                        anew = self._filtered(header, batch)
                        if anew is not None:
                            writer.add(anew)
                        changed = changed or anew is not batch
            if changed:
                writer.finish()
        finally:
            writer.close()
        if not changed:
            remove_cleaned(self._job.files, self._job.directory, base)
        read_bytes = self._read_bytes - read_before
        return CleanedSegment(
            base,
            group[-1].next_offset,
            writer.size,
            writer.max_timestamp,
            changed,
            read_bytes,
            self._tombstones_to,
        )

    def _filtered(self, header: BatchHeader, batch: memoryview) -> memoryview | bytearray | None:
        """The batch itself, or what stays of it; None when nothing does."""
        payload = payload_of(batch, 0, header) if header.record_count else b""
        if header.is_control:
            kept, marks = self._kept_markers(header, payload)
        else:
            self._transactions.saw_records(header)
            kept, marks = self._kept_records(header, payload)
        if not kept:
            is_last = header.last_offset == self._last_mapped or (
                header.producer_id >= 0 and self._job.producers.get(header.producer_id) == header.last_offset
            )
            if not is_last:
                return None
            return emptied(header) if header.record_count else batch
        if len(kept) == header.record_count and not marks:
            return batch
        horizon = self._job.now_ms + self._job.delete_retention_ms if marks else None
        return without(header, payload, kept, horizon)

    def _kept_markers(self, header: BatchHeader, payload: Buffer) -> tuple[list[Walked], bool]:
        """The records that stay, and whether they are to be given a delete horizon."""
        needless = self._transactions.is_marker_of_nothing(header)
        if needless and header.has_delete_horizon and self._job.now_ms >= header.base_timestamp:
            return [], False
        kept = list(walk(payload, header.record_count))
        return kept, needless and not header.has_delete_horizon

    def _kept_records(self, header: BatchHeader, payload: Buffer) -> tuple[list[Walked], bool]:
        if self._transactions.is_aborted(header):
            return [], False
        kept: list[Walked] = []
        tombstones = False
        get, base, last_mapped = self._map.get, header.base_offset, self._last_mapped
        tombstones_stay = not header.has_delete_horizon or self._job.now_ms < header.base_timestamp
        for record in walk(payload, header.record_count):
            offset = base + record.offset_delta
            if offset <= last_mapped:
                if record.key is None or get(record.key) > offset:
                    continue
                if not record.has_value and not tombstones_stay and offset < self._job.tombstones_stay_from:
                    self._tombstones_to = max(self._tombstones_to, offset + 1)
                    continue
            tombstones = tombstones or not record.has_value
            kept.append(record)
        return kept, tombstones and not header.has_delete_horizon

    # -- reading -------------------------------------------------------------------------------------------

    def _batches(
        self, summary: SegmentSummary | SizedSegment
    ) -> Generator[tuple[BatchHeader, memoryview], None, None]:
        """Every batch of a segment, checked; to be closed. What is yielded is good until the next one is asked for."""
        file = self._job.files.open(self._job.directory / segment_name(summary.base_offset, LOG))
        io_bytes = max(self._job.io_bytes, _IO_BYTES_MIN)
        next_offset = summary.base_offset
        try:
            for header, batch in _read_batches(file, summary.size_bytes, io_bytes, self._pace):
                # Offsets are not covered by the CRC.
                if not next_offset <= header.base_offset <= header.last_offset < summary.next_offset:
                    raise DamagedSegmentError(f"{file.path}: offset {header.base_offset} is out of order")
                self._read_bytes += header.size_bytes
                next_offset = header.next_offset
                yield header, batch
        finally:
            file.close()


def _read_batches(
    file: File, size_bytes: int, io_bytes: int, pace: Pace
) -> Iterator[tuple[BatchHeader, memoryview]]:
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


class _Writer:
    """The new segment and its index, under names that nobody else looks at."""

    def __init__(self, job: CleanJob, base_offset: int, pace: Pace) -> None:
        self._files = job.files
        self._stem = cleaned_stem(job.directory, base_offset)
        self._interval_bytes = job.index_interval_bytes
        self._io_bytes = max(job.io_bytes, _IO_BYTES_MIN)
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
