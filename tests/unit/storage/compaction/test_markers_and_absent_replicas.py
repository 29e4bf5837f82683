"""Who was away with the records of a transaction, and not with its marker, is sent back to the beginning (ADR 14)."""

import pytest
from tests.unit.storage.compacting import clean_job, keyed, run_round, seal, swap_all
from tests.unit.storage.logs import NOW_MS, Settings, append, opened, read, read_everything
from tests.unit.storage.transactions import end, transactional

from penstock.storage.log import Log
from penstock.storage.replicated import append_replicated
from penstock.testing.mem_files import MemFiles

PRODUCER = 7
MARKER = 1  # its offset


def compacted(*, committed: bool, stay_from: float) -> tuple[Log, bytes, int]:
    """A log, its first batch as it was, and below which offset it says that something is missing."""
    log = opened(MemFiles(1), Settings(compacts=True, index_interval_bytes=100)).log
    append(log, transactional((PRODUCER, 0, 0)))
    first = read(log, 0)
    end(log, PRODUCER, committed=committed)
    append(log, keyed([(b"k", b"later"), (b"x", b"1")]))
    seal(log)
    lacking = 0
    for now_ms in (NOW_MS, NOW_MS, NOW_MS + 5000, NOW_MS + 5000):
        known = log.row.aborted
        aborted = known.all(known.read(known.cold(), log.row.rebuild_aborted))
        assert aborted is not None
        job = clean_job(log, now_ms=now_ms)._replace(
            aborted=tuple(aborted), producers={}, tombstones_stay_from=stay_from
        )
        done = run_round(job)
        lacking = max([lacking, *(segment.tombstones_to for segment in done.segments)])
        swap_all(log, done)
    return log, first, lacking


@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_that_goes_counts_as_a_tombstone_does(committed: bool) -> None:
    log, _, lacking = compacted(committed=committed, stay_from=float("inf"))
    assert not any(header.is_control for header in read_everything(log))
    assert lacking == MARKER + 1


@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_that_a_follower_is_on_its_way_to_stays(committed: bool) -> None:
    log, first, lacking = compacted(committed=committed, stay_from=MARKER)
    assert lacking == 0
    replica = opened(MemFiles(2), Settings(compacts=True)).log
    append_replicated(replica, memoryview(first), NOW_MS)
    append_replicated(replica, memoryview(read(log, replica.end_offset)), NOW_MS)
    assert replica.producers.transactions.first_offset(PRODUCER) == -1
    assert [header.base_offset for header in read_everything(log) if header.is_control] == [MARKER]
