"""The file seam: what the broker may ask of a disk, and what it may rely on.

Everything above takes a `Files`: `core.os_files` is the operating system's, `testing.MemFiles` can stand in for it and
lose, tear, fill up, fail and slow down on command. The rules callers rely on, in both worlds:

- `File` is positional; nothing keeps a cursor. `pwrite` writes all of its bytes or raises.
- Written is not durable. Bytes survive a power cut after `File.sync`; names (create, rename, unlink)
  survive after `Files.sync_dir` of their directory.
- `OSError` never leaves it: no space is `DiskFullError`, no descriptor is `TooManyFilesError`, a missing file is
  `FileNotFoundError` (kept, because absence is an ordinary answer), all else is `DiskFailedError`.
- A `File` is open until it is closed, or the last who has it lets go of it. Segments share `Files.descriptors`.
"""

from pathlib import Path
from typing import Protocol

from penstock.core.descriptors import Descriptors
from penstock.core.errors import PenstockError

Buffer = bytes | bytearray | memoryview


class LockedError(PenstockError):
    """Another process holds the lock."""


class File(Protocol):
    @property
    def path(self) -> Path: ...

    def fileno(self) -> int:
        """The descriptor, for sendfile; -1 where there is none (in the simulation)."""
        ...

    def size(self) -> int: ...
    def pwrite(self, data: Buffer, offset: int) -> None: ...

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file. May block on the disk."""
        ...

    def pread_cached(self, size: int, offset: int) -> bytes | None:
        """As `pread`, but None instead of waiting for the disk."""
        ...

    def is_cached(self, size: int, offset: int) -> bool:
        """Whether a range seems to be in memory, judged by samples of it."""
        ...

    def warm(self, size: int, offset: int) -> None:
        """Bring a range into memory, so that `pread_cached` and sendfile do not wait. Blocks: for threads."""
        ...

    def sync(self) -> None:
        """Block until everything written is durable (fdatasync). Call it from a thread."""
        ...

    def truncate(self, size: int) -> None: ...
    def close(self) -> None: ...
    def revoke(self) -> None:
        """From now on it gives DiskFailedError, to whoever has it. A descriptor goes with the last of them."""
        ...


class Files(Protocol):
    @property
    def descriptors(self) -> Descriptors:
        """Which segment files stay open."""
        ...

    def open(self, path: Path, *, create: bool = False) -> File:
        """Open for reading and writing; with `create` the file is made when it is missing."""
        ...

    def read(self, path: Path) -> bytes: ...

    def write_atomically(self, path: Path, data: bytes) -> None:
        """Replace the file's content durably: after a crash it is the old or the new, whole.

        When it raises, either may be in force, now and after a power cut: perhaps only the sync of its new name failed.
        Whoever goes on then goes by what holds for both, or writes again first.
        """
        ...

    def exists(self, path: Path) -> bool: ...
    def size(self, path: Path) -> int: ...
    def list_dir(self, path: Path) -> list[str]:
        """Names in a directory, sorted; empty when it does not exist."""
        ...

    def make_dirs(self, path: Path) -> None:
        """Make the directory and its missing parents, durably."""
        ...

    def rename(self, source: Path, target: Path) -> None: ...
    def unlink(self, path: Path) -> None:
        """Remove a file; no error when it is gone already."""
        ...

    def remove_tree(self, path: Path) -> None:
        """Remove a directory with all that is in it; what is gone already is no error, what cannot go is one."""
        ...

    def sync_dir(self, path: Path) -> None: ...
    def sync_all(self, path: Path) -> None:
        """Make everything written to this file system durable, names included: one call for many files."""
        ...

    def free_bytes(self, path: Path) -> int: ...
    def free_inodes(self, path: Path) -> int:
        """How many more files the volume can have."""
        ...

    def total_bytes(self, path: Path) -> int:
        """The size of the volume that holds `path`."""
        ...

    def lock(self, path: Path) -> "Lock":
        """Take an exclusive lock for this process, or raise `LockedError`."""
        ...


class Lock(Protocol):
    def release(self) -> None: ...
