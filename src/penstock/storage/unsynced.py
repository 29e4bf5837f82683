"""What of a log no finished sync covers: the segments that were written to, and new names in its directory."""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.core.descriptors import Descriptors
from penstock.core.files import File
from penstock.storage.segment import Segment


class Written(NamedTuple):
    """What a sync has to cover. The files are held here: the segments may close and open theirs meanwhile."""

    segments: list[Segment]
    files: list[File]
    size_bytes: int
    names: bool


class Unsynced:
    """The files of its segments stay open: only so does a sync hear of all that went wrong."""

    __slots__ = ("_descriptors", "_segments", "last", "names")

    def __init__(self, descriptors: Descriptors) -> None:
        self._descriptors = descriptors
        self._segments: list[Segment] = []  # oldest first
        self.last: Segment | None = None
        self.names = False

    def add(self, segment: Segment) -> None:
        """Before it is written to. TooManyFilesError: it cannot be."""
        self._descriptors.pin(segment)
        try:
            segment.file  # noqa: B018 - open from here on
        except BaseException:
            self._descriptors.unpin(segment)
            raise
        self._segments.append(segment)
        self.last = segment

    def files(self) -> list[File]:
        return [segment.file for segment in self._segments]

    def take(self, size_bytes: int) -> Written:
        """Hand it over to a sync that begins."""
        taken = Written(self._segments, self.files(), size_bytes, self.names)
        self.clear()
        return taken

    def put_back(self, written: Written) -> None:
        """That sync has come to nothing. Nothing is opened for it: there may be no descriptor to be had."""
        for segment, file in zip(written.segments, written.files, strict=True):
            self._descriptors.pin(segment)  # first, or another thread might take the file again
            segment.handle = segment.handle or file
        self._segments = list(dict.fromkeys((*written.segments, *self._segments)))
        self.last = self._segments[-1] if self._segments else None
        self.names = self.names or written.names

    def leave_out(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            self._descriptors.unpin(segment)
        left_out = set(segments)  # they may be thousands
        self._segments = [segment for segment in self._segments if segment not in left_out]
        self.last = self._segments[-1] if self._segments else None

    def clear(self) -> None:
        for segment in self._segments:
            self._descriptors.unpin(segment)
        self._segments = []
        self.last = None
        self.names = False
