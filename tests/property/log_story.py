"""What the log model is told with: batches as they were stored, power cuts and errors in the middle of a job."""

from pathlib import Path
from typing import NamedTuple

from penstock.core.errors import DiskFailedError
from penstock.records.batch import BatchHeader, read_header
from penstock.testing.mem_files import MemFiles

# How a job may be stopped.
WAYS = [
    "power cut",
    "kill",
    "error",
    "error that drops pages",
    "write-back",
    "full disk",
    "shortage",
    "shortage",
]


class PowerCut(Exception):  # noqa: N818 - not an error of the program
    """The lights went out in the middle of a job."""


class Stored(NamedTuple):
    data: bytes
    times: tuple[int, ...]
    epoch: int

    @property
    def header(self) -> BatchHeader:
        return read_header(self.data)


def interrupt(files: MemFiles, operations: int) -> None:
    """Cut the power at that many file operations from now."""
    enter = files.enter
    left = operations

    def counted(operation: str, path: Path) -> None:
        nonlocal left
        if operation == "close":  # does nothing to the disk; may come from a generator that is thrown away
            return
        left -= 1
        if left < 0:
            raise PowerCut
        enter(operation, path)

    files.enter = counted  # type: ignore[method-assign]


def fail_once(files: MemFiles, operations: int) -> None:
    """Let the file operation after so many others fail; `del files.enter` forgets it."""
    enter = files.enter
    left = operations

    def counted(operation: str, path: Path) -> None:
        nonlocal left
        enter(operation, path)
        left -= operation != "close"
        if left == -1:
            left -= 1
            raise DiskFailedError(f"{path}: Input/output error")

    files.enter = counted  # type: ignore[method-assign]


def short_behind(files: MemFiles, renames: int) -> None:
    """Find no descriptor once so many files have their new names; `del files.rename` forgets it."""
    rename = files.rename
    left = renames

    def counted(source: Path, target: Path) -> None:
        nonlocal left
        rename(source, target)
        left -= 1
        if not left:
            files.short_in = 1

    files.rename = counted  # type: ignore[method-assign]


def forget_pages_at(files: MemFiles, reads: int) -> None:
    """Memory runs short before that read from now; `del files.enter` forgets it."""
    enter = files.enter
    left = reads

    def counted(operation: str, path: Path) -> None:
        nonlocal left
        enter(operation, path)
        left -= operation == "read"
        if not left:
            left = -1
            files.chill()

    files.enter = counted  # type: ignore[method-assign]


def last_header(data: bytes) -> BatchHeader:
    position = 0
    while True:
        header = read_header(data, position)
        position += header.size_bytes
        if position >= len(data):
            assert position == len(data)
            return header
