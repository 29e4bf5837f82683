"""A broker on a disk that is full for as long as the file named by FULL_DISK_FLAG exists."""

import errno
import os
from collections.abc import Sequence

from penstock.cli.main import main

_FLAG = os.environ["FULL_DISK_FLAG"]
_pwrite, _pwritev, _write = os.pwrite, os.pwritev, os.write


def _check() -> None:
    if os.path.exists(_FLAG):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def pwrite(fd: int, data: bytes, offset: int) -> int:
    _check()
    return _pwrite(fd, data, offset)


def pwritev(fd: int, data: Sequence[bytes], offset: int, flags: int = 0) -> int:
    _check()
    return _pwritev(fd, data, offset, flags)


def write(fd: int, data: bytes) -> int:
    # The log on stderr and the sockets are not on that disk; drafts of small files are written with this too.
    if fd > 2 and os.path.isfile(f"/proc/self/fd/{fd}"):
        _check()
    return _write(fd, data)


os.pwrite, os.pwritev, os.write = pwrite, pwritev, write  # type: ignore[assignment]
main()
