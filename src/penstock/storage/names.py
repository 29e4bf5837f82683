"""What lies in the directory of a log, as recovery finds it."""

from pathlib import Path

from penstock.core.errors import DiskError, StorageError
from penstock.core.files import Files
from penstock.core.formats import NewerFormatError
from penstock.storage.checkpoint import RecoveryPoint
from penstock.storage.incomplete import note_incomplete
from penstock.storage.layout import (
    CLEANER_FILE,
    DELETED,
    DRAFT,
    GAP,
    INCOMPLETE_FILE,
    LOG,
    LOST,
    MERGED,
    OFFSET_INDEX,
    OLD_POINT_FILE,
    RECOVERY_POINT_FILE,
    SNAPSHOT,
    START,
    TIME_INDEX,
    TXN_INDEX,
    parse_range_name,
    parse_segment_name,
    range_name,
    segment_name,
)


class DirectoryNames:
    """What lies in the directory, sorted by kind; leftovers are removed."""

    def __init__(self, files: Files, directory: Path) -> None:
        self._files = files
        self._directory = directory
        self.bases: list[int] = []
        self.starts: list[int] = []
        # Before a segment: where the records before it end, and it begins.
        self.gaps: list[tuple[int, int]] = []
        self.merged: list[tuple[int, int]] = []  # what the recovery point may name, and is not missed
        self.lost: list[tuple[int, int]] = []  # by a start that came to nothing, or could not be told
        self.set_aside: list[str] = []  # by this start: segments of another log, over others
        self.aborted: list[int] = []  # segments that have a file of aborted transactions
        self._snapshots: list[int] = []
        self._has_point = False
        self.had_point = False  # which a start took away for want of room: it has noted what was to be noted
        self.is_foreign = False  # another log's files were written here
        self.has_cleaned = False
        self.is_incomplete = False
        indexes: list[tuple[int, str]] = []
        for name in files.list_dir(directory):
            if name.endswith((DELETED, DRAFT)):
                files.unlink(directory / name)
            elif name == RECOVERY_POINT_FILE:
                self._has_point = True
            elif name == OLD_POINT_FILE:
                self.had_point = True
            elif name == CLEANER_FILE:
                self.has_cleaned = True
            elif name == INCOMPLETE_FILE:
                self.is_incomplete = True
            elif (base := parse_segment_name(name, LOG)) is not None:
                self.bases.append(base)
            elif (base := parse_segment_name(name, START)) is not None:
                self.starts.append(base)
            elif (base := parse_segment_name(name, SNAPSHOT)) is not None:
                self._snapshots.append(base)
            elif (gap := parse_range_name(name, GAP)) is not None:
                self.gaps.append(gap)
            elif (merged := parse_range_name(name, MERGED)) is not None:
                self.merged.append(merged)
            elif (lost := parse_range_name(name, LOST)) is not None:
                self.lost.append(lost)
            elif name.endswith((OFFSET_INDEX, TIME_INDEX, TXN_INDEX)):
                suffix = name[name.rindex(".") :]
                if (base := parse_segment_name(name, suffix)) is not None:
                    indexes.append((base, name))
        if self._has_point and self.had_point:
            files.unlink(directory / OLD_POINT_FILE)  # or it would stand for this one, were that lost
            self.had_point = False
        for base, name in indexes:
            if base not in self.bases:
                files.unlink(directory / name)
            elif name.endswith(TXN_INDEX):
                self.aborted.append(base)
        for gap in self.gaps:
            if gap[1] not in self.bases and gap[1] not in dict(self.gaps):  # nor does another one begin there
                files.unlink(directory / range_name(*gap, GAP))

    @property
    def has_records(self) -> bool:
        return any(self._files.size(self._directory / segment_name(base, LOG)) for base in self.bases)

    def note_incomplete(self) -> None:
        if not self.is_incomplete:
            note_incomplete(self._files, self._directory)
            self.is_incomplete = True

    def recovery_point(self, owner: str) -> RecoveryPoint | None:
        """None where there is none to go by: it is damaged, or that of another log.

        DiskError when it cannot be read just now: without it a log that begins anew would be the old one again.
        """
        if not self._has_point:
            return None
        try:
            point = RecoveryPoint.parse(self._files.read(self._directory / RECOVERY_POINT_FILE))
        except (DiskError, NewerFormatError):
            raise
        except StorageError:
            return None
        if point.owner and owner and point.owner != owner:
            # Somebody wrote into a directory that was not theirs any more; the start mark came with it.
            self.is_foreign = True
            self.starts = [start for start in self.starts if start != point.start_offset]
            return None
        return point

    def drop_snapshots(self, *, below: int = 0, behind: int = -1, but: int | None = None) -> None:
        """Those may tell of records that a power cut has taken back, or of another log, which was here before."""
        for base in self._snapshots:
            if base != but and (base > behind or base < below):
                self._files.unlink(self._directory / segment_name(base, SNAPSHOT))
