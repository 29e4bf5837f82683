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

from collections.abc import Generator
from contextlib import closing

from penstock.core.errors import ApiError
from penstock.records.batch import BatchHeader, Buffer
from penstock.records.filtering import Walked, emptied, walk, without
from penstock.records.reader import payload_of
from penstock.storage.compaction.clean_job import CleanedSegment, CleanJob, Learned
from penstock.storage.compaction.cleanable import SizedSegment, group_segments
from penstock.storage.compaction.offset_map import OffsetMap
from penstock.storage.compaction.segment_files import (
    IO_BYTES_MIN,
    CleanedWriter,
    Pace,
    read_batches,
    remove_cleaned,
)
from penstock.storage.compaction.transactions import CleanedTransactions
from penstock.storage.layout import LOG, OFFSET_INDEX, segment_name
from penstock.storage.retention import SegmentSummary
from penstock.storage.segment import DamagedSegmentError

_INDEX_ENTRY_BYTES = 8


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
        writer = CleanedWriter(self._job, base, self._pace)
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
        if needless and self._may_go(header, header.base_offset):
            self._went(header.last_offset)
            return [], False
        kept = list(walk(payload, header.record_count))
        return kept, needless and not header.has_delete_horizon

    def _kept_records(self, header: BatchHeader, payload: Buffer) -> tuple[list[Walked], bool]:
        if self._transactions.is_aborted(header):
            return [], False
        kept: list[Walked] = []
        tombstones = False
        get, base, last_mapped = self._map.get, header.base_offset, self._last_mapped
        for record in walk(payload, header.record_count):
            offset = base + record.offset_delta
            if offset <= last_mapped:
                if record.key is None or get(record.key) > offset:
                    continue
                if not record.has_value and self._may_go(header, offset):
                    self._went(offset)
                    continue
            tombstones = tombstones or not record.has_value
            kept.append(record)
        return kept, tombstones and not header.has_delete_horizon

    def _may_go(self, header: BatchHeader, offset: int) -> bool:
        """A tombstone, or a marker: past its delete horizon, and no follower is on its way to it (ADR 14)."""
        is_due = header.has_delete_horizon and self._job.now_ms >= header.base_timestamp
        return is_due and offset < self._job.tombstones_stay_from

    def _went(self, offset: int) -> None:
        self._tombstones_to = max(self._tombstones_to, offset + 1)

    # -- reading -------------------------------------------------------------------------------------------

    def _batches(
        self, summary: SegmentSummary | SizedSegment
    ) -> Generator[tuple[BatchHeader, memoryview], None, None]:
        """Every batch of a segment, checked; to be closed. What is yielded is good until the next one is asked for."""
        file = self._job.files.open(self._job.directory / segment_name(summary.base_offset, LOG))
        io_bytes = max(self._job.io_bytes, IO_BYTES_MIN)
        next_offset = summary.base_offset
        try:
            for header, batch in read_batches(file, summary.size_bytes, io_bytes, self._pace):
                # Offsets are not covered by the CRC.
                if not next_offset <= header.base_offset <= header.last_offset < summary.next_offset:
                    raise DamagedSegmentError(f"{file.path}: offset {header.base_offset} is out of order")
                self._read_bytes += header.size_bytes
                next_offset = header.next_offset
                yield header, batch
        finally:
            file.close()
