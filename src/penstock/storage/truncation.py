"""Cutting the end off a log: what a follower does with records that its new leader never had.

The order makes a power cut at any moment harmless. First the recovery point is lowered to the new end, because it may
vouch for nothing that goes; only then do bytes and names go. Until the job is done a restart may still find some of
what was to be cut, in one piece; the epochs tell its leader so again.

Bytes that somebody could read are never written over: an answer may wait in its socket, as a place in a file, until
long after the cut, and would be sent as whatever stands there by then. So a file that was cut does not grow any more.
The log goes on in a new one, and of the old one such an answer gets what it was promised, or its end.
"""

from bisect import bisect_right
from pathlib import Path

from penstock.core.errors import StorageError
from penstock.core.files import File, Files
from penstock.storage.checkpoint import LogEnd, RecoveryPoint
from penstock.storage.cleaner_checkpoint import Cleaned, save_cleaned
from penstock.storage.deletion import StartJob
from penstock.storage.epochs import UNKNOWN_EPOCH
from penstock.storage.index import SegmentIndex
from penstock.storage.layout import (
    DRAFT,
    RECOVERY_POINT_FILE,
    SNAPSHOT,
    START,
    parse_segment_name,
    segment_name,
)
from penstock.storage.producers import ProducerState, dump_producers
from penstock.storage.segment import Segment


class Truncation:
    """A job for a thread; `Log.truncated` takes its results over."""

    __slots__ = (
        "_directory",
        "_epoch",
        "_files",
        "_gone",
        "_next_base",
        "_offset",
        "_unsynced",
        "cleaned",
        "end",
        "index",
        "kept",
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
        cleaned: Cleaned,
        unsynced: list[File],
    ) -> None:
        self._files = files
        self._directory = directory
        self._offset = offset
        self._unsynced = unsynced
        self._epoch = UNKNOWN_EPOCH  # of the last batch that stays
        self.point = point
        self.cleaned = cleaned
        keep = bisect_right([segment.base_offset for segment in segments], offset)
        self.kept, self._gone = segments[:keep], segments[keep:]
        self.last = (
            self.kept[-1] if self.kept else None
        )  # where the new end lies; None: in a file made for it
        # Where the next segment begins: as far as a scan from the recovery point comes. Right behind the last batch
        # that stays; or at the end, which may lie behind a gap, where the point says so.
        self._next_base = offset
        self.end = LogEnd(offset, offset, 0)
        self.index = SegmentIndex(offset)
        self.max_timestamp = -1
        self.producers = ProducerState()

    def run(self) -> None:
        self._find_end()
        self._lower_recovery_point()
        self._lower_start()
        self._lower_cleaned()
        self._cut()

    def _find_end(self) -> None:
        last = self.last
        if last is None:  # it ends before it begins: an empty log, made new when the old one is gone
            return
        # A copy: readers below the cut go on using the index in memory until the loop takes this one over.
        self.index = last.index_up_to(last.size)[0] if last.index is None else last.index.copy()
        _, position = self.index.floor(self._offset)
        first_gone = None
        for at, header in last.walk(position, last.size, wait=True):
            position = at
            if header.last_offset >= self._offset:
                first_gone = header
                break
            position = at + header.size_bytes
        end_offset = min(self._offset, first_gone.base_offset) if first_gone else self._offset
        self.index.truncate(position)
        indexed_to, self.max_timestamp = self.index.before_position(position)
        for _, header in last.walk(indexed_to, position, wait=True):
            self.max_timestamp = max(self.max_timestamp, header.max_timestamp)
            self._epoch = header.leader_epoch
            self._next_base = header.next_offset
        if not position and len(self.kept) > 1:
            self._epoch = _last_epoch(self.kept[-2])
        self.end = LogEnd(end_offset, last.base_offset, position)
        self.producers = self._producers_at_end()

    def _producers_at_end(self) -> ProducerState:
        """From the best snapshot at or below the new end, and the headers behind it."""
        state, known_to = self._best_snapshot()
        for number, segment in enumerate(self.kept):
            is_last = segment is self.kept[-1]
            if not is_last and self.kept[number + 1].base_offset <= known_to:
                continue
            for _, header in segment.walk(0, self.end.position if is_last else segment.size, wait=True):
                if header.base_offset >= known_to and header.producer_id >= 0:
                    state.record(header, header.base_offset)
        return state

    def _best_snapshot(self) -> tuple[ProducerState, int]:
        offsets = (parse_segment_name(name, SNAPSHOT) for name in self._files.list_dir(self._directory))
        for offset in sorted((o for o in offsets if o is not None and o <= self.end.offset), reverse=True):
            try:
                return ProducerState.parse(
                    self._files.read(self._directory / segment_name(offset, SNAPSHOT))
                ), offset
            except (StorageError, FileNotFoundError):
                continue
        return ProducerState(), -1

    def _lower_recovery_point(self) -> None:
        if self.point is None or self.point.offset <= self.end.offset:
            return
        self._next_base = self.end.offset
        producers = self.producers.copy()
        if producers:
            path = self._directory / segment_name(self.end.offset, SNAPSHOT)
            self._files.write_atomically(path, dump_producers(producers))
        # The epoch file may stay ahead of the point: a restart forgets the epochs behind it.
        self.point = self.point._replace(
            start_offset=min(self.point.start_offset, self.end.offset),
            offset=self.end.offset,
            segment=self.end.segment,
            position=self.end.position,
            index_entries=len(self.index),
            max_timestamp=self.max_timestamp,
            producers=len(producers),
            epoch=self._epoch,
        )
        self._files.write_atomically(self._directory / RECOVERY_POINT_FILE, self.point.dump())

    def _lower_start(self) -> None:
        """A start behind the end would make a restart take the log for empty: move the mark before anything goes."""
        starts = self._names_behind_end(START)
        if starts:
            StartJob(self._files, self._directory, self.end.offset).run()
            for name in starts:
                self._files.unlink(self._directory / name)
            self._files.sync_dir(self._directory)

    def _lower_cleaned(self) -> None:
        """What takes the place of the end has not been compacted."""
        left = self.cleaned.cut(self.end.offset)
        if left != self.cleaned:
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
        for segment in reversed(self._gone):
            for path in segment.paths():
                self._files.unlink(path)
        last = self.last
        if last is None:
            self.kept = [Segment.create(self._files, self._directory, self.end.offset)]
        elif last.file.size() > self.end.position:
            self._cut_last(last)
        for file in (*self._unsynced, self.kept[-1].file):
            file.sync()
        self._files.sync_dir(self._directory)

    def _cut_last(self, last: Segment) -> None:
        if self.end.position:
            last.file.truncate(self.end.position)
            last.file.sync()
            self.kept.append(Segment.create(self._files, self._directory, self._next_base))
            return
        # Nothing of it stays but its name: an empty file takes its place.
        path = last.paths()[0]
        draft = path.with_name(path.name + DRAFT)
        self._files.open(draft, create=True).close()
        self._files.rename(draft, path)
        self.kept[-1] = Segment.create(self._files, self._directory, last.base_offset)
        self.last = None


def _last_epoch(segment: Segment) -> int:
    index = segment.index_up_to(segment.size)[0] if segment.index is None else segment.index
    epoch = UNKNOWN_EPOCH
    for _, header in segment.walk(index.before_position(segment.size)[0], segment.size, wait=True):
        epoch = header.leader_epoch
    return epoch
