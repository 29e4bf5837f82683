"""What is aborted stays known, whichever lists are in memory while it is written, read and cut."""

import pytest
from tests.unit.storage.logs import NOW_MS, Settings, a_batch, append, opened, sync
from tests.unit.storage.transactions import aborted_in, end, transactional

from penstock.core.errors import ApiError
from penstock.storage.aborted_transactions import AbortedTransactions
from penstock.storage.log import Log
from penstock.storage.open_transactions import OpenTransactions
from penstock.storage.segment import ColdRead
from penstock.testing.mem_files import MemFiles

SETTINGS = Settings(index_interval_bytes=1)


def fetch(log: Log, offset: int) -> list[tuple[int, int]]:
    """As a consumer of what is committed has one batch read: which of it was aborted."""
    limit = log.end()
    for _ in range(100):
        try:
            found = log.read(offset, 1, limit, at_least_one=True)
            assert found is not None
            return log.row.aborted_in(offset, found, limit)
        except ColdRead as cold:
            cold.warm()
    raise AssertionError("still cold after a hundred reads")


def nine_segments(files: MemFiles) -> tuple[Log, list[int], int]:
    """Each with an aborted transaction; the offset of the last batch of each, and the producer's next sequence."""
    log = opened(files, SETTINGS).log
    offsets = []
    for number in range(9):
        if number:
            log.roll(NOW_MS)
        append(log, transactional((1, 0, number)))
        end(log, 1, committed=False)
        offsets.append(append(log, a_batch()))
    return log, offsets, 9


def test_readers_of_old_segments_do_no_harm_to_the_next_abort() -> None:
    files = MemFiles()
    log, offsets, sequence = nine_segments(files)
    sync(log, checkpoint=True)  # lists of sealed segments leave memory
    fetch(log, offsets[7])  # one reader near the end
    for number in (0, 2, 4, 6):
        fetch(log, offsets[number])  # and one far behind
    first = append(log, transactional((1, 0, sequence)))
    end(log, 1, committed=False)
    assert (1, first) in fetch(log, first)
    sync(log, checkpoint=True)
    log = opened(files.kill(), SETTINGS).log
    assert (1, first) in fetch(log, first)


def test_lists_of_few_places_are_in_memory() -> None:
    log, offsets, _ = nine_segments(MemFiles())
    sync(log, checkpoint=True)
    assert len(log.row.aborted.cold()) == 8  # all but the last segment's
    aborted_in(log, 0, log.end_offset)
    assert log.row.aborted.cold() == []  # one reader has all that it needs
    log.row.aborted.found(0)
    fetch(log, offsets[0])
    # Another one needs those of the first two segments: besides these, four that were read last stay.
    assert log.row.aborted.cold() == [segment.base_offset for segment in log.segments[2:4]]


def test_a_list_is_whole_though_some_of_it_was_written_while_it_was_cold() -> None:
    """However it came about that the list of a segment is in its file alone: what is added comes behind that."""
    files = MemFiles()
    log = opened(files).log
    for sequence in range(2):
        append(log, transactional((1, 0, sequence)))
        end(log, 1, committed=False)
    sync(log, checkpoint=True)
    row = log.row
    row.aborted.found(0)
    with pytest.raises(ColdRead) as before:
        row.aborted.between(0, 4, row.rebuild_aborted)
    append(log, transactional((1, 0, 2)))
    end(log, 1, committed=False)
    before.value.warm()
    sync(log, checkpoint=True)
    assert aborted_in(log, 0, 6) == [(1, 0), (1, 2), (1, 4)]
    log = opened(files.kill()).log
    assert aborted_in(log, 0, 6) == [(1, 0), (1, 2), (1, 4)]


@pytest.mark.parametrize("broken", [(AbortedTransactions, "add"), (OpenTransactions, "record")])
def test_a_defect_behind_the_write_takes_the_log_offline(
    broken: tuple[type, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the coordinator, which sends the marker again, would be told that there is nothing left to end."""
    files = MemFiles()
    log = opened(files).log
    append(log, transactional((1, 0, 0)))
    with monkeypatch.context() as patch:
        patch.setattr(*broken, _raise)
        with pytest.raises(ZeroDivisionError):
            end(log, 1, committed=False)
    assert log.failed
    with pytest.raises(ApiError):
        end(log, 1, committed=False)
    log = opened(files.kill(), Settings()).log
    assert aborted_in(log, 0, log.end_offset) == [(1, 0)]


def _raise(*_: object) -> None:
    raise ZeroDivisionError
