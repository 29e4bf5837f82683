"""A lock that somebody only looks at is free; one that is held is not."""

import fcntl
import os
from pathlib import Path

import pytest

from penstock.core.files import LockedError
from penstock.core.os_files import OsFiles
from penstock.diagnosis.data_dir import is_locked


def test_who_looks_whether_it_is_held_keeps_nobody_from_taking_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / ".lock"
    path.touch()
    looking = os.open(path, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    honest, tries = fcntl.flock, []

    def flock(fd: int, kind: int) -> None:
        tries.append(kind)
        if len(tries) == 5:
            os.close(looking)
        honest(fd, kind)

    monkeypatch.setattr(fcntl, "flock", flock)
    lock = OsFiles().lock(path)
    assert is_locked(tmp_path)
    lock.release()
    assert not is_locked(tmp_path)


def test_one_that_is_held_is_refused(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    lock = OsFiles().lock(path)
    with pytest.raises(LockedError):
        OsFiles().lock(path)
    lock.release()
    OsFiles().lock(path).release()
