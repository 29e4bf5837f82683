"""What a round of compaction is told, and what it tells: plain values, for a round may run in another process."""

from math import inf
from pathlib import Path
from typing import NamedTuple

from penstock.core.files import Files
from penstock.storage.aborted_transactions import AbortedTransaction
from penstock.storage.retention import SegmentSummary


class CleanedSegment(NamedTuple):
    """What takes the place of the segments from `base_offset` up to `end_offset`, which is excluded."""

    base_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp: int
    changed: bool  # False: it would be the same as before, and was not kept
    read_bytes: int
    tombstones_to: int  # behind the last tombstone, or marker, that is left out


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
