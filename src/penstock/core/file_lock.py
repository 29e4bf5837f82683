"""A lock on a file that one process holds: who asks for it gets it, or is told that another one has it."""

import fcntl
import os
from contextlib import suppress

_LOOKS_MAX = 10_000  # of microseconds each


class OsLock:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        os.close(self._fd)


def locked(fd: int) -> OsLock | None:
    """None where another process holds it; the descriptor is closed then.

    `doctor` and `verify` look whether it is held, which shares it for a moment. Who holds it does not share.
    """
    for _ in range(_LOOKS_MAX):
        with suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return OsLock(fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            break
    os.close(fd)
    return None
