"""A compacted segment takes the place of those it was made of, so that a crash leaves either the old or the new.

    1. the new segment is durable as `<base>.cleaned.log`          a restart removes it: nothing has happened
    2. it is renamed to `<base>-<end>.swap`, durably               from here on a restart finishes the exchange
       and `<base>-<end>.merged` is there, until the next checkpoint: nobody misses the old ones (`storage.holes`)
    3. the old segments are renamed to `*.deleted`, durably
    4. the swap file is renamed to `<base>.log`, durably; then its index follows

The name of the swap file says which segments it stands for: what compaction left of them may end long before they
did, and a segment that came back would bring back records whose tombstones are gone. Old indexes leave before the new
segment has its name, for an index of another file would lead readers into the middle of batches; the new index may get
lost, since a missing one is made anew.

Readers that are in the old segments go on reading: their files are found under both names, and their indexes stay in
memory (`pinned`).
"""

from pathlib import Path

from penstock.core.files import Files
from penstock.storage import index as index_files
from penstock.storage.compaction.clean_job import CleanedSegment
from penstock.storage.compaction.segment_files import cleaned_stem
from penstock.storage.deletion import Deletion
from penstock.storage.layout import (
    CLEANED,
    LOG,
    MERGED,
    SWAP,
    TXN_INDEX,
    parse_range_name,
    range_name,
    segment_name,
)
from penstock.storage.log import Log
from penstock.storage.segment import Segment


def prepare_swap(log: Log, cleaned: CleanedSegment, limit_offset: int) -> "SegmentSwap | None":
    """On the loop, while no checkpoint is being written: that would put an old index under the new segment's name.

    None: what the segment was made of is not all there any more, or reaches beyond `limit_offset` by now.
    """
    old = log.row.between(cleaned.base_offset, cleaned.end_offset)
    if not old or cleaned.end_offset > limit_offset or log.failed:
        return None
    return SegmentSwap(log, old, cleaned)


class SegmentSwap:
    """Made on the loop, run in a thread, and then `finish`ed or `undo`ne on the loop."""

    __slots__ = ("_cleaned", "_directory", "_files", "_log", "_old", "_segment", "committed")

    def __init__(self, log: Log, old: list[Segment], cleaned: CleanedSegment) -> None:
        """From here on nobody saves or drops the indexes of the old segments."""
        self._log = log
        self._files = log.files
        self._directory = log.directory
        self._cleaned = cleaned
        self._old = old
        self.committed = False  # whether a restart would finish it
        self._segment: Segment | None = None
        for segment in old:
            segment.pinned = True

    def run(self) -> None:
        files, directory, cleaned = self._files, self._directory, self._cleaned
        for segment in self._old:
            if segment.index is None:
                segment.load_index(replacing=True)
        stem = cleaned_stem(directory, cleaned.base_offset)
        swap = directory / range_name(cleaned.base_offset, cleaned.end_offset, SWAP)
        mark_merged(files, directory, cleaned.base_offset, cleaned.end_offset)
        files.rename(stem.with_name(stem.name + LOG), swap)
        self.committed = True
        files.sync_dir(directory)  # both names
        for segment in self._old:
            segment.rename_deleted()
        files.sync_dir(directory)
        path = directory / segment_name(cleaned.base_offset, LOG)
        files.rename(swap, path)
        files.sync_dir(directory)
        for suffix in index_files.SUFFIXES:
            index = stem.with_name(stem.name + suffix)
            if files.exists(index):
                files.rename(index, directory / segment_name(cleaned.base_offset, suffix))
        self._segment = Segment(files, directory, cleaned.base_offset, cleaned.size_bytes)
        self._segment.max_timestamp = cleaned.max_timestamp
        self._segment.times_known = True

    def finish(self) -> Deletion:
        """The log goes on with the new segment; the answer's files are hidden already, and to be unlinked."""
        assert self._segment is not None
        self._log.row.exchange(self._old, self._segment, self._cleaned.end_offset)
        return Deletion(self._files, self._directory, self._old, hidden=dict.fromkeys(self._old))

    def undo(self) -> None:
        """After a failure before it was committed: the old segments stay."""
        for segment in self._old:
            segment.pinned = False


def mark_merged(files: Files, directory: Path, base_offset: int, end_offset: int) -> None:
    """Sync the directory behind it, before the old segments go."""
    files.open(directory / range_name(base_offset, end_offset, MERGED), create=True).close()


def discard_cleaned(files: Files, directory: Path) -> None:
    """Remove what compaction was still writing."""
    for name in files.list_dir(directory):
        if CLEANED + "." in name:
            files.unlink(directory / name)


def finish_swaps(files: Files, directory: Path) -> None:
    """After a crash: put committed segments in their place, and remove what never was."""
    discard_cleaned(files, directory)
    names = files.list_dir(directory)
    for name in names:
        swap = parse_range_name(name, SWAP)
        if swap is None:
            continue
        base_offset, end_offset = swap
        # Its name must last before theirs go: it may be known to the page cache alone, and the mark not even to that.
        mark_merged(files, directory, base_offset, end_offset)
        files.sync_dir(directory)
        for old in names:
            stem, dot, suffix = old.partition(".")
            is_segment = dot + suffix in (LOG, TXN_INDEX, *index_files.SUFFIXES) and stem.isdigit()
            if is_segment and base_offset <= int(stem) < end_offset:
                files.unlink(directory / old)
        files.sync_dir(directory)
        files.rename(directory / name, directory / segment_name(base_offset, LOG))
        files.sync_dir(directory)
