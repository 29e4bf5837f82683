"""Opening a log: trust what the recovery point vouches for, check every batch behind it, cut the torn tail.

After a clean shutdown the recovery point is the end of the log and there is nothing to scan. After a crash the scan
covers what was written since the last checkpoint. Where no recovery point can be read, or the files are shorter than
it says, the whole log is scanned. All of it blocks, so it runs before the broker serves, or in a thread.
"""

from pathlib import Path
from typing import NamedTuple

from penstock.core.errors import ApiError, StorageError
from penstock.core.files import Files
from penstock.records.batch import BatchHeader, check_batch
from penstock.storage import index as index_files
from penstock.storage.checkpoint import RecoveryPoint
from penstock.storage.epochs import EpochHistory
from penstock.storage.index import SegmentIndex
from penstock.storage.layout import (
    DELETED,
    EPOCHS_FILE,
    LOG,
    RECOVERY_POINT_FILE,
    SNAPSHOT,
    parse_segment_name,
    segment_name,
)
from penstock.storage.log import Log, LogSettings
from penstock.storage.producers import ProducerState
from penstock.storage.segment import Segment

_SCAN_BYTES = 4 * 1024 * 1024


class Recovered(NamedTuple):
    log: Log
    scanned_bytes: int
    cut_bytes: int  # torn or never completed: nothing of it was ever acknowledged as synced


def open_log(files: Files, directory: Path, settings: LogSettings) -> Recovered:
    names = files.list_dir(directory)
    for name in names:
        if name.endswith((DELETED, ".tmp")):
            files.unlink(directory / name)
    bases = [base for name in names if (base := parse_segment_name(name, LOG)) is not None]
    point = _recovery_point(files, directory)
    if not bases:
        start = point.start_offset if point else 0
        segments = [Segment.create(files, directory, start)]
        files.sync_dir(directory)
    else:
        start = max(point.start_offset if point else 0, bases[0])
        segments = [_opened(files, directory, base) for base in bases]
    if point is not None and not _holds(segments, point):
        point = None
    scan = _Scan(files, directory, settings, segments, point)
    scan.run()
    log = Log(
        files,
        directory,
        settings,
        scan.segments,
        start_offset=min(start, scan.end_offset),
        end_offset=scan.end_offset,
        epochs=scan.epochs,
        producers=scan.producers,
    )
    return Recovered(log, scan.scanned_bytes, scan.cut_bytes)


def _recovery_point(files: Files, directory: Path) -> RecoveryPoint | None:
    try:
        return RecoveryPoint.parse(files.read(directory / RECOVERY_POINT_FILE))
    except (FileNotFoundError, StorageError):
        return None


def _opened(files: Files, directory: Path, base_offset: int) -> Segment:
    file = files.open(directory / segment_name(base_offset, LOG))
    return Segment(files, directory, base_offset, file, file.size())


def _holds(segments: list[Segment], point: RecoveryPoint) -> bool:
    return any(s.base_offset == point.segment and s.size >= point.position for s in segments)


class _Scan:
    """The walk from the recovery point to the end, gathering what the log needs in memory."""

    def __init__(
        self,
        files: Files,
        directory: Path,
        settings: LogSettings,
        segments: list[Segment],
        point: RecoveryPoint | None,
    ) -> None:
        self.files = files
        self.directory = directory
        self.settings = settings
        self.segments = segments
        self.point = point
        self.scanned_bytes = 0
        self.cut_bytes = 0
        self.end_offset = point.offset if point else segments[0].base_offset
        self.epochs = self._saved_epochs()
        self.producers = self._saved_producers()

    def _saved_epochs(self) -> EpochHistory:
        if self.point is not None:
            try:
                return EpochHistory.parse(self.files.read(self.directory / EPOCHS_FILE))
            except (FileNotFoundError, StorageError):
                self.point = None  # what the point vouches for is not there: look at everything
                self.end_offset = self.segments[0].base_offset
        return EpochHistory()

    def _saved_producers(self) -> ProducerState:
        if self.point is not None:
            path = self.directory / segment_name(self.point.offset, SNAPSHOT)
            try:
                return ProducerState.parse(self.files.read(path))
            except (FileNotFoundError, StorageError):
                self.point = None
                self.epochs = EpochHistory()
                self.end_offset = self.segments[0].base_offset
        return ProducerState()

    def run(self) -> None:
        first = 0
        if self.point is not None:
            first = next(i for i, s in enumerate(self.segments) if s.base_offset == self.point.segment)
        for number in range(first, len(self.segments)):
            segment = self.segments[number]
            position = self.point.position if self.point and number == first else 0
            if position == 0 and segment.base_offset < self.end_offset and number > first:
                whole = False  # overlaps its predecessor: nothing in it can be ours
            else:
                self._restore_index(segment, position)
                whole = self._scan_segment(segment, position)
            if not whole:
                self._cut(number, segment)
                break
        if self.scanned_bytes:
            # What a killed process left in the page cache is about to be served: make it durable first.
            for segment in self.segments[first:]:
                segment.file.sync()
            self.files.sync_dir(self.directory)

    def _restore_index(self, segment: Segment, position: int) -> None:
        index = None
        if position and self.point is not None:
            index = index_files.load(self.files, segment.stem, segment.base_offset, self.point.index_entries)
        if index is None and position:
            segment.size, size = position, segment.size
            segment.load_index()  # rebuilds from the headers below the recovery point
            index, segment.size = segment.index, size
        segment.index = index or SegmentIndex()
        if len(segment.index):
            segment.max_timestamp = max(
                segment.index.timestamps[-1], self.point.max_timestamp if self.point else -1
            )
            segment.first_timestamp = segment.index.timestamps[0]
            segment.next_entry_at = segment.index.positions[-1] + self.settings.index_interval_bytes

    def _scan_segment(self, segment: Segment, position: int) -> bool:
        """Take over every good batch; False when the segment ends in anything else."""
        file_size, segment.size = segment.size, position
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
                    return False
                chunk_at = position
                chunk = memoryview(segment.file.pread(max(wanted, _SCAN_BYTES), position))
                if len(chunk) < wanted:
                    return False
                continue
            if header.base_offset < self.end_offset:
                return False
            self._take_over(segment, header)
            position += header.size_bytes
        return True

    def _take_over(self, segment: Segment, header: BatchHeader) -> None:
        segment.appended(header, header.base_offset, header.size_bytes, self.settings.index_interval_bytes)
        self.epochs.assign(header.leader_epoch, header.base_offset)
        if header.producer_id >= 0:
            self.producers.record(header, header.base_offset)
        self.end_offset = header.next_offset

    def _cut(self, number: int, segment: Segment) -> None:
        """The log ends inside this segment: whatever follows was never acknowledged as durable."""
        self.cut_bytes += segment.file.size() - segment.size
        segment.file.truncate(segment.size)
        for late in self.segments[number + 1 :]:
            self.cut_bytes += late.size
            late.file.close()
            for path in late.paths():
                self.files.unlink(path)
        del self.segments[number + 1 :]


def _claimed_size(segment: Segment, position: int, end: int) -> int:
    for _, header in segment.walk(position, end, wait=True):
        return header.size_bytes
    return end - position + 1  # not even a header: more than there is
