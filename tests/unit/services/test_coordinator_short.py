"""A coordinator whose topic has too few replicas in sync: who wants something stored is refused, in time."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import wraps
from typing import Any

from tests.unit.frontends.in_memory import Machine
from tests.unit.services.test_coordinator_kind import Accounts, added, answer_to, coordinating, later

from penstock.coordination.nodes import PartitionState
from penstock.core.error_codes import ErrorCode
from penstock.groups.decision import CoordinatorRecord
from penstock.replication.leading import Leading
from penstock.services.coordinator.shard import Shard, Status
from penstock.testing.sim_loop import SimLoop

BOTH = PartitionState(replicas=(1, 2), isr=(1, 2), leader=1, leader_epoch=0, partition_epoch=0)
ALONE = replace(BOTH, isr=(1,), partition_epoch=1)
FOLLOWER = 2
RECORD = CoordinatorRecord(b"a", b"10")


TIMEOUT_SECONDS = 0.05  # of `AccountKind`


def in_virtual_time(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @wraps(test)
    def run() -> None:
        with SimLoop(0) as loop:
            loop.run_until_complete(loop.spawn("test", test()))

    return run


async def until(is_true: Callable[[], object]) -> None:
    while not is_true():  # noqa: ASYNC110
        await asyncio.sleep(0.1)


def replicated(shard: "Shard[Accounts, int]", state: PartitionState) -> Leading:
    partition = shard.partition
    leading = partition.leading = Leading(1, state, 2, partition.log.end_offset, 0.0)
    caught_up(shard)
    return leading


def caught_up(shard: "Shard[Accounts, int]", behind: int = 0) -> None:
    """The other replica has everything, or all but so many records."""
    partition = shard.partition
    assert partition.leading is not None
    end = partition.log.end_offset - behind
    partition.leading.fetched(FOLLOWER, 7, end, end, 0.0)
    partition.advance()


@in_virtual_time
async def test_what_other_replicas_do_not_have_in_time_takes_the_shard_offline_until_they_have_it() -> None:
    async with coordinating(Machine()) as (_, runtime):
        shard = runtime.shard_of("a")
        await added(shard, "a", 1)
        replicated(shard, BOTH)
        shard.store([RECORD])
        shard.answer(written := later(), "stored")
        await asyncio.sleep(0)
        shard.answer(read := later(), "read")
        assert await answer_to(written) is await answer_to(read) is ErrorCode.NOT_COORDINATOR
        await until(lambda: shard.status is Status.LOADING)
        assert shard.state.known == {}, "nothing is told that is not committed"
        caught_up(shard)
        await until(lambda: shard.status is Status.ACTIVE)
        assert shard.state.known["a"].amount == 11, "it may count though it was refused"


@in_virtual_time
async def test_what_is_committed_in_time_goes_on_however_much_comes_after_it() -> None:
    async with coordinating(Machine()) as (_, runtime):
        shard = runtime.shard_of("a")
        replicated(shard, BOTH)
        told = []
        for _ in range(20):
            shard.store([RECORD])
            shard.answer(written := later(), "stored")
            await asyncio.sleep(TIMEOUT_SECONDS / 5)
            told.append(written)
            if len(told) > 2:  # so that some are under way whenever it looks
                caught_up(shard, behind=2)
                assert not written.is_there
                assert await answer_to(told[-3]) == "stored"


@in_virtual_time
async def test_a_disk_of_our_own_has_all_the_time_it_takes() -> None:
    async with coordinating(Machine()) as (_, runtime):
        shard = runtime.shard_of("a")
        partition = shard.partition
        partition.sync_before_ack = True
        partition.lease.is_syncing = True
        shard.store([RECORD])
        shard.answer(written := later(), "stored")
        await asyncio.sleep(0.2)
        assert not written.is_there
        partition.limits.move(partition.log.end())
        assert await answer_to(written) == "stored"


@in_virtual_time
async def test_while_too_few_are_in_sync_nothing_is_to_be_stored_and_reads_are_answered() -> None:
    async with coordinating(Machine()) as (_, runtime):
        shard = runtime.shard_of("a")
        await added(shard, "a", 1)
        leading = replicated(shard, BOTH)
        assert shard.may_store()
        leading.state = ALONE
        assert not shard.may_store()
        shard.answer(read := later(), "read")
        assert read.is_there
        leading.state = BOTH
        assert shard.may_store()


@in_virtual_time
async def test_what_is_due_waits_while_it_cannot_be_stored_and_who_waits_for_it_does_not() -> None:
    async with coordinating(Machine()) as (_, runtime):
        shard = runtime.shard_of("savings")
        await added(shard, "savings", 5)
        leading, account = replicated(shard, ALONE), shard.state.known["savings"]
        end = shard.partition.log.end_offset
        shard.state.asked.append(waiting := later())
        shard.decide(account, lambda: shard.state.begin(account, 3, shard.now()))
        assert await answer_to(waiting) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await asyncio.sleep(3)
        assert (account.amount, shard.partition.log.end_offset) == (5, end)
        leading.state = BOTH
        await until(lambda: account.amount == 8)


@in_virtual_time
async def test_a_shard_hears_of_topics_once_it_can_store_what_follows() -> None:
    async with coordinating(Machine()) as (asked, runtime):
        shard = runtime.shard_of("a")
        leading = replicated(shard, ALONE)
        asked.broker.image_news.register(runtime.image_changed)
        await asked.create("t")
        await asyncio.sleep(3)
        assert shard.state.heard == []
        assert shard.unheard == {"t"}, "who reads looks for itself"
        leading.state = BOTH
        await until(lambda: shard.unheard is None)
        assert shard.state.heard == ["t: 1"]
