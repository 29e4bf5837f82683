"""The operating system's files: the only module that touches the disk. What callers may rely on: see `core.files`."""

import ctypes
import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

from penstock.core.descriptors import Descriptors, Shares
from penstock.core.errors import DiskFailedError, TooManyFilesError
from penstock.core.file_lock import OsLock, locked
from penstock.core.files import Buffer, LockedError
from penstock.core.os_errors import KINDS, mapped, os_errors_mapped

T = TypeVar("T")

# A reader of cold data goes on reading: let the disk work ahead of it.
_READ_AHEAD_BYTES = 8 * 1024 * 1024
_WARM_STEP_BYTES = 1024 * 1024
# How far apart the page cache is asked about a large range: the kernel reads ahead in pieces of this order.
_SAMPLE_EVERY_BYTES = 256 * 1024
_READ_AT_ONCE_BYTES = 64 * 1024
_ONE_BYTE = [bytearray(1)]


class OsFile:
    __slots__ = ("__weakref__", "_fd", "_live", "_own", "path")

    def __init__(self, path: Path, fd: int, live: set[int]) -> None:
        self.path = path
        self._fd = self._own = fd  # -1: it is not to be used; it is not ours any more
        self._live = live
        live.add(fd)

    def fileno(self) -> int:
        return self._fd

    def size(self) -> int:
        with os_errors_mapped(self.path):
            return os.fstat(self._fd).st_size

    def pwrite(self, data: Buffer, offset: int) -> None:
        # The hot path: one call, no context manager. A short write happens only when the disk fills up,
        # and the retry then gets the error that says so.
        try:
            written = os.pwrite(self._fd, data, offset)
            if written != len(data):
                view = memoryview(data)
                while written < len(view):
                    written += os.pwrite(self._fd, view[written:], offset + written)
        except OSError as error:
            raise mapped(self.path, error) from error

    def pread(self, size: int, offset: int) -> bytes:
        # The hot path, too.
        try:
            data = os.pread(self._fd, size, offset)
            if len(data) == size or not data:
                return data
            parts = [data]
            got = len(data)
            while got < size and (data := os.pread(self._fd, size - got, offset + got)):
                parts.append(data)
                got += len(data)
            return b"".join(parts)
        except OSError as error:
            raise mapped(self.path, error) from error

    def pread_cached(self, size: int, offset: int) -> bytes | None:
        buffer = bytearray(size)
        try:
            got = os.preadv(self._fd, (buffer,), offset, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:  # a file system without it (some network ones): just read
                return self.pread(size, offset)
            raise DiskFailedError(f"{self.path}: {error.strerror}") from error
        if got == size:
            return bytes(buffer)
        # Short: either the end of the file or the edge of what is cached. Linux 5.9 and 5.10 may say 0 there as well.
        if offset + got < os.fstat(self._fd).st_size:
            return None
        return bytes(memoryview(buffer)[:got])

    def is_cached(self, size: int, offset: int) -> bool:
        fd, last = self._fd, offset + size - 1
        try:
            for at in range(offset, last, _SAMPLE_EVERY_BYTES):
                os.preadv(fd, _ONE_BYTE, at, os.RWF_NOWAIT)
            os.preadv(fd, _ONE_BYTE, last, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                return True  # no way to know: read and see
            raise DiskFailedError(f"{self.path}: {error.strerror}") from error
        return True

    def warm(self, size: int, offset: int) -> None:
        with os_errors_mapped(self.path):
            os.posix_fadvise(self._fd, offset, size + _READ_AHEAD_BYTES, os.POSIX_FADV_WILLNEED)
            for at in range(offset, offset + size, _WARM_STEP_BYTES):
                os.pread(self._fd, min(_WARM_STEP_BYTES, offset + size - at), at)

    def sync(self) -> None:
        with os_errors_mapped(self.path):
            os.fdatasync(self._fd)

    def truncate(self, size: int) -> None:
        with os_errors_mapped(self.path):
            os.ftruncate(self._fd, size)

    def close(self) -> None:
        fd, self._fd, self._own = self._own, -1, -1
        if fd >= 0:
            self._live.discard(fd)  # before somebody else gets the number
            os.close(fd)

    def revoke(self) -> None:
        self._fd = -1

    def __del__(self) -> None:
        # A deleted segment's file closes when the last response that still reads from it is gone.
        self.close()


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


class OsFiles:
    def __init__(self) -> None:
        self.descriptors = Descriptors(Shares.of_process())

    def __reduce__(self) -> tuple[type["OsFiles"], tuple[()]]:
        """Another process has descriptors of its own."""
        return OsFiles, ()

    def open(self, path: Path, *, create: bool = False) -> OsFile:
        with os_errors_mapped(path):
            fd = self._open(path, os.O_RDWR | (os.O_CREAT if create else 0))
            return OsFile(path, fd, self.descriptors.live)

    def _open(self, path: Path, flags: int) -> int:
        return self._with_descriptors(lambda: os.open(path, flags | os.O_CLOEXEC, 0o644))

    def _with_descriptors(self, opens: Callable[[], T]) -> T:
        """Whoever is short of descriptors takes them from segments that are not in use."""
        try:
            return opens()
        except OSError as error:
            if KINDS.get(error.errno) is not TooManyFilesError or not self.descriptors.close_some():
                raise
        return opens()

    def read(self, path: Path) -> bytes:
        with os_errors_mapped(path):
            fd = self._open(path, os.O_RDONLY)
            try:
                pieces = []
                while piece := os.read(fd, _READ_AT_ONCE_BYTES):
                    pieces.append(piece)
                return b"".join(pieces)
            finally:
                os.close(fd)

    def write_atomically(self, path: Path, data: bytes) -> None:
        draft = path.with_name(path.name + ".tmp")
        with os_errors_mapped(path):
            fd = self._open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(fd, view) :]
                os.fdatasync(fd)
            finally:
                os.close(fd)
            draft.replace(path)
        self.sync_dir(path.parent)

    def exists(self, path: Path) -> bool:
        with os_errors_mapped(path):
            try:
                path.stat()
            except (FileNotFoundError, NotADirectoryError):
                return False
        return True

    def size(self, path: Path) -> int:
        with os_errors_mapped(path):
            return path.stat().st_size

    def list_dir(self, path: Path) -> list[str]:
        try:
            with os_errors_mapped(path):
                return sorted(self._with_descriptors(lambda: os.listdir(path)))
        except FileNotFoundError:
            return []

    def make_dirs(self, path: Path) -> None:
        missing = [folder for folder in (path, *path.parents) if not self.exists(folder)]
        with os_errors_mapped(path):
            path.mkdir(parents=True, exist_ok=True)
        for folder in missing:
            self.sync_dir(folder.parent)

    def rename(self, source: Path, target: Path) -> None:
        with os_errors_mapped(source):
            source.rename(target)

    def unlink(self, path: Path) -> None:
        with os_errors_mapped(path):
            path.unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        with os_errors_mapped(path), suppress(FileNotFoundError, NotADirectoryError):
            for entry in self._with_descriptors(lambda: list(os.scandir(path))):
                if entry.is_dir(follow_symlinks=False):
                    self.remove_tree(path / entry.name)
                else:
                    self.unlink(path / entry.name)
            path.rmdir()

    def sync_dir(self, path: Path) -> None:
        with os_errors_mapped(path):
            fd = self._open(path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def sync_all(self, path: Path) -> None:
        with os_errors_mapped(path):
            fd = self._open(path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                if _libc().syncfs(fd):
                    raise OSError(ctypes.get_errno(), "syncfs failed")
            finally:
                os.close(fd)

    def free_bytes(self, path: Path) -> int:
        with os_errors_mapped(path):
            stat = os.statvfs(path)
            return stat.f_bavail * stat.f_frsize

    def free_inodes(self, path: Path) -> int:
        with os_errors_mapped(path):
            stat = os.statvfs(path)
            return stat.f_favail if stat.f_files else sys.maxsize  # some file systems make them as they go

    def total_bytes(self, path: Path) -> int:
        with os_errors_mapped(path):
            stat = os.statvfs(path)
            return stat.f_blocks * stat.f_frsize

    def lock(self, path: Path) -> OsLock:
        with os_errors_mapped(path):
            fd = self._open(path, os.O_RDWR | os.O_CREAT)
        if (lock := locked(fd)) is None:
            raise LockedError(f"{path} is held by another process")
        return lock
