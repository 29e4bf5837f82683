"""What ended behind the high watermark is unsettled after a restart as it was before: its marker may still go."""

import pytest
from tests.unit.replication.test_retirement import NoSyncer
from tests.unit.storage.logs import a_batch, append, opened, sync
from tests.unit.storage.transactions import end, transactional

from penstock.core.errors import StorageError
from penstock.replication import limits as module
from penstock.replication.limits import Limits, Reader
from penstock.replication.partition import Partition
from penstock.storage.log import Log
from penstock.storage.replicated import end_at, truncate
from penstock.testing.mem_files import MemFiles


def restarted(*, committed: bool) -> Log:
    """A transaction from 0, which ends at 3; two other batches between."""
    files = MemFiles()
    log = opened(files).log
    append(log, transactional((1, 0, 0)))
    append(log, a_batch())
    append(log, a_batch())
    end(log, 1, committed=committed)
    sync(log, checkpoint=True)
    return opened(files.kill()).log


def hosted(log: Log, high_watermark: int) -> Partition:
    """As a broker has a replicated log in service that it has opened."""
    partition = Partition(
        "t", bytes(16), 0, log, 0, NoSyncer(), sync_before_ack=False, committed=end_at(log, high_watermark)
    )
    partition.is_leader = False
    return partition


@pytest.mark.parametrize(("high_watermark", "stable"), [(0, 0), (1, 0), (3, 0), (4, 4)])
def test_a_marker_that_is_not_committed_settles_nothing(high_watermark: int, stable: int) -> None:
    partition = hosted(restarted(committed=True), high_watermark)
    assert partition.high_watermark == high_watermark
    assert partition.limits.for_reader(Reader.READ_UNCOMMITTED).offset == high_watermark
    assert partition.limits.for_reader(Reader.READ_COMMITTED).offset == stable
    assert partition.limits.for_reader(Reader.RELAY).offset == stable


def test_a_follower_whose_marker_is_cut_does_not_show_what_was_aborted() -> None:
    """Neither before nor after: the next leader, which lacks the marker, may have another one."""
    log = restarted(committed=False)
    partition = hosted(log, 2)
    for _ in range(2):
        found = partition.read(0, 1000, at_least_one=True, reader=Reader.READ_COMMITTED)
        assert found is None
        truncate(log, 3)
        partition.limits.look_again()
    assert log.producers.transactions.first_offset(1) == 0


def test_where_a_place_cannot_be_read_nothing_is_stable_and_no_more_is_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unreadable(log: Log, offset: int) -> None:
        raise StorageError("not now")

    log = restarted(committed=True)
    committed = end_at(log, 2)
    monkeypatch.setattr(module, "end_at", unreadable)
    limits = Limits(log, committed)
    assert limits.high_watermark == committed
    assert limits.for_reader(Reader.READ_COMMITTED).offset == 0
