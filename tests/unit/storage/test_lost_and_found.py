"""A loss that was noted and not told: the log that the next start opens has got some of it back, or all."""

import pytest
from tests.unit.storage.logs import DIRECTORY, Settings, a_batch, append, opened, sync

from penstock.records.batch import read_header
from penstock.storage.log import Log
from penstock.storage.lost import forget_lost, note_lost
from penstock.storage.recovery import open_log
from penstock.testing.mem_files import MemFiles

END = 4
PRODUCER = 7


def started(files: MemFiles) -> Log:
    """As the only copy."""
    return open_log(files, DIRECTORY, Settings(), only_copy=True).log


@pytest.fixture
def files() -> MemFiles:
    files = MemFiles(1)
    log = opened(files).log
    for number in range(END):
        append(log, a_batch(producer=(PRODUCER, 0, number)))
    sync(log, checkpoint=True)
    log.close()
    return files


def test_a_log_that_has_it_all_again_still_knows_its_producers(files: MemFiles) -> None:
    note_lost(files, DIRECTORY, (2, END))
    log = started(files)
    assert log.end_offset == END
    repeat = log.find_repeat(read_header(a_batch(producer=(PRODUCER, 0, END - 1))))
    assert repeat is not None, "the last batch, sent again, would be stored twice"
    assert repeat.first_offset == END - 1


def test_what_is_written_behind_the_gap_outlives_a_kill(files: MemFiles) -> None:
    """Also where the recovery point was right, so that nothing was scanned."""
    end = END + 2
    note_lost(files, DIRECTORY, (2, end))
    log = started(files)
    forget_lost(files, DIRECTORY)
    assert append(log, a_batch()) == end
    sync(log)
    log = started(files.kill())
    assert log.end_offset == end + 1, "acknowledged, and gone; its offset would be given anew"
