"""Jobs that delete the beginning of a log, run in threads.

Records go in two ways. DeleteRecords moves the log's start to any offset; that must be durable before it is
answered, so the offset becomes the name of an empty file: atomic, cheap, and several threads cannot undo each other.
Retention takes whole segments; the log then starts with the first that is left, so their names must go in order.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from penstock.core.files import Files
from penstock.core.lease import Lease
from penstock.storage.layout import START, parse_segment_name, segment_name
from penstock.storage.segment import Segment


class StartJob(NamedTuple):
    files: Files
    directory: Path
    start_offset: int

    def run(self) -> None:
        self.files.open(self.directory / segment_name(self.start_offset, START), create=True).close()
        self.files.sync_dir(self.directory)
        for name in self.files.list_dir(self.directory):
            older = parse_segment_name(name, START)
            if older is not None and older < self.start_offset:
                self.files.unlink(self.directory / name)


@dataclass(slots=True)
class Deletion:
    """Segments that left the log: hidden at once, unlinked when nobody reads from them any more."""

    files: Files
    directory: Path
    segments: list[Segment]
    hidden: list[Segment] = field(default_factory=list)  # those of them that are, durably

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    def hide(self, lease: Lease | None = None) -> bool:
        """Rename the files, oldest first and each durably: a power cut must not leave a hole in the row.

        This takes no space, so it works on a full disk, where it is needed most. Whoever waits to remove the whole log
        does not wait for each of many segments: False, then.
        """
        for segment in self.segments:
            if lease is not None and lease.ended:
                return False
            segment.rename_deleted()
            self.files.sync_dir(self.directory)
            self.hidden.append(segment)
        return True

    def unlink(self) -> None:
        """Call it `file.delete.delay.ms` later. A restart does it too."""
        for segment in self.hidden:
            segment.unlink_deleted()
