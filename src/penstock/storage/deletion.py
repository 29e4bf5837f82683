"""Jobs that delete the beginning of a log, run in threads.

Records go in two ways. DeleteRecords moves the log's start to any offset; that must be durable before it is
answered, so the offset becomes the name of an empty file: atomic, cheap, and several threads cannot undo each other.
Retention takes whole segments, from the oldest on, and writes down in the same way where the log starts then: what is
missing in front of that has been taken by somebody else (`storage.holes`).
"""

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from penstock.core.errors import DiskFullError
from penstock.core.files import Files
from penstock.core.lease import Lease
from penstock.storage.layout import START, parse_segment_name, segment_name
from penstock.storage.segment import Segment


class StartJob(NamedTuple):
    files: Files
    directory: Path
    start_offset: int

    def run(self) -> None:
        try:
            self.files.open(self._path(self.start_offset), create=True).close()
        except DiskFullError:
            if not self._rename_another():
                raise
        self.files.sync_dir(self.directory)
        for older in self._marks():
            if older < self.start_offset:
                self.files.unlink(self._path(older))

    def _rename_another(self) -> bool:
        """Which takes no space. There is one wherever a recovery point names segments."""
        while marks := self._marks():
            if marks[-1] >= self.start_offset:
                return True
            with suppress(FileNotFoundError):  # another thread has just done the same
                self.files.rename(self._path(marks[-1]), self._path(self.start_offset))
        return False

    def _marks(self) -> list[int]:
        names = self.files.list_dir(self.directory)
        return sorted(mark for name in names if (mark := parse_segment_name(name, START)) is not None)

    def _path(self, offset: int) -> Path:
        return self.directory / segment_name(offset, START)


@dataclass(slots=True)
class Deletion:
    """Segments that left the log: hidden at once, unlinked when nobody reads from them any more."""

    files: Files
    directory: Path
    segments: list[Segment]
    start_offset: int | None = None  # of the log without them; None: others have taken their place in it
    hidden: dict[Segment, None] = field(
        default_factory=dict
    )  # those of them that are, durably: often thousands

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    def hide(self, lease: Lease | None = None) -> bool:
        """Rename the files, oldest first and each durably: a power cut must not leave a hole in the row.

        Renaming takes no space, so it works on a full disk, where it is needed most. Whoever waits to remove the whole
        log does not wait for each of many segments: False, then.
        """
        if self.start_offset is not None:
            with suppress(
                DiskFullError
            ):  # no name to be had: then there is no recovery point that misses them
                StartJob(self.files, self.directory, self.start_offset).run()
        for segment in self.segments:
            if lease is not None and lease.ended:
                return False
            segment.rename_deleted()
            self.files.sync_dir(self.directory)
            self.hidden[segment] = None
        return True

    def unlink(self) -> None:
        """Call it `file.delete.delay.ms` later. A restart does it too."""
        for segment in self.hidden:
            segment.unlink_deleted()
