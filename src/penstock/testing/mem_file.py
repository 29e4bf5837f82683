"""One open file of `MemFiles`, and a lock on one: what a process has in hand until it closes it, or dies."""

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.errors import DiskFailedError, DiskFullError
from penstock.core.files import Buffer
from penstock.testing.mem_disk import COLD_CHUNK_BYTES, Change, Inode

if TYPE_CHECKING:
    from penstock.testing.mem_files import MemFiles

_numbers = itertools.count()


class StaleFileError(RuntimeError):
    """A closed handle was used, or one from before a crash: a bug in the caller, never a disk fault."""


class MemFile:
    def __init__(self, files: "MemFiles", path: Path, inode: Inode) -> None:
        self._files = files
        self._inode: Inode | None = inode
        self.path = path
        self._is_revoked = False
        self._errors_told = inode.errors
        self._number = next(_numbers)
        files.descriptors.live.add(self._number)

    def revoke(self) -> None:
        self._is_revoked = True

    def __del__(self) -> None:
        self._files.descriptors.live.discard(self._number)

    def _open_inode(self, operation: str) -> Inode:
        if self._inode is None:
            raise StaleFileError(f"{self.path}: the file is closed")
        if self._is_revoked:  # no bug: an answer may be sent from a log that was closed meanwhile
            raise DiskFailedError(f"{self.path}: Bad file descriptor")
        self._files.enter(operation, self.path)
        return self._inode

    def fileno(self) -> int:
        return -1

    def size(self) -> int:
        return len(self._open_inode("size").content)

    def pwrite(self, data: Buffer, offset: int) -> None:
        inode = self._open_inode("write")
        new = bytes(data)
        fits = self._files.bytes_that_fit(inode, len(new), offset)
        if fits:
            inode.change(Change(offset, new[:fits]))
        for chunk in range(offset // COLD_CHUNK_BYTES, (offset + fits) // COLD_CHUNK_BYTES + 1):
            inode.cold.setdefault(chunk, False)
        if fits < len(new):
            raise DiskFullError(f"{self.path}: No space left on device")

    def pread(self, size: int, offset: int) -> bytes:
        inode = self._open_inode("read")
        self._files.warm(inode, size, offset)
        return bytes(inode.content[offset : offset + size])

    def pread_cached(self, size: int, offset: int) -> bytes | None:
        inode = self._open_inode("read")
        if self._files.is_cold(inode, size, offset):
            return None
        return bytes(inode.content[offset : offset + size])

    def is_cached(self, size: int, offset: int) -> bool:
        return not self._files.is_cold(self._open_inode("read"), size, offset)

    def warm(self, size: int, offset: int) -> None:
        self._files.warm(self._open_inode("read"), size, offset)

    def sync(self) -> None:
        if self._inode is None:
            raise StaleFileError(f"{self.path}: the file is closed")
        if self._is_revoked:
            raise DiskFailedError(f"{self.path}: Bad file descriptor")
        try:
            self._files.enter("sync", self.path)
        except DiskFailedError:
            self._inode.fail_sync(self._files.drops)
        if self._errors_told < self._inode.errors:
            self._errors_told = self._inode.errors
            raise DiskFailedError(f"{self.path}: Input/output error")
        self._inode.sync()

    def truncate(self, size: int) -> None:
        self._open_inode("truncate").change(Change(size, None))

    def close(self) -> None:
        self._open_inode("close")
        self._inode = None
        self._files.descriptors.live.discard(self._number)


class MemLock:
    def __init__(self, files: "MemFiles", inode: Inode) -> None:
        self._files = files
        self._inode = inode

    def release(self) -> None:
        self._files.unlock(self._inode)
