"""The walk over a log that is opened, from the recovery point to its end: see `storage.recovery`."""

import logging
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from penstock.core.errors import ApiError, DiskError, StorageError
from penstock.core.files import Files
from penstock.core.formats import NewerFormatError
from penstock.records.batch import BatchHeader, check_batch
from penstock.storage import index as index_files
from penstock.storage.aborted_transactions import (
    AbortedTransaction,
    AbortedTransactions,
    UnsavedTransactions,
)
from penstock.storage.aborted_transactions import load as load_aborted
from penstock.storage.checkpoint import RecoveryPoint, epochs_below
from penstock.storage.epochs import EpochHistory
from penstock.storage.index import SegmentIndex
from penstock.storage.layout import EPOCHS_FILE, SNAPSHOT, segment_name
from penstock.storage.log import SCAN_COST_PER_BATCH
from penstock.storage.names import DirectoryNames
from penstock.storage.open_transactions import rebuilt_aborted
from penstock.storage.producer_snapshot import load_producers
from penstock.storage.producers import ProducerState
from penstock.storage.segment import Segment
from penstock.storage.settings import LogSettings

logger = logging.getLogger(__name__)

_SCAN_BYTES = 4 * 1024 * 1024


class Scan:
    """The walk from the recovery point to the end, gathering what the log needs in memory."""

    def __init__(
        self,
        files: Files,
        directory: Path,
        settings: LogSettings,
        segments: list[Segment],
        point: RecoveryPoint | None,
        names: DirectoryNames,
        *,
        may_skip: bool,
    ) -> None:
        self.files = files
        self.directory = directory
        self.settings = settings
        self._may_skip = may_skip
        self._gaps = dict(names.gaps)
        self.segments = segments
        self.scanned_bytes = 0
        self.cut_bytes = 0
        self.cost = 0
        self.set_aside: list[str] = []
        self.point = point
        self.epochs = EpochHistory()
        self.producers = ProducerState()
        self.aborted = AbortedTransactions(files, directory)
        self.lacks_state = False  # which no scan brings back: of records that went, nothing else tells
        self._first = self._segment_of(point) if point is not None else None
        if self._first is None:
            self.point = None  # what it vouches for is not there: look at everything
        elif point is not None:
            try:
                self._trust(point)
            except (DiskError, NewerFormatError):
                raise  # not now
            except (FileNotFoundError, StorageError) as error:
                gone = "%s: what producers did, or where leader epochs began, is gone: %s"
                logger.error(gone, self.directory, error)  # noqa: TRY400 - no trace is needed
                self.point, self.lacks_state = None, True
                self.epochs = EpochHistory()
        self._know_aborted(names.aborted)
        self.end_offset = self.point.offset if self.point else segments[0].base_offset
        self.batches_end = self.end_offset  # gaps behind the last batch left out
        self._starts: list[tuple[int, int]] | None = [] if names.is_foreign else None  # None: not read yet

    def _segment_of(self, point: RecoveryPoint) -> Segment | None:
        """Where it lies. The empty one that it names may have gone by right: its offsets did not reach so far."""
        by_base = {segment.base_offset: segment for segment in self.segments}
        base = point.segment
        while base not in by_base and not point.position and base in self._gaps:
            base = self._gaps[base]
        found = by_base.get(base)
        return found if found is not None and found.size >= point.position else None

    def _trust(self, point: RecoveryPoint) -> None:
        if point.epoch >= 0:
            # What lies behind the point, the scan finds out by itself.
            self.epochs = epochs_below(self.files, self.directory, point)
        if point.producers:
            path = self.directory / segment_name(point.offset, SNAPSHOT)
            self.producers = load_producers(self.files.read(path))

    def _know_aborted(self, bases: Iterable[int]) -> None:
        """As the point vouches for them; what lies behind it, the scan finds out by itself."""
        point_base = -1 if self.point is None or self._first is None else self._first.base_offset
        kept = {segment.base_offset for segment in self.segments}
        for base in sorted(kept.intersection(bases)):
            if base < point_base:
                self.aborted.found(base)
                continue
            known: list[AbortedTransaction] = []
            if base == point_base and self.point is not None:
                saved = load_aborted(self.files, self.directory, base)
                if (
                    saved is None
                ):  # at once: without it the next start would take the segment for one that has none
                    saved = rebuilt_aborted(self.segments, base)
                    UnsavedTransactions(base, saved, 0).save(self.files, self.directory, durable=True)
                known = [each for each in saved if each.last_offset < self.point.offset]
            self.aborted.take_over(base, known)

    def run(self, start: int, *, rewrite_tail: bool, names_last: bool) -> None:
        position = first = 0
        if self.point is not None and self._first is not None:
            first, position = self.segments.index(self._first), self.point.position
        kept = self.segments[:first]
        whole = True
        for segment in self.segments[first:]:
            if not whole or not self._follows(segment, position):
                self._drop(segment)
                continue
            self.end_offset = max(self.end_offset, segment.base_offset)
            had_records = segment.size > 0
            whole = self._scan_segment(segment, position, rewrite=rewrite_tail)
            position = 0
            if had_records and self._is_of_no_use(segment, start):
                remove(self.files, segment)
                whole = True
            else:
                kept.append(segment)
        if rewrite_tail and not whole:
            self._go_on_in_another_file(kept)
        self.segments = kept
        if self.scanned_bytes or len(kept) > first + 1 or not names_last:
            # What a killed process left in the page cache is about to be served: make it durable first. Also where
            # nothing was scanned: one killed in the midst of a cut leaves a file that ends at the point, and nobody
            # would sync that again if the next batch began another. Given up records would come back behind it.
            for segment in kept[first:]:
                segment.file.sync()
            # That goes for names, too: what is written to files that are known to nobody but the page cache would go
            # with their names.
            self.files.sync_dir(self.directory)

    def _is_of_no_use(self, segment: Segment, start: int) -> bool:
        """Whether the log starts behind its end, where nothing can be trusted: torn or not, others lie behind it."""
        return self.point is None and self.end_offset < start and segment is not self.segments[-1]

    def _go_on_in_another_file(self, kept: list[Segment]) -> None:
        """Of the one that was cut, answers may be on their way since before the log failed (ADR 4)."""
        cut = kept[-1]
        if cut.size:
            kept.append(Segment.create(self.files, self.directory, self.end_offset))
        else:
            kept[-1] = cut.emptied()
            cut.close()

    def _follows(self, segment: Segment, position: int) -> bool:
        if position or segment.base_offset == self.end_offset:
            return True
        if self.point is not None and segment is self._first:
            return True  # empty up to the point, which may lie behind a gap
        if self._leads_over_gaps(segment.base_offset):
            return True
        return self.point is None and segment.base_offset > self.end_offset

    def _leads_over_gaps(self, offset: int) -> bool:
        """Whether names say that nothing lies between the end and there, in one wide gap or several."""
        at = self.end_offset
        while at < offset and at in self._gaps:
            at = self._gaps[at]
        return at == offset

    def _drop(self, segment: Segment) -> None:
        """A segment behind the end, or one that overlaps another.

        What a cut or a crash leaves lies behind the recovery point; anything else somebody put here.
        """
        self.scanned_bytes += segment.size
        if self.point is not None and segment.base_offset >= self.point.offset:
            self.cut_bytes += segment.size
            remove(self.files, segment)
            return
        self.set_aside.append(segment.set_aside())

    def _scan_segment(self, segment: Segment, position: int, *, rewrite: bool) -> bool:
        """Take over every good batch; False when the segment ends in anything else, which is then cut off.

        `rewrite`: what was found good is written as it was read. Read once more it might be something else: the kernel
        may drop pages that it takes for clean, and give what stands on the disk.
        """
        file_size = segment.size
        self._restore(segment, position)
        if position == file_size and not rewrite:
            return True  # and nobody opened it
        file = segment.file  # one and the same to write and sync
        self.scanned_bytes += file_size - position
        chunk = memoryview(b"")
        chunk_at = position
        while position < file_size:
            try:
                header = check_batch(chunk, position - chunk_at)
            except ApiError:
                # Not whole in this chunk, or not good at all: look again with as much as it claims to need.
                wanted = _claimed_size(segment, position, file_size)
                if position == chunk_at and len(chunk) >= wanted:
                    break
                if rewrite:
                    file.pwrite(chunk[: position - chunk_at], chunk_at)
                chunk_at = position
                chunk = memoryview(file.pread(max(wanted, _SCAN_BYTES), position))
                if len(chunk) < wanted:
                    break
                continue
            if header.base_offset != self.end_offset and not self._may_skip_to(header.base_offset):
                break
            self._take_over(segment, header, chunk, position - chunk_at)
            position += header.size_bytes
        self.cut_bytes += file_size - position
        if rewrite:
            file.pwrite(chunk[: position - chunk_at], chunk_at)
            file.truncate(position)  # that, too, may have failed to reach the disk before
            file.sync()
        elif position < file_size:
            file.truncate(position)
        return position == file_size

    def _may_skip_to(self, offset: int) -> bool:
        """In a follower's log, gaps that compaction made at its leader; anywhere, when nothing can be trusted."""
        return offset > self.end_offset and (self.point is None or self._may_skip)

    def know_epochs(self, known: EpochHistory | None) -> None:
        """Also those of records that are lost; None: nothing is."""
        if known is not None:
            for epoch, start in self.epochs.entries():
                known.assign(epoch, start)
            self.epochs = known

    def leave_out(self, offset: int) -> None:
        """What would come below it is gone, and others know its offsets: archives, groups, relays, clients."""
        if self.end_offset < offset:  # else a start before this one came so far
            if self.segments[-1].size:
                # An empty one in the hole, as in any other (`holes`). Nothing is written to it: the file that is lost
                # may be put back there.
                self.segments.append(Segment.create(self.files, self.directory, self.end_offset))
            self.segments.append(Segment.create(self.files, self.directory, offset))
            self.end_offset = offset
        # As where nothing is left: producers have written more than is known of them.
        self.producers.forget_clients()

    def _restore(self, segment: Segment, position: int) -> None:
        """The segment as it was at the recovery point, or empty."""
        index, max_timestamp = SegmentIndex(segment.base_offset), -1
        if position and self.point is not None:
            index, max_timestamp = self._saved_index(segment, self.point)
        segment.restore(index, position, max_timestamp, self.settings.index_interval_bytes)

    def _saved_index(self, segment: Segment, point: RecoveryPoint) -> tuple[SegmentIndex, int]:
        index = index_files.load(self.files, segment.stem, segment.base_offset, point.index_entries)
        if index is not None and index.positions[-1] < point.position:
            return index, point.max_timestamp
        return segment.rebuilt_index(point.position)

    def _take_over(self, segment: Segment, header: BatchHeader, chunk: memoryview, at: int) -> None:
        segment.appended(header, header.base_offset, header.size_bytes, self.settings.index_interval_bytes)
        self._note_epoch(header.leader_epoch, range(self.batches_end, header.base_offset))
        if header.producer_id >= 0:
            batch = chunk[at : at + header.size_bytes] if header.is_control else None
            aborted = self.producers.record(header, header.base_offset, batch)
            if aborted is not None:
                self.aborted.add(segment.base_offset, aborted)
        self.end_offset = self.batches_end = header.next_offset
        self.cost += header.size_bytes + SCAN_COST_PER_BATCH

    def _note_epoch(self, epoch: int, gap: range) -> None:
        if epoch < 0 or epoch == self.epochs.latest:
            return
        # One that a leader noted and wrote nothing under, before it followed another: later ones are not before this.
        self.epochs.forget_after(epoch)
        if not gap or not self.epochs.cross_gap(self._noted_starts(), epoch, gap):
            self.epochs.assign(epoch, gap.stop)

    def _noted_starts(self) -> list[tuple[int, int]]:
        """By the epoch file, also where it is ahead of the point, or there is no point.

        StorageError when it cannot be read just now: nothing else tells, and the log is opened later.
        """
        if self._starts is None:
            self._starts = []
            with suppress(FileNotFoundError):
                data = self.files.read(self.directory / EPOCHS_FILE)
                try:
                    self._starts = EpochHistory.parse(data).entries()
                except NewerFormatError:
                    raise
                except StorageError:
                    pass
        return self._starts


def _claimed_size(segment: Segment, position: int, end: int) -> int:
    for _, header in segment.walk(position, end, wait=True):
        return header.size_bytes
    return end - position + 1  # not even a header: more than there is


def remove(files: Files, segment: Segment) -> None:
    segment.close()
    for path in segment.paths():
        files.unlink(path)
