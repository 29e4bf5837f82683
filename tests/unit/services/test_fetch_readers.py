"""What a consumer's fetch and a follower's fetch see of one and the same partition."""

from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.replication.test_retirement import THREE, a_partition
from tests.unit.storage.logs import NOW_MS, a_batch

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.records.batch import read_header
from penstock.replication.leading import Leading
from penstock.replication.limits import Reader
from penstock.replication.partition import Partition
from penstock.replication.retirement import freeze
from penstock.services.fetching.consumer import ConsumerFetch, consumer_fetch
from penstock.services.fetching.follower import FollowerFetch, FollowerReads
from penstock.services.fetching.found import Found
from penstock.storage.segment import Slice
from penstock.wire.kafka.fetch import FetchPartition

FOLLOWER, STRANGER, EPOCH = 2, 9, 7
SIZE = len(a_batch())


def replicated(committed: int, appended: int) -> Partition:
    """Led here; the follower has what is committed."""
    partition = a_partition()
    leading = Leading(1, THREE, 1, epoch_start=0, now=0.0)
    partition.lead(5, leading)
    for _ in range(appended):
        batch = a_batch()
        partition.append(memoryview(batch), read_header(batch), NOW_MS)
    leading.fetched(FOLLOWER, EPOCH, committed, appended, 0.0)
    partition.advance()
    assert partition.high_watermark == committed
    return partition


def at(offset: int, *, last_epoch: int = -1) -> FetchPartition:
    return FetchPartition(2, -1, offset, last_epoch, 0, 1 << 20)


def read(reads: ConsumerFetch | FollowerFetch, partition: Partition, wanted: FetchPartition) -> Any:
    return reads.read(partition, wanted, 1 << 20, at_least_one=True)


def count(found: Slice | Found) -> int:
    """Batches."""
    return found.size // SIZE


def consumer(isolation: int = 0) -> ConsumerFetch:
    return consumer_fetch(isolation, b"", None, led=False)


class Heard:
    """What a leader's services hear of followers."""

    def __init__(self) -> None:
        self.fetched: list[int] = []
        keeper = SimpleNamespace(fetched=lambda partition, replica: self.fetched.append(replica))
        image = SimpleNamespace(brokers={FOLLOWER: SimpleNamespace(epoch=EPOCH)})
        throttle = SimpleNamespace(allowance=lambda partition, replica, size: size, is_on=False)
        self.reads = FollowerReads(image, keeper, throttle, lambda: 1.0)  # type: ignore[arg-type]

    def fetch(self, replica: int = FOLLOWER) -> FollowerFetch:
        return FollowerFetch(replica, EPOCH, self.reads)


def test_a_consumer_sees_what_is_committed_and_a_follower_all_there_is() -> None:
    partition = replicated(committed=2, appended=5)
    assert count(read(consumer(), partition, at(0))) == 2
    assert count(read(Heard().fetch(), partition, at(2))) == 3


@pytest.mark.parametrize(("isolation", "batches"), [(0, 4), (1, 3)])
def test_an_open_transaction_hides_records_from_those_only_who_read_committed(
    isolation: int, batches: int
) -> None:
    partition = replicated(committed=4, appended=5)
    partition.log.producers.transactions.add([(7, 0, 3, -1)])
    partition.limits.look_again()
    assert count(read(consumer(isolation), partition, at(0))) == batches
    behind = read(consumer(isolation), partition, at(4))
    assert (behind.error, behind.high_watermark, behind.last_stable_offset) == (0, 4, 3)
    assert count(read(Heard().fetch(), partition, at(4))) == 1


def test_a_retired_partition_hides_nothing_from_followers_but_tells_them_no_more_than_consumers() -> None:
    partition = replicated(committed=2, appended=2)
    freeze(partition, NOW_MS)
    batch = a_batch()
    partition.append(memoryview(batch), read_header(batch), NOW_MS)
    heard = Heard()
    assert count(read(heard.fetch(), partition, at(2))) == 1
    nothing = read(heard.fetch(), partition, at(3))
    assert partition.high_watermark == 3  # it has it now
    assert nothing.high_watermark == 2
    assert read(consumer(), partition, at(2)).high_watermark == 2


def test_a_consumer_beyond_the_end_is_refused_and_a_follower_told_where_to_begin() -> None:
    partition = replicated(committed=2, appended=3)
    with pytest.raises(ApiError) as refused:
        read(consumer(), partition, at(4))
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    answer = read(Heard().fetch(), partition, at(4))
    assert (answer.error, answer.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 0)


def test_both_are_told_where_they_left_our_history() -> None:
    partition = replicated(committed=2, appended=3)
    partition.stand_back(6)
    partition.lead(8, Leading(1, THREE, 1, epoch_start=3, now=0.0))
    for reads in (consumer(), Heard().fetch()):
        assert read(reads, partition, at(3, last_epoch=7)).diverging == (5, 3)


def test_a_follower_is_noted_once_for_a_request_however_often_that_is_tried() -> None:
    partition, heard = replicated(committed=2, appended=3), Heard()
    fetch = heard.fetch()
    read(fetch, partition, at(3))
    read(fetch, partition, at(3))
    assert heard.fetched == [FOLLOWER]
    assert partition.high_watermark == 3


def test_who_is_no_replica_gets_nothing_and_counts_for_nothing() -> None:
    partition, heard = replicated(committed=2, appended=3), Heard()
    with pytest.raises(ApiError) as refused:
        read(heard.fetch(STRANGER), partition, at(3, last_epoch=5))
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (heard.fetched, partition.high_watermark) == ([], 2)


@pytest.mark.parametrize(("rack", "preferred"), [(b"near", FOLLOWER), (b"", None)])
def test_a_consumer_is_sent_to_a_replica_near_it(rack: bytes, preferred: int | None) -> None:
    partition = replicated(committed=2, appended=2)
    nearest: Any = SimpleNamespace(choose=lambda partition, rack, offset: FOLLOWER)
    found = read(consumer_fetch(0, rack, nearest, led=False), partition, at(0))
    assert getattr(found, "preferred_replica", None) == preferred


def test_each_waits_on_its_own_limit() -> None:
    assert consumer(0).reader is Reader.READ_UNCOMMITTED
    assert consumer(1).reader is Reader.READ_COMMITTED
    assert Heard().fetch().reader is Reader.FOLLOWER


@pytest.mark.parametrize("reads", [consumer(), Heard().fetch()], ids=["consumer", "follower"])
def test_a_negative_limit_of_bytes_is_refused(reads: ConsumerFetch | FollowerFetch) -> None:
    with pytest.raises(ApiError) as refused:
        reads.read(replicated(2, 2), at(0), -1, at_least_one=True)
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
