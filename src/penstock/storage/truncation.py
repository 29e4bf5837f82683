"""Cutting the end off a log: what a follower does with records that its new leader never had.

The order makes a power cut at any moment harmless. First the recovery point is lowered to the new end, because it may
vouch for nothing that goes; only then do bytes and names go. Until the job is done a restart may still find some of
what was to be cut, in one piece; the epochs tell its leader so again.

Bytes that somebody could read are never written over: an answer may wait in its socket, as a place in a file, until
long after the cut, and would be sent as whatever stands there by then. So a file that was cut does not grow any more.
The log goes on in a new one, and of the old one such an answer gets what it was promised, or its end.
"""

from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

from penstock.core.errors import DiskError, StorageError
from penstock.core.files import File, Files
from penstock.core.formats import NewerFormatError
from penstock.records.batch import BatchHeader
from penstock.storage.aborted_transactions import cut_file_from
from penstock.storage.checkpoint import LogEnd, RecoveryPoint, epochs_below
from penstock.storage.compaction.checkpoint import Cleaned, save_cleaned
from penstock.storage.epochs import UNKNOWN_EPOCH, EpochHistory
from penstock.storage.index import SegmentIndex
from penstock.storage.layout import (
    EPOCHS_FILE,
    GAP,
    RECOVERY_POINT_FILE,
    SNAPSHOT,
    START,
    parse_range_name,
    parse_segment_name,
    segment_name,
)
from penstock.storage.producer_copy import ProducerCopy, ProducerRow
from penstock.storage.producer_snapshot import dump_state, load_producers
from penstock.storage.producers import ProducerState
from penstock.storage.segment import DamagedSegmentError, Segment


class Truncation:
    """A job for a thread; `Log.truncated` takes its results over."""

    __slots__ = (
        "_cleaned_in_doubt",
        "_directory",
        "_epochs",
        "_files",
        "_gone",
        "_next_base",
        "_offset",
        "_point_in_doubt",
        "_unsynced",
        "changed",
        "cleaned",
        "end",
        "index",
        "kept",
        "known",
        "last",
        "max_timestamp",
        "point",
        "producers",
    )

    def __init__(
        self,
        files: Files,
        directory: Path,
        segments: list[Segment],
        offset: int,
        point: RecoveryPoint | None,
        point_in_doubt: bool,
        cleaned: Cleaned,
        cleaned_in_doubt: bool,
        epochs: EpochHistory,
        unsynced: list[File],
    ) -> None:
        self._files = files
        self._directory = directory
        self._offset = offset
        self._unsynced = unsynced
        self.changed = False  # whether anything is: if not, a shortage does no harm
        self.known: list[ProducerRow] = []  # what producers have done by now
        self._epochs = epochs
        self.point = point
        self._point_in_doubt = point_in_doubt  # whether a later one than that may stand on the disk
        self.cleaned = cleaned
        self._cleaned_in_doubt = cleaned_in_doubt
        keep = bisect_right([segment.base_offset for segment in segments], offset)
        self.kept, self._gone = segments[:keep], segments[keep:]
        # Where the new end lies; None: in a file made for it.
        self.last = self.kept[-1] if self.kept else None
        # Where the next segment begins: as far as a scan from the recovery point comes. Right behind the last batch
        # that stays; or at the end, which may lie behind a gap, where the point says so.
        self._next_base = offset
        self.end = LogEnd(offset, offset, 0)
        self.index = SegmentIndex(offset)
        self.max_timestamp = -1
        self.producers = ProducerState()

    def run(self) -> None:
        """DamagedSegmentError: where the new end lies cannot be told, and nothing has changed."""
        self._find_end()
        # Retention and compaction may have taken what they wrote, and a cut that goes deep all snapshots before it.
        self.producers.recall(map(ProducerCopy.of, self.known), self.end.offset)
        self.changed = True
        self._lower_recovery_point()
        self._lower_cleaned()
        self._cut()
        self._lower_start()

    def _find_end(self) -> None:
        last = self.last
        if last is None:  # it ends before it begins: an empty log, made new when the old one is gone
            return
        # A copy: readers below the cut go on using the index in memory until the loop takes this one over.
        self.index = last.index_up_to(last.size)[0] if last.index is None else last.index.copy()
        _, position = self.index.floor(self._offset)
        first_gone = None
        for at, header in _batches(last, position, last.size):
            position = at
            if header.last_offset >= self._offset:
                first_gone = header
                break
            position = at + header.size_bytes
        end_offset = min(self._offset, first_gone.base_offset) if first_gone else self._offset
        self.index.truncate(position)
        indexed_to, self.max_timestamp = self.index.before_position(position)
        for _, header in _batches(last, indexed_to, position):
            self.max_timestamp = max(self.max_timestamp, header.max_timestamp)
            self._next_base = header.next_offset
        self.end = LogEnd(end_offset, last.base_offset, position)
        self.producers = self._producers_at_end()

    def _producers_at_end(self) -> ProducerState:
        """From the best snapshot at or below the new end, and the headers behind it."""
        state, known_to = self._best_snapshot()
        for number, segment in enumerate(self.kept):
            is_last = segment is self.kept[-1]
            if not is_last and self.kept[number + 1].base_offset <= known_to:
                continue
            for at, header in _batches(segment, 0, self.end.position if is_last else segment.size):
                if header.base_offset >= known_to and header.producer_id >= 0:
                    batch = segment.file.pread(header.size_bytes, at) if header.is_control else None
                    state.record(header, header.base_offset, batch)
        return state

    def _best_snapshot(self) -> tuple[ProducerState, int]:
        offsets = (parse_segment_name(name, SNAPSHOT) for name in self._files.list_dir(self._directory))
        for offset in sorted((o for o in offsets if o is not None and o <= self.end.offset), reverse=True):
            try:
                state = load_producers(self._files.read(self._directory / segment_name(offset, SNAPSHOT)))
            except (DiskError, NewerFormatError):
                raise
            except (StorageError, FileNotFoundError):
                continue
            if offset < self.kept[0].base_offset:
                # Producers may have written more before the log begins, and would be refused for ever. Transactions
                # that were open have ended since, or go on behind it.
                state.transactions.forget_open()
                state.forget_clients()
            return state, offset
        return ProducerState(), -1

    def _lower_recovery_point(self) -> None:
        if self.last is None:
            self.kept = [Segment.create(self._files, self._directory, self.end.offset)]
            self._files.sync_dir(self._directory)  # the point names it
        # Without a segment that stays it names one that a gap took, and the name that leads over that goes, too.
        if self.point is None or (self.point.offset <= self.end.offset and self.last is not None):
            if self._point_in_doubt:
                self._bring_back(self.point)
            if self.point is not None:
                # It may stand in a gap itself, behind all batches that stay.
                self._next_base = max(self._next_base, self.point.offset)
            return
        self._next_base = self.end.offset
        producers = self.producers.copy()
        if producers:
            path = self._directory / segment_name(self.end.offset, SNAPSHOT)
            self._files.write_atomically(path, dump_state(self.producers))
        sealed = self.point.sealed
        if self.last is None:
            # The point moves on within a gap: no checkpoint may have written yet which epochs began there.
            self._files.write_atomically(self._directory / EPOCHS_FILE, self._epochs.dump())
            sealed = None if sealed is None else ()
        # The epoch file may stay ahead of the point: a restart forgets the epochs behind it. It keeps the last one that
        # began before the cut, also where no batch of it is left.
        self.point = self.point._replace(
            start_offset=min(self.point.start_offset, self.end.offset),
            offset=self.end.offset,
            segment=self.end.segment,
            position=self.end.position,
            index_entries=len(self.index),
            max_timestamp=self.max_timestamp,
            producers=len(producers),
            epoch=self._epoch_before_end(self.point),
            sealed=sealed,
        )
        self._files.write_atomically(self._directory / RECOVERY_POINT_FILE, self.point.dump())

    def _bring_back(self, point: RecoveryPoint | None) -> None:
        """A checkpoint ran short of something behind its point: that vouches for what goes, and this one holds."""
        path = self._directory / RECOVERY_POINT_FILE
        if point is not None:
            self._files.write_atomically(path, point.dump())
        else:
            self._files.unlink(path)
            self._files.sync_dir(self._directory)

    def _epoch_before_end(self, point: RecoveryPoint) -> int:
        """By the file, where memory no longer knows: a restart may find an earlier start than the one here."""
        known = self._epochs.epoch_at(self.end.offset - 1)
        if known != UNKNOWN_EPOCH or point.epoch == UNKNOWN_EPOCH or self.last is None:
            return known
        try:
            return epochs_below(self._files, self._directory, point).epoch_at(self.end.offset - 1)
        except (DiskError, NewerFormatError):
            raise
        except (StorageError, FileNotFoundError):
            return known

    def _lower_start(self) -> None:
        """Cut to before its start, the log is empty, as a restart takes it that finds a start behind the end.

        So the mark goes when the records have gone: with a lower one a restart would show those that were deleted.
        """
        starts = self._names_behind_end(START)
        if starts:
            lowered = self._directory / segment_name(self.end.offset, START)
            self._files.rename(self._directory / starts[0], lowered)
            for name in starts[1:]:
                self._files.unlink(self._directory / name)
            self._files.sync_dir(self._directory)

    def _lower_cleaned(self) -> None:
        """What takes the place of the end has not been compacted."""
        left = self.cleaned.cut(self.end.offset)
        if left != self.cleaned or self._cleaned_in_doubt:
            save_cleaned(self._files, self._directory, left)
            self.cleaned = left

    def _names_behind_end(self, suffix: str) -> list[str]:
        return [
            name
            for name in self._files.list_dir(self._directory)
            if (offset := parse_segment_name(name, suffix)) is not None and offset > self.end.offset
        ]

    def _cut(self) -> None:
        for name in self._names_behind_end(SNAPSHOT):
            self._files.unlink(self._directory / name)
        for name in self._files.list_dir(self._directory):
            if (gap := parse_range_name(name, GAP)) is not None and gap[1] > self.end.offset:
                self._files.unlink(self._directory / name)
        for segment in reversed(self._gone):
            segment.shut()
            for path in segment.paths():
                self._files.unlink(path)
        last = self.last
        if last is not None:
            cut_file_from(self._files, self._directory, last.base_offset, self.end.offset)
        if last is not None and last.file.size() > self.end.position:
            self._cut_last(last)
        elif (
            self.end.position and self._gone
        ):  # which it may have begun when this one was cut, in the same gap
            self.kept.append(Segment.create(self._files, self._directory, self._next_base))
        for file in (*self._unsynced, self.kept[-1].file):
            file.sync()
        self._files.sync_dir(self._directory)

    def _cut_last(self, last: Segment) -> None:
        if self.end.position:
            file = last.file
            file.truncate(self.end.position)
            file.sync()
            self.kept.append(Segment.create(self._files, self._directory, self._next_base))
            return
        self.kept[-1] = last.emptied()  # nothing of it stays but its name
        self.last = None


def _batches(segment: Segment, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """As `walk`, but all of them: where a damaged one ends the walk early, what lies behind it is not gone."""
    next_offset = segment.base_offset
    for at, header in segment.walk(position, end, wait=True):
        if header.base_offset < next_offset or header.last_offset < header.base_offset:
            break
        yield at, header
        position, next_offset = at + header.size_bytes, header.next_offset
    if position != end:
        raise DamagedSegmentError(f"{segment.paths()[0]}: no whole batch at byte {position}")
