"""Which file operation of a process is its last, or fails: for `start_story`."""

from pathlib import Path

from penstock.core.errors import DiskFailedError
from penstock.testing.mem_files import MemFiles

# Not in the data directory, as ZooKeeper is not: its syncs shall not do what is left undone elsewhere.
STORE = Path("/store/journal")
# What leaves no trace is no place to be killed at: the next operation is the same one.
_NO_TRACE = ("close", "size", "exists", "read", "list", "free")


class Killed(BaseException):
    """The process is gone; nobody catches that."""


class Fuse:
    """Lets one file operation of those to come be the last of its process, or fail."""

    def __init__(self, files: MemFiles, at: int, *, fails: bool = False) -> None:
        self._enter = files.enter
        self._left = at
        self._fails = fails
        self.operations: list[str] = []
        self.blown = False
        files.enter = self._counted  # type: ignore[method-assign]

    @property
    def is_deadly(self) -> bool:
        return self.blown and not self._fails

    def _counted(self, operation: str, path: Path) -> None:
        if self.is_deadly:
            raise Killed
        self._enter(operation, path)
        # What the store makes of an error is its own matter (`test_embedded.py`).
        if operation in _NO_TRACE or (self._fails and path.parent == STORE.parent):
            return
        if self._left == len(self.operations):
            self.blown = True
            if self._fails:
                self.operations.append("")
                raise DiskFailedError(f"{path}: Input/output error")
            raise Killed
        self.operations.append(f"{operation} {path}")
