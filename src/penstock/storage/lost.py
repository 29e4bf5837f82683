"""What a log has lost of what was durable: noted before anything takes its place, until somebody has told of it.

Opening a log can come to nothing at any step, and the next start finds the end where the one before has put it. So the
loss is the name of an empty file, which is there before a new recovery point, or a segment behind the gap, can be.
"""

from collections.abc import Sequence
from pathlib import Path

from penstock.core.files import Files
from penstock.storage.checkpoint import RecoveryPoint
from penstock.storage.layout import LOST, parse_range_name, range_name

# Offsets, the second not included.
Lost = tuple[int, int]


def lost_below(point: RecoveryPoint, starts: Sequence[int], end_offset: int) -> Lost | None:
    """What the recovery point vouched for, and a log that ends there has not; `starts` as they were written down."""
    begin = max([point.start_offset, *starts, end_offset])
    return (begin, point.offset) if begin < point.offset else None


def note_lost(files: Files, directory: Path, lost: Lost) -> None:
    files.open(directory / range_name(*lost, LOST), create=True).close()
    files.sync_dir(directory)


def forget_lost(files: Files, directory: Path) -> None:
    """It was told."""
    for name in files.list_dir(directory):
        if parse_range_name(name, LOST) is not None:
            files.unlink(directory / name)
    files.sync_dir(directory)
