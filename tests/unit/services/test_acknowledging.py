"""Who is told that a batch is committed, when, and of what else."""

import asyncio
from dataclasses import replace

import pytest
from tests.unit.replication.test_retirement import THREE, a_partition, write
from tests.unit.waiting import until

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.replication.leading import Leading
from penstock.replication.partition import Partition
from penstock.services.acknowledging import (
    ALL,
    PendingBatches,
    check_acks,
    is_acknowledged,
    tell_committed,
    until_committed,
)
from penstock.storage.replicated import end_at

FOLLOWER, EPOCH = 2, 7


def replicated(min_isr: int = 1) -> Partition:
    """Of two replicas, both in sync; the other one has nothing yet."""
    partition = a_partition()
    partition.lead(5, Leading(1, THREE, min_isr, epoch_start=0, now=0.0))
    partition.replica_count = 2
    return partition


def follow(partition: Partition, end: int) -> None:
    assert partition.leading is not None
    partition.leading.fetched(FOLLOWER, EPOCH, end, partition.log.end_offset, 0.0)
    partition.advance()


class Told:
    """What becomes of batches that are answered together, and of one by itself."""

    def __init__(self) -> None:
        self.heard: list[object] = []
        self.together = PendingBatches(lambda: self.heard.append("all"))

    def wait_for(self, partition: Partition, last: int, acks: int = ALL) -> None:
        self.together.wait_for(partition, acks, last, lambda code, _: self.heard.append((last, code)))

    def committed(self) -> None:
        self.heard.append("one")

    def failed(self, code: ErrorCode, message: str) -> None:
        self.heard.append(code)


@pytest.mark.parametrize(
    ("acks", "code"),
    [(1, None), (2, None), (ALL, None), (3, ErrorCode.INVALID_REQUIRED_ACKS)],
)
def test_no_more_copies_can_be_asked_for_than_there_are_replicas(acks: int, code: ErrorCode | None) -> None:
    refused: ErrorCode | None = None
    try:
        check_acks(replicated(), acks)
    except ApiError as error:
        refused = error.code
    assert refused is code


def test_nobody_is_promised_what_too_few_in_sync_cannot_keep() -> None:
    partition = replicated()
    leading = partition.leading
    assert leading is not None
    leading.state = replace(THREE, isr=(1,))
    leading.min_isr = 2
    for acks in (ALL, 2):
        with pytest.raises(ApiError) as refused:
            check_acks(partition, acks)
        assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    check_acks(partition, 1)


def test_one_copy_acknowledges_to_who_asks_for_one_and_all_in_sync_to_who_asks_for_all() -> None:
    partition = replicated()
    write(partition)
    assert is_acknowledged(partition, 1, 0)
    assert not is_acknowledged(partition, 2, 0)
    assert not is_acknowledged(partition, ALL, 0)
    follow(partition, 1)
    assert is_acknowledged(partition, 2, 0)
    assert is_acknowledged(partition, ALL, 0)


def test_what_is_answered_together_is_done_with_the_last() -> None:
    partition, told = replicated(), Told()
    write(partition, 3)
    told.wait_for(partition, 0)
    told.wait_for(partition, 1, acks=2)
    told.wait_for(partition, 2)
    follow(partition, 2)
    assert told.heard == []
    follow(partition, 3)
    assert told.heard == ["all"]


def test_who_will_never_hear_is_refused_each_in_its_place_and_done() -> None:
    partition, told = replicated(), Told()
    write(partition, 2)
    told.wait_for(partition, 0)
    told.wait_for(partition, 1, acks=2)
    follow(partition, 1)
    partition.turn_away(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another broker leads the partition now")
    assert told.heard == [(1, ErrorCode.NOT_LEADER_OR_FOLLOWER), "all"]


@pytest.mark.parametrize("acks", [1, 2])
def test_who_waits_for_copies_hears_of_the_commit_where_no_other_replica_is_left(acks: int) -> None:
    partition, told = replicated(), Told()
    partition.sync_before_ack = True
    partition.lease.is_syncing = True  # for longer than all of this takes
    write(partition, 4)
    heard: list[int] = []
    for last, asked in ((0, ALL), (2, ALL), (3, acks), (1, acks)):  # copies are counted in any order
        batches = PendingBatches(lambda last=last: heard.append(last))  # type: ignore[misc]
        batches.wait_for(partition, asked, last, lambda *_: None)
    told.wait_for(partition, 3, acks)
    partition.lead(6, None)  # the other replica was moved away
    assert heard == told.heard == []
    for end in (2, 4):
        partition.limits.move(end_at(partition.log, end))
        assert heard == list(range(end))
    assert told.heard == ["all"]


def test_who_waits_for_more_copies_than_a_commit_takes_hears_when_no_other_replica_is_left() -> None:
    partition, told = replicated(), Told()
    write(partition)
    follow(partition, 1)
    told.wait_for(partition, 0, acks=3)
    assert told.heard == []
    partition.sync_before_ack = True  # what is committed stays so, whatever of it is durable here
    partition.lease.is_syncing = True
    partition.lead(6, None)
    assert told.heard == ["all"]
    assert partition.waiting_producers == 0


async def test_time_is_up_for_copies_elsewhere_and_not_for_a_disk_of_our_own() -> None:
    alone, partition, told = a_partition(), replicated(), Told()
    alone.sync_before_ack = True
    alone.lease.is_syncing = True
    write(alone)
    write(partition)
    told.wait_for(alone, 0)
    told.wait_for(partition, 0)
    told.together.expire_after(asyncio.get_running_loop(), 0)
    async with asyncio.timeout(10):
        await until(lambda: told.heard)
    assert told.heard == [(0, ErrorCode.REQUEST_TIMED_OUT)]
    follow(partition, 1)  # too late
    assert told.heard == [(0, ErrorCode.REQUEST_TIMED_OUT)]
    alone.limits.move(alone.log.end())
    assert told.heard == [(0, ErrorCode.REQUEST_TIMED_OUT), "all"]


def test_what_is_committed_already_is_told_at_once() -> None:
    partition, told = replicated(), Told()
    write(partition, 2)
    follow(partition, 1)
    tell_committed(partition, 0, told)
    assert told.heard == ["one"]
    tell_committed(partition, 1, told)
    assert told.heard == ["one"]
    partition.turn_away(ErrorCode.KAFKA_STORAGE_ERROR, "")
    assert told.heard == ["one", ErrorCode.KAFKA_STORAGE_ERROR]


async def test_who_awaits_it_hears_of_the_commit_of_the_failure_or_that_it_takes_too_long() -> None:
    partition = replicated()
    write(partition, 2)
    with pytest.raises(ApiError) as late:
        await until_committed(partition, 0, 0.001)
    assert late.value.code is ErrorCode.REQUEST_TIMED_OUT
    soon = asyncio.get_running_loop().call_soon
    soon(follow, partition, 1)
    await until_committed(partition, 0, 10)
    soon(partition.turn_away, ErrorCode.UNKNOWN_TOPIC_ID, "")
    with pytest.raises(ApiError) as failed:
        await until_committed(partition, 1, 10)
    assert failed.value.code is ErrorCode.UNKNOWN_TOPIC_ID
