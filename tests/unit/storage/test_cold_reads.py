"""A read that would block may say 0, although the file goes on (Linux 5.9 and 5.10): nothing is passed over."""

import os
from pathlib import Path
from typing import Any

import pytest
from tests.unit.storage.logs import Settings, a_batch, append

from penstock.core.os_files import OsFiles
from penstock.records.batch import read_header
from penstock.storage.recovery import open_log
from penstock.storage.segment import ColdRead


def test_a_read_that_says_nothing_is_there_is_a_cold_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(OsFiles(), tmp_path, Settings(segment_bytes=10 * len(a_batch()))).log
    for _ in range(25):
        append(log, a_batch())
    assert [segment.base_offset for segment in log.segments] == [0, 10, 20]
    honest, lies = os.preadv, 1

    def preadv(fd: int, buffers: Any, offset: int, flags: int = 0) -> int:
        nonlocal lies
        if flags & os.RWF_NOWAIT and lies:
            lies -= 1
            return 0
        return honest(fd, buffers, offset, flags)

    monkeypatch.setattr(os, "preadv", preadv)
    with pytest.raises(ColdRead) as cold:
        log.read(5, 100_000, log.end(), at_least_one=True)
    cold.value.warm()
    found = log.read(5, 100_000, log.end(), at_least_one=True)
    assert found is not None
    assert read_header(found.file.pread(61, found.position)).base_offset == 5
    log.close()
