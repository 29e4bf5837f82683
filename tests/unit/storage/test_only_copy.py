"""An only copy that lost files knows what it lost: it waits for no others, whatever stops the start that finds it."""

import random
from pathlib import Path

import pytest
from tests.property.log_story import PowerCut, interrupt
from tests.unit.storage.logs import DIRECTORY, Settings, a_batch, append, opened, read_everything, sync

from penstock.core.errors import DiskFullError
from penstock.records.batch import read_header
from penstock.storage.layout import LOG, RECOVERY_POINT_FILE, segment_name
from penstock.storage.log import Log
from penstock.storage.recovery import open_log
from penstock.testing.mem_files import MemFiles

END = 10
THREE_EACH = Settings(segment_bytes=3 * len(a_batch(producer=(7, 0, 0))))  # segments from 0, 3, 6 and 9 on
LAST = DIRECTORY / segment_name(9, LOG)
REPEAT = read_header(a_batch(producer=(7, 0, END - 1)))


def robbed() -> tuple[MemFiles, bytes]:
    """Without its last file, which is also returned."""
    files = MemFiles(1)
    log = opened(files, THREE_EACH).log
    for number in range(END):
        append(log, a_batch(producer=(7, 0, number)))
    sync(log, checkpoint=True)
    log.close()
    files = files.kill()
    last = files.read(LAST)
    files.unlink(LAST)
    files.sync_dir(DIRECTORY)
    return files.kill(), last


def start(files: MemFiles) -> Log:
    return open_log(files, DIRECTORY, THREE_EACH, only_copy=True, has_laggards=True).log


def no_room(path: Path, _: bytes) -> None:
    raise DiskFullError(f"{path}: No space left on device")


def test_its_recovery_point_could_not_be_replaced_on_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    files, _ = robbed()
    with monkeypatch.context() as full:
        full.setattr(files, "write_atomically", no_room)
        assert not start(files).is_incomplete
    files = files.kill()
    log = start(files)
    assert not log.is_incomplete
    assert (log.start_offset, append(log, a_batch())) == (0, END)
    assert [batch.base_offset for batch in read_everything(log)] == [*range(9), END]


def test_once_it_is_replaced_it_is_missed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    files, _ = robbed()
    with monkeypatch.context() as full:
        full.setattr(files, "write_atomically", no_room)
        log = start(files)
    sync(log, checkpoint=True)
    files = files.kill()
    files.unlink(DIRECTORY / RECOVERY_POINT_FILE)
    assert start(files).is_incomplete


@pytest.mark.parametrize("how", ["kill", "cut"])
def test_a_start_was_stopped_and_what_is_lost_was_put_back(how: str) -> None:
    stopped, operations, knew = True, 0, 0
    while stopped:
        files, last = robbed()
        interrupt(files, operations)
        try:
            start(files)
            stopped = False
        except PowerCut:
            pass
        files.__dict__.pop("enter", None)
        files = files.crash(random.Random(operations)) if how == "cut" else files.kill()
        files.write_atomically(LAST, last)
        log = start(files)
        assert not log.is_incomplete, operations
        assert [batch.base_offset for batch in read_everything(log)] == list(range(END))
        knew += log.find_repeat(REPEAT) is not None
        operations += 1
    assert operations > 10
    assert knew
