"""What was committed at the last stop: a hint that is there, is not there, or cannot be read just now."""

from pathlib import Path

import pytest

from penstock.core.errors import DiskFailedError
from penstock.storage.high_watermarks import HighWatermarks, Mark
from penstock.testing.mem_files import MemFiles

DATA = Path("/data")
TOPIC = bytes(16)


def marked() -> MemFiles:
    files = MemFiles()
    files.make_dirs(DATA)
    HighWatermarks(files, DATA).save({(TOPIC, 0): Mark(7, 2)})
    return files


def test_a_read_that_fails_once_is_not_taken_for_there_are_none() -> None:
    files = marked()
    marks = HighWatermarks(files, DATA)
    files.fail_next("read")
    with pytest.raises(DiskFailedError):
        marks.of(TOPIC, 0)
    assert marks.of(TOPIC, 0) == Mark(7, 2)


@pytest.mark.parametrize("data", [b"", b"[]", b'{"a": "b"}'])
def test_damaged_ones_are_none(data: bytes) -> None:
    files = marked()
    files.write_atomically(DATA / "high-watermarks.json", data)
    assert HighWatermarks(files, DATA).of(TOPIC, 0) == Mark()
