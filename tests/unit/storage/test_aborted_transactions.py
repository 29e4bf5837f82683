"""What is aborted stays known, whichever lists are in memory while it is written, read and cut."""

from collections.abc import Callable

import pytest
from tests.unit.storage.logs import NOW_MS, Settings, a_batch, append, opened, sync
from tests.unit.storage.transactions import aborted_in, end, transactional

from penstock.core.errors import ApiError
from penstock.storage import aborted_transactions
from penstock.storage.aborted_transactions import AbortedTransactions
from penstock.storage.log import Log
from penstock.storage.open_transactions import OpenTransactions
from penstock.storage.replicated import truncate
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


def sealed_and_cold(files: MemFiles, lead: Callable[[Log], None]) -> Log:
    log = opened(files).log
    lead(log)
    append(log, transactional((1, 0, 0)))
    end(log, 1, committed=False)
    log.roll(NOW_MS)
    append(log, a_batch())
    sync(log, checkpoint=True)
    assert len(log.row.aborted.cold()) == 1
    return log


def a_segment(log: Log) -> None:
    append(log, a_batch())
    log.roll(NOW_MS)


def test_a_log_is_cut_to_the_beginning_of_a_segment_whose_list_is_not_in_memory() -> None:
    log = sealed_and_cold(MemFiles(), a_segment)
    truncate(log, 1)
    assert not log.row.aborted
    append(log, transactional((1, 0, 0)))
    end(log, 1, committed=False)
    assert aborted_in(log, 0, 3) == [(1, 1)]


def test_what_was_aborted_behind_such_a_cut_is_known_after_a_restart() -> None:
    files = MemFiles()
    log = sealed_and_cold(files, a_segment)
    truncate(log, 1)
    append(log, transactional((2, 0, 0)))
    end(log, 2, committed=False)
    assert log.producers.transactions.first_offset(2) == -1
    sync(log, checkpoint=True)
    log = opened(files.kill()).log
    assert log.producers.transactions.first_unstable(log.end_offset) is None
    assert aborted_in(log, 0, log.end_offset) == [(2, 1)]


def two_batches(log: Log) -> None:
    append(log, a_batch())
    append(log, a_batch())


@pytest.mark.parametrize("cut_in", ["the reading", "the way back to the loop"])
def test_what_was_read_before_a_cut_is_not_taken_for_what_is_there(
    cut_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = sealed_and_cold(MemFiles(), two_batches)
    load = aborted_transactions.load

    def cut_behind(*args: object) -> object:
        found = load(*args)  # type: ignore[arg-type]
        patch.undo()
        truncate(log, 2)
        return found

    with pytest.raises(ColdRead) as cold:
        log.row.aborted.between(0, 4, log.row.rebuild_aborted)
    if cut_in == "the reading":
        with monkeypatch.context() as patch:
            patch.setattr(aborted_transactions, "load", cut_behind)
            cold.value.warm()
    else:
        cold.value.warm()
        truncate(log, 2)
    append(log, transactional((1, 0, 0)))  # 2, of the next leader's
    end(log, 1, committed=True)
    assert aborted_in(log, 0, 4) == []


def test_who_reads_nothing_behind_a_list_that_is_in_memory_gets_on() -> None:
    """What is read of files for it ends where it looks at them, at the first transaction behind its own place."""
    log, _, _ = nine_segments(MemFiles())
    sync(log, checkpoint=True)
    base = log.segments[3].base_offset
    assert aborted_in(log, base, base + 2) == [(1, base)]
    assert log.row.aborted.cold() == [
        each.base_offset for each in log.segments[:-1] if each.base_offset != base
    ]
    assert aborted_in(log, base + 2, base + 2) == []
