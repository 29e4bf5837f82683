"""Names on disk, in one place.

<data>/topics/<topic>/Partition-<n>/
    partition.json                  whose directory this is: topic, partition, topic id, its first leader epoch
    00000000000000000000.log        record batches exactly as received
    00000000000000000000.index      sparse: relative offset -> position of a batch
    00000000000000000000.timeindex  the same entries: largest timestamp so far
    00000000000000000000.txnindex   aborted transactions whose markers are in the segment; only where there are any
    00000000000000000000.snapshot   producer state up to that offset
    00000000000000000000.start      empty; its name says that records below that offset were deleted, also by retention
    *.deleted, *.tmp                on their way out: removed when the log is opened
    *.cleaned.log, .index, …        being written by compaction: removed when the log is opened
    <base>-<end>.swap               a compacted segment about to take the place of those from base to end; a start
                                    that finds it finishes the exchange
    <base>-<end>.merged             empty; the segments from base to end were exchanged for one since the recovery point
                                    that is there, or may have been
    <end>-<base>.gap                empty; its name says that the segment at base comes next behind the records that end
                                    there: a gap that is too wide for one segment
    <first>-<end>.lost              empty; its name says which offsets were durable and are gone, until that was told
    00000000000000000000.anew       its name says that nothing here is of use, and the log begins at that offset: a
                                    start that finds it throws away what is left; it holds the producer state by then
    incomplete                      empty; it is there while nothing vouches that the log has all that it should have
                                    (`storage.incomplete`)
    *.damaged                       set aside by a recovery that could not tell what is right, or found a hole before
                                    it, or segments of the log's own that it overlaps
    leader-epoch-checkpoint         leader epoch -> first offset written under it
    recovery-point                  up to where everything above is durable, in which segments, and where the log starts
    recovery-point.old              one that was wrong, and could not be replaced on a full disk: nobody reads it, but
                                    until the next checkpoint it says that there was one
    cleaner-offset-checkpoint       up to where a compacted log is clean, and below which tombstones went
<data>/trash/                       deleted partitions, on their way out
<data>/quarantine/                  partition directories that the metadata does not know, or that do not say whose they
                                    are; never served
"""

from pathlib import Path

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
START = ".start"
DAMAGED = ".damaged"
DRAFT = ".tmp"
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
MERGED = ".merged"
GAP = ".gap"
LOST = ".lost"
ANEW = ".anew"
PARTITION_FILE = "partition.json"
EPOCHS_FILE = "leader-epoch-checkpoint"
RECOVERY_POINT_FILE = "recovery-point"
OLD_POINT_FILE = "recovery-point.old"
CLEANER_FILE = "cleaner-offset-checkpoint"
INCOMPLETE_FILE = "incomplete"

_PARTITION_PREFIX = "Partition-"


def segment_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


def parse_segment_name(name: str, suffix: str) -> int | None:
    """The base offset in a name such as 00000000000000000042.log, or None for any other name."""
    stem = name.removesuffix(suffix)
    return int(stem) if stem != name and len(stem) == 20 and stem.isdigit() else None


def range_name(first: int, end: int, suffix: str) -> str:
    return f"{first:020d}-{end:020d}{suffix}"


def parse_range_name(name: str, suffix: str) -> tuple[int, int] | None:
    """The offsets in such a name as that of a swap file, the second excluded; None for any other name."""
    stem = name.removesuffix(suffix)
    first, _, end = stem.partition("-")
    if stem == name or not (len(first) == len(end) == 20 and first.isdigit() and end.isdigit()):
        return None
    return int(first), int(end)


def topics_dir(data_dir: Path) -> Path:
    return data_dir / "topics"


def partition_dir(data_dir: Path, topic: str, partition: int) -> Path:
    return topics_dir(data_dir) / topic / f"{_PARTITION_PREFIX}{partition}"


def parse_partition_dir(name: str) -> int | None:
    number = name.removeprefix(_PARTITION_PREFIX)
    return int(number) if number != name and number.isdigit() else None
