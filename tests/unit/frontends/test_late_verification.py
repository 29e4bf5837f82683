"""What the coordinator of transactions says of one counts only if nothing has happened since it was asked."""

import asyncio

import pytest
from tests.unit.frontends.group_requests import active, machine, prepared
from tests.unit.frontends.in_memory import Asked
from tests.unit.frontends.transactional_commits import (
    PRODUCER,
    Coordinator,
    end,
    serving,
    shard,
    txn_commit,
)
from tests.unit.waiting import until

from penstock.core.error_codes import ErrorCode


async def _asked_meanwhile(
    asked: Asked, coordinator: Coordinator, version: int, epoch: int
) -> asyncio.Task[int]:
    coordinator.answers.clear()
    asking = asyncio.create_task(txn_commit(asked, version, producer_epoch=epoch))
    await until(lambda: len(coordinator.asked) == 1)
    return asking


@pytest.mark.parametrize(
    ("version", "marker_epoch", "expected"),
    [
        (3, 1, ErrorCode.INVALID_TXN_STATE),
        (4, 1, ErrorCode.TRANSACTION_ABORTABLE),
        (5, 1, 0),  # the end of the transaction before, which carries the epoch of this one
        (5, 0, ErrorCode.TRANSACTION_ABORTABLE),
        (5, 2, ErrorCode.TRANSACTION_ABORTABLE),
    ],
)
async def test_a_marker_in_between_makes_the_coordinators_answer_void(
    version: int, marker_epoch: int, expected: int
) -> None:
    async with serving(machine()) as (asked, coordinator):
        await prepared(asked)
        asking = await _asked_meanwhile(asked, coordinator, version, 1)
        await end(asked, committed=False, epoch=7, producer_id=PRODUCER + 1)  # another one's
        await end(asked, committed=False, epoch=marker_epoch)
        coordinator.answers.set()
        assert await asking == expected
        assert bool(shard(asked).state.pending.by_group) == (expected == 0)
        assert not shard(asked).guards._by_producer


async def test_a_shard_that_was_loaded_anew_knows_of_no_guard() -> None:
    async with serving(machine()) as (asked, coordinator):
        await prepared(asked)
        asking = await _asked_meanwhile(asked, coordinator, 5, 0)
        shard(asked).go_offline("for a test")
        await active(asked)
        coordinator.answers.set()
        assert await asking == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await txn_commit(asked, 5) == 0


async def test_a_shard_that_is_offline_by_then_takes_nothing() -> None:
    async with serving(machine()) as (asked, coordinator):
        await prepared(asked)
        asking, here = await _asked_meanwhile(asked, coordinator, 5, 0), shard(asked)
        here.go_offline("for a test")
        coordinator.answers.set()
        assert await asking in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        assert not here.state.groups
        await active(asked)


async def test_a_topic_that_goes_meanwhile_is_not_committed_for() -> None:
    async with serving(machine()) as (asked, coordinator):
        await prepared(asked)
        asking = await _asked_meanwhile(asked, coordinator, 5, 0)
        await asked.broker.metadata.delete_topic("orders")
        await until(lambda: shard(asked).unheard is None)
        coordinator.answers.set()
        assert await asking == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert not shard(asked).state.groups
