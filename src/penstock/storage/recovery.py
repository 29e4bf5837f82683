"""Opening a log: trust what the recovery point vouches for, check every batch behind it, cut the torn tail.

After a clean shutdown the recovery point is the end of the log and there is nothing to scan. After a crash the scan
covers what was written since the last checkpoint: offsets must follow each other without a gap (but for those that
compaction makes, which followers take over from their leaders: where the topic compacts, or the cleaner's file says
that it did once), and the log ends before the first batch that is not whole. Where no recovery point can be read, or
something it vouches for is not there, the whole log is scanned; gaps are then no reason to stop, and segments that
cannot be right are set aside instead of deleted. All of it blocks, so it runs before the broker serves, or in a thread.

A bit that flips below the recovery point is not found here; readers find it, by the batch's CRC.
"""

from pathlib import Path

from penstock.core.errors import ApiError, StorageError
from penstock.core.files import Files
from penstock.records.batch import BatchHeader, check_batch
from penstock.storage import index as index_files
from penstock.storage.checkpoint import RecoveryPoint
from penstock.storage.cleaner_checkpoint import load_cleaned, save_cleaned
from penstock.storage.deletion import StartJob
from penstock.storage.epochs import UNKNOWN_EPOCH, EpochHistory
from penstock.storage.index import SegmentIndex
from penstock.storage.layout import (
    DAMAGED,
    EPOCHS_FILE,
    LOG,
    RECOVERY_POINT_FILE,
    SNAPSHOT,
    segment_name,
)
from penstock.storage.log import SCAN_COST_PER_BATCH, Log
from penstock.storage.names import DirectoryNames
from penstock.storage.producers import ProducerState, dump_producers
from penstock.storage.recovered import Recovered, held_against
from penstock.storage.segment import NO_TIMESTAMP, Segment
from penstock.storage.settings import LogSettings
from penstock.storage.swap import finish_swaps

_SCAN_BYTES = 4 * 1024 * 1024


def open_log(
    files: Files,
    directory: Path,
    settings: LogSettings,
    *,
    rewrite_tail: bool = False,
    first_offset: int = 0,
    owner: str = "",
) -> Recovered:
    """Open a log, or make a new one that begins at `first_offset`; a recovery point of another `owner` is not trusted.

    `rewrite_tail` is for a log that failed in this process: after an fsync that did not work, the kernel takes pages
    for clean that never reached the disk, so they are written once more.
    """
    finish_swaps(files, directory)
    names = DirectoryNames(files, directory)
    point = names.recovery_point(owner)
    recovered = _open(
        files, directory, settings, names, point, first_offset, owner, rewrite_tail=rewrite_tail
    )
    if names.has_cleaned:
        recovered.log.may_have_gaps = True
        _load_cleaned(recovered.log)
    return held_against(recovered, point, [first_offset, *names.starts], empty=not names.bases)


def _open(
    files: Files,
    directory: Path,
    settings: LogSettings,
    names: DirectoryNames,
    point: RecoveryPoint | None,
    first_offset: int,
    owner: str,
    *,
    rewrite_tail: bool,
) -> Recovered:
    start = max(names.starts, default=0)
    if point is not None:
        start = max(start, point.start_offset)
    if not names.bases:
        begin = max(start, point.offset if point else 0, first_offset)
        return _made_new(files, directory, settings, begin, owner)
    segments = [_opened(files, directory, base) for base in names.bases]
    unneeded = min(start, point.segment) if point else start
    while len(segments) > 1 and segments[1].base_offset <= unneeded:
        _remove(files, segments.pop(0))  # deleted before, but a power cut kept its name
    start = max(start, segments[0].base_offset)
    scan = _Scan(files, directory, settings, segments, point, may_skip=names.has_cleaned or settings.compacts)
    scan.run(rewrite_tail=rewrite_tail)
    names.drop_snapshots_behind(scan.point.offset if scan.point else -1)
    if start > scan.end_offset:
        # Readers were told that all of this is gone; offsets must not be given out a second time.
        # Producers may have written more than is known of them, and would be refused for ever.
        scan.producers.forget_clients()
        made = _made_new(files, directory, settings, start, owner, scan.producers)
        for segment in scan.segments:
            _remove(files, segment)
        return made
    scan.epochs.advance_start(start)
    log = Log(
        files,
        directory,
        settings,
        scan.segments,
        start_offset=start,
        end_offset=scan.end_offset,
        epochs=scan.epochs,
        producers=scan.producers,
        point=scan.point,
        unscanned_cost=scan.cost,
        owner=owner,
    )
    if scan.point is None:
        _replace_point(log)
    return Recovered(log, scan.scanned_bytes, scan.cut_bytes, scan.set_aside)


def begin_anew(log: Log, offset: int) -> Log:
    """An empty log that begins at `offset`, behind the end of the one in its place. Blocks."""
    StartJob(log.files, log.directory, offset).run()  # from here on a restart comes to the same
    return open_log(log.files, log.directory, log.settings, owner=log.owner).log


def _load_cleaned(log: Log) -> None:
    """Where the end was lost, the mark is lowered before anything else can take its place."""
    known = load_cleaned(log.files, log.directory, log.end_offset)
    log.cleaned = known.cut(log.end_offset)
    if log.cleaned != known:
        save_cleaned(log.files, log.directory, log.cleaned)


def _replace_point(log: Log) -> None:
    """The recovery point on disk is wrong: nobody must ever read it again."""
    job = log.sync_job(checkpoint=True)
    job.run()
    if not job.checkpointed:  # a full disk; then the next start looks at everything once more
        log.files.unlink(log.directory / RECOVERY_POINT_FILE)
        log.files.sync_dir(log.directory)
    log.synced(job)


def _made_new(
    files: Files,
    directory: Path,
    settings: LogSettings,
    start: int,
    owner: str,
    producers: ProducerState | None = None,
) -> Recovered:
    segments = [Segment.create(files, directory, start)]
    producers = producers or ProducerState()
    point = _new_point(start, owner, producers=len(known := producers.copy()))
    if known:
        files.write_atomically(directory / segment_name(start, SNAPSHOT), dump_producers(known))
    # Makes the segment's name durable, too.
    files.write_atomically(directory / RECOVERY_POINT_FILE, point.dump())
    log = Log(
        files,
        directory,
        settings,
        segments,
        start_offset=start,
        end_offset=start,
        epochs=EpochHistory(),
        producers=producers,
        point=point,
        owner=owner,
    )
    return Recovered(log, 0, 0, [])


def lay_out(files: Files, directory: Path, owner: str) -> None:
    """The files of a new, empty log, not synced: for many at once, followed by one sync of the file system."""
    files.open(directory / segment_name(0, LOG), create=True).close()
    file = files.open(directory / RECOVERY_POINT_FILE, create=True)
    file.pwrite(_new_point(0, owner).dump(), 0)
    file.close()


def _new_point(start: int, owner: str, *, producers: int = 0) -> RecoveryPoint:
    return RecoveryPoint(start, start, start, 0, 0, NO_TIMESTAMP, producers, UNKNOWN_EPOCH, owner)


def _opened(files: Files, directory: Path, base_offset: int) -> Segment:
    file = files.open(directory / segment_name(base_offset, LOG))
    return Segment(files, directory, base_offset, file, file.size())


def _remove(files: Files, segment: Segment) -> None:
    segment.file.close()
    for path in segment.paths():
        files.unlink(path)


class _Scan:
    """The walk from the recovery point to the end, gathering what the log needs in memory."""

    def __init__(
        self,
        files: Files,
        directory: Path,
        settings: LogSettings,
        segments: list[Segment],
        point: RecoveryPoint | None,
        *,
        may_skip: bool,
    ) -> None:
        self.files = files
        self.directory = directory
        self.settings = settings
        self._may_skip = may_skip
        self.segments = segments
        self.scanned_bytes = 0
        self.cut_bytes = 0
        self.cost = 0
        self.set_aside: list[str] = []
        self.point = point
        self.epochs = EpochHistory()
        self.producers = ProducerState()
        if point is not None:
            try:
                self._trust(point)
            except (FileNotFoundError, StorageError):
                self.point = None  # what it vouches for is not there: look at everything
                self.epochs = EpochHistory()
        self.end_offset = self.point.offset if self.point else segments[0].base_offset

    def _trust(self, point: RecoveryPoint) -> None:
        if not any(s.base_offset == point.segment and s.size >= point.position for s in self.segments):
            raise StorageError("the log is shorter than its recovery point")
        if point.epoch >= 0:
            self.epochs = EpochHistory.parse(self.files.read(self.directory / EPOCHS_FILE))
            # The file may be ahead: it is written before a point that is moved on, and stays behind one that is moved
            # back. What lies behind the point, the scan finds out by itself.
            self.epochs.forget_after(point.epoch)
            self.epochs.truncate_from(point.offset + 1)
        if point.producers:
            path = self.directory / segment_name(point.offset, SNAPSHOT)
            self.producers = ProducerState.parse(self.files.read(path))

    def run(self, *, rewrite_tail: bool) -> None:
        position = first = 0
        if self.point is not None:
            first = next(i for i, s in enumerate(self.segments) if s.base_offset == self.point.segment)
            position = self.point.position
        begin = position
        kept = self.segments[:first]
        whole = True
        for segment in self.segments[first:]:
            if not whole or not self._follows(segment, position):
                self._drop(segment)
                continue
            self.end_offset = max(self.end_offset, segment.base_offset)
            whole = self._scan_segment(segment, position)
            position = 0
            kept.append(segment)
        self.segments = kept
        if self.scanned_bytes or len(kept) > first + 1:
            # What a killed process left in the page cache is about to be served: make it durable first. That goes for
            # names, too: an empty segment behind the recovery point may be known to nobody but the page cache.
            for number, segment in enumerate(kept[first:]):
                if rewrite_tail:
                    _rewrite(segment, 0 if number else begin)
                segment.file.sync()
            self.files.sync_dir(self.directory)

    def _follows(self, segment: Segment, position: int) -> bool:
        if position or segment.base_offset == self.end_offset:
            return True
        if self.point is not None and segment.base_offset == self.point.segment:
            return True  # empty up to the point, which may lie behind a gap
        return self.point is None and segment.base_offset > self.end_offset

    def _drop(self, segment: Segment) -> None:
        """A segment behind the end, or one that overlaps another."""
        self.scanned_bytes += segment.size
        if self.point is not None:
            self.cut_bytes += segment.size
            _remove(self.files, segment)
            return
        segment.file.close()
        path, *indexes = segment.paths()
        self.files.rename(path, path.with_name(path.name + DAMAGED))
        self.set_aside.append(path.name + DAMAGED)
        for index in indexes:
            self.files.unlink(index)

    def _scan_segment(self, segment: Segment, position: int) -> bool:
        """Take over every good batch; False when the segment ends in anything else, which is then cut off."""
        file_size = segment.size
        self._restore(segment, position)
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
                chunk_at = position
                chunk = memoryview(segment.file.pread(max(wanted, _SCAN_BYTES), position))
                if len(chunk) < wanted:
                    break
                continue
            if header.base_offset != self.end_offset and not self._may_skip_to(header.base_offset):
                break
            self._take_over(segment, header)
            position += header.size_bytes
        if position == file_size:
            return True
        self.cut_bytes += file_size - position
        segment.file.truncate(position)
        return False

    def _may_skip_to(self, offset: int) -> bool:
        """In a follower's log, gaps that compaction made at its leader; anywhere, when nothing can be trusted."""
        return offset > self.end_offset and (self.point is None or self._may_skip)

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

    def _take_over(self, segment: Segment, header: BatchHeader) -> None:
        segment.appended(header, header.base_offset, header.size_bytes, self.settings.index_interval_bytes)
        self.epochs.assign(header.leader_epoch, header.base_offset)
        if header.producer_id >= 0:
            self.producers.record(header, header.base_offset)
        self.end_offset = header.next_offset
        self.cost += header.size_bytes + SCAN_COST_PER_BATCH


def _rewrite(segment: Segment, position: int) -> None:
    while position < segment.size:
        chunk = segment.file.pread(min(_SCAN_BYTES, segment.size - position), position)
        segment.file.pwrite(chunk, position)
        position += len(chunk)


def _claimed_size(segment: Segment, position: int, end: int) -> int:
    for _, header in segment.walk(position, end, wait=True):
        return header.size_bytes
    return end - position + 1  # not even a header: more than there is
