"""What an error of the operating system means for whoever keeps files: see `core.files`."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.core.errors import DiskFailedError, DiskFullError, StorageError, TooManyFilesError

KINDS: dict[int | None, type[StorageError]] = {
    errno.ENOSPC: DiskFullError,
    errno.EDQUOT: DiskFullError,
    errno.EMFILE: TooManyFilesError,
    errno.ENFILE: TooManyFilesError,
}


@contextmanager
def os_errors_mapped(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise mapped(path, error) from error


def mapped(path: Path, error: OSError) -> StorageError:
    return KINDS.get(error.errno, DiskFailedError)(f"{path}: {error.strerror}")
