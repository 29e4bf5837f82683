"""A retired partition: what readers see stands still, whatever is written, and whoever leads."""

import pytest
from tests.unit.storage.logs import NOW_MS, a_batch, opened

from penstock.coordination.nodes import PartitionState
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, StorageError
from penstock.records.batch import read_header
from penstock.replication import limits
from penstock.replication.leading import Leading
from penstock.replication.partition import Partition
from penstock.replication.retirement import freeze, is_drained, left_to_move, retire, retirement_of, thaw
from penstock.storage.checkpoint import LogEnd
from penstock.storage.log import Log
from penstock.testing.mem_files import MemFiles

THREE = PartitionState(replicas=(1, 2), isr=(1, 2), leader=1, leader_epoch=5, partition_epoch=9)


class NoSyncer:
    def request(self, partition: Partition) -> None:
        raise AssertionError("nothing here is synced")


def a_partition() -> Partition:
    log = opened(MemFiles()).log
    return Partition("t", bytes(16), 2, log, 5, NoSyncer(), sync_before_ack=False)


def write(partition: Partition, count: int = 1) -> None:
    for _ in range(count):
        batch = a_batch()
        partition.append(memoryview(batch), read_header(batch), NOW_MS)


def refusal(partition: Partition, offset: int) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        partition.read(offset, 1000, at_least_one=True)
    return refused.value.code


def test_readers_keep_what_they_had_and_see_nothing_more() -> None:
    partition = a_partition()
    write(partition, 3)
    assert freeze(partition, NOW_MS) == 3
    write(partition, 4)
    assert (partition.limits.readable.offset, partition.high_watermark) == (3, 7)
    found = partition.read(0, 1 << 20, at_least_one=True)
    assert found is not None
    assert found.size == 3 * len(a_batch())
    assert partition.read(3, 1000, at_least_one=True) is None
    assert refusal(partition, 4) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert freeze(partition, NOW_MS) == 3  # asked again, the same answer


def test_a_new_leader_names_no_limit_before_it_knows_what_its_predecessor_showed() -> None:
    partition = a_partition()
    write(partition, 3)
    partition.stand_back(5)
    leading = Leading(1, THREE, 1, epoch_start=3, now=0.0)
    partition.limits.move(partition.log.end()._replace(offset=1, position=len(a_batch())))
    partition.lead(6, leading)
    with pytest.raises(ApiError) as refused:
        freeze(partition, NOW_MS)
    assert refused.value.code is ErrorCode.OFFSET_NOT_AVAILABLE
    leading.fetched(2, 1, 3, 3, 0.0)
    partition.advance()
    assert freeze(partition, NOW_MS) == 3


def test_a_limit_that_came_to_nothing_is_taken_back() -> None:
    partition = a_partition()
    write(partition, 3)
    freeze(partition, NOW_MS)
    write(partition, 2)
    thaw(partition)
    assert partition.retirement is None
    assert partition.limits.readable == partition.limits.high_watermark
    assert partition.read(3, 1000, at_least_one=True) is not None


def test_a_replica_that_learns_the_limit_before_it_has_all_of_it_shows_what_is_committed() -> None:
    partition = a_partition()
    write(partition, 2)
    retire(partition, 4, None, NOW_MS)
    assert partition.limits.readable.offset == 2
    for _ in range(3):  # as a follower
        batch = a_batch()
        partition.log.append(memoryview(batch), read_header(batch), 5, NOW_MS)
    partition.told_committed(5)
    assert (partition.limits.readable.offset, partition.high_watermark) == (4, 5)
    found = partition.read(3, 1 << 20, at_least_one=True)
    assert found is not None
    assert found.size == len(a_batch())


def test_what_readers_had_may_be_gone_and_the_end_is_still_no_error() -> None:
    partition = a_partition()
    write(partition, 3)
    freeze(partition, NOW_MS)
    write(partition, 3)
    partition.log.advance_start(5)
    assert partition.read(3, 1000, at_least_one=True) is None
    assert refusal(partition, 2) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_closed_inlet_takes_nothing_and_is_drained_when_all_is_moved() -> None:
    partition = a_partition()
    write(partition, 1)
    freeze(partition, NOW_MS)
    write(partition, 2)
    assert not is_drained(partition)
    assert left_to_move(partition) == 2  # nobody knows better yet
    retirement_of(partition).moved = 2
    assert left_to_move(partition) == 1
    retirement_of(partition).moved = 3
    assert left_to_move(partition) == 0
    assert is_drained(partition)
    retirement_of(partition).closed = True
    with pytest.raises(ApiError) as refused:
        write(partition)
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_segment_that_readers_have_left_is_sealed() -> None:
    partition = a_partition()
    write(partition, 3)
    freeze(partition, NOW_MS)
    write(partition, 1)
    assert [segment.base_offset for segment in partition.log.segments] == [0, 3]


@pytest.mark.parametrize("had", [0, 2])
def test_what_is_written_to_a_log_that_lost_its_end_begins_at_the_limit(had: int) -> None:
    """No batch lies on both sides of it: the part below would be shown to nobody, and the whole could not be moved."""
    partition = a_partition()
    write(partition, had)
    retire(partition, 5, None, NOW_MS)
    batch = a_batch([NOW_MS] * 7)
    assert partition.append(memoryview(batch), read_header(batch), NOW_MS) == (5, 11)
    assert (partition.limits.readable.offset, partition.high_watermark) == (5, 12)
    assert partition.log.active.base_offset == 5  # what readers have left can expire
    assert partition.log.start_offset == (0 if had else 5)
    again = opened(partition.log.files.kill()).log  # type: ignore[attr-defined]
    assert again.end_offset == 12


def test_a_read_that_fails_while_it_is_retired_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried again; half retired it would be passed over, and show what lies behind the limit."""
    partition = a_partition()
    write(partition, 5)

    def fails(log: Log, offset: int) -> LogEnd:
        raise StorageError("Input/output error")

    with monkeypatch.context() as failing:
        failing.setattr(limits, "end_at", fails)
        with pytest.raises(StorageError):
            retire(partition, 3, None, NOW_MS)
    assert (partition.limits.readable.offset, partition.retirement) == (5, None)
    retire(partition, 3, None, NOW_MS)
    assert partition.limits.readable.offset == 3
