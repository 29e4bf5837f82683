"""TxnOffsetCommit through its handler, on a broker in memory."""

import asyncio

import pytest
from tests.unit.frontends.group_requests import commit, fetch, machine, prepared, stable
from tests.unit.frontends.transactional_commits import (
    NOTHING,
    PRODUCER,
    UNSTABLE,
    end,
    fetch_stable,
    serving,
    shard,
    txn_commit,
)

from penstock.core.error_codes import ErrorCode
from penstock.core.session import Session
from penstock.frontends.kafka.handlers import api_versions
from penstock.frontends.kafka.registry import Call
from penstock.groups.offsets.commit import Committer
from penstock.records.reader import iter_batches
from penstock.services.coordinator.transactional_offsets import TransactionalProducer, verification_error
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import delete_groups, offset_delete, offset_fetch
from penstock.wire.kafka.generated.api_versions import ApiVersionsRequest

# -- what it does -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
async def test_offsets_count_when_the_transaction_is_committed(version: int) -> None:
    async with serving(machine()) as (asked, coordinator):
        await prepared(asked)
        assert await commit(asked, offset=1) == 0
        assert await txn_commit(asked, version) == 0
        partition = shard(asked).partition
        adds = version >= 5
        assert coordinator.asked == [("tid", PRODUCER, 0, "__consumer_offsets", partition.index, adds)]
        assert await fetch(asked) == [(0, 1, "note", 0), NOTHING]
        for fetch_version in (7, 8, 10):
            assert await fetch_stable(asked, fetch_version) == [UNSTABLE, NOTHING]
        await end(asked, committed=True)
        assert await fetch(asked) == await fetch_stable(asked) == [(0, 5, "txn", 0), NOTHING]


async def test_they_are_stored_as_the_producers_own_without_a_sequence() -> None:
    async with serving(machine()) as (asked, _):
        await prepared(asked)
        await commit(asked, offset=1)
        await txn_commit(asked)
        await end(asked, committed=False)
        log = shard(asked).partition.log
        found = log.read(0, 1 << 20, log.end(), at_least_one=True)
        assert found is not None
        batches = [header for _, header in iter_batches(found.file.pread(found.size, found.position))]
        assert [
            (each.producer_id, each.base_sequence, each.is_transactional, each.is_control) for each in batches
        ] == [(-1, -1, False, False), (PRODUCER, -1, True, False), (PRODUCER, -1, True, True)]
        assert await fetch_stable(asked) == [(0, 1, "note", 0), NOTHING]


async def test_a_commit_behind_them_is_not_overtaken() -> None:
    async with serving(machine()) as (asked, _):
        await prepared(asked)
        await txn_commit(asked)
        assert await commit(asked, offset=9) == 0
        assert await fetch_stable(asked) == [UNSTABLE, NOTHING]
        await end(asked, committed=True)
        assert await fetch(asked) == [(0, 9, "note", 0), NOTHING]


async def test_a_transaction_that_is_open_here_is_not_asked_for_again() -> None:
    async with serving(machine()) as (asked, coordinator):
        await prepared(asked)
        for offset in (1, 2):
            assert await txn_commit(asked, offset=offset) == 0
        assert len(coordinator.asked) == 1
        await end(asked, committed=True)
        coordinator.code = ErrorCode.TRANSACTION_ABORTABLE
        assert await txn_commit(asked) == ErrorCode.INVALID_TXN_STATE
        assert len(coordinator.asked) == 2


async def test_an_open_transaction_is_still_open_after_a_restart() -> None:
    disk = machine()
    async with serving(disk) as (asked, _):
        await prepared(asked)
        await commit(asked, offset=1)
        await txn_commit(asked)
        await txn_commit(asked, producer_id=PRODUCER + 1, partition=1, offset=6)
        await end(asked, committed=True, producer_id=PRODUCER + 1)
        before = shard(asked).state.size_bytes
    async with serving(disk) as (asked, coordinator):
        assert shard(asked).state.size_bytes == before
        assert await fetch_stable(asked) == [UNSTABLE, (1, 6, "txn", 0)]
        assert await txn_commit(asked, offset=7) == 0
        assert not coordinator.asked, "the log knows that it is open"
        await end(asked, committed=True)
    async with serving(disk) as (asked, _):
        assert await fetch_stable(asked) == [(0, 7, "txn", 0), (1, 6, "txn", 0)]


async def test_who_asks_for_everything_is_told_of_what_is_only_pending() -> None:
    async with serving(machine()) as (asked, _):
        await prepared(asked)
        await txn_commit(asked)
        group = offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=None)
        request = offset_fetch.OffsetFetchRequest(groups=[group], require_stable=True)
        (topic,) = (await asked.ask(ApiKey.OFFSET_FETCH, request, 8)).groups[0].topics
        assert [partition.error_code for partition in topic.partitions] == [ErrorCode.UNSTABLE_OFFSET_COMMIT]


# -- who may ------------------------------------------------------------------------------------------------


async def test_members_are_checked_where_they_are_named() -> None:
    async with serving(machine()) as (asked, _):
        member = await stable(asked)
        assert await txn_commit(asked, 2) == 0
        assert await txn_commit(asked, generation_id=1, member_id=member) == 0
        assert await txn_commit(asked, generation_id=0, member_id=member) == ErrorCode.ILLEGAL_GENERATION
        assert await txn_commit(asked, generation_id=1, member_id="m") == ErrorCode.UNKNOWN_MEMBER_ID
        unknown = {"group_id": "another", "generation_id": 1, "member_id": member}
        assert await txn_commit(asked, **unknown) == ErrorCode.ILLEGAL_GENERATION


async def test_what_cannot_be_stored_is_refused() -> None:
    async with serving(machine({"offset.metadata.max.bytes": "10"})) as (asked, coordinator):
        await prepared(asked)
        assert await txn_commit(asked, topic="none") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await txn_commit(asked, partition=2) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await txn_commit(asked, group_id="") == ErrorCode.INVALID_GROUP_ID
        assert await txn_commit(asked, producer_id=-1) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert await txn_commit(asked, producer_id=1 << 62) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert not coordinator.asked
        assert await txn_commit(asked, metadata="x" * 11) == ErrorCode.OFFSET_METADATA_TOO_LARGE
        producer = TransactionalProducer("tid", PRODUCER, 0)
        by = Committer("ä" * 20_000, "", None, -1, 3)
        assert (
            await asked.services.transactional_offsets.commit(producer, by, list)
            is ErrorCode.INVALID_GROUP_ID
        )
        assert not shard(asked).state.groups


async def test_pending_offsets_are_bounded_as_committed_ones_are(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(machine()) as (asked, _):
        await prepared(asked)
        await txn_commit(asked)
        room = asked.services.group_offsets.room
        monkeypatch.setattr(type(room), "left_bytes", 0)
        assert await txn_commit(asked, partition=1) == ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        assert await txn_commit(asked, offset=6) == 0, "in place of the one before"
        monkeypatch.setattr(room, "has_for_group", lambda _: False)
        assert await txn_commit(asked, group_id="new") == ErrorCode.INVALID_COMMIT_OFFSET_SIZE


async def test_an_older_epoch_is_refused_and_harms_nobody() -> None:
    async with serving(machine()) as (asked, _):
        await prepared(asked)
        assert await txn_commit(asked, producer_epoch=3) == 0
        assert await txn_commit(asked, producer_epoch=2) == ErrorCode.INVALID_PRODUCER_EPOCH
        await end(asked, committed=False, epoch=4)
        assert await txn_commit(asked, producer_epoch=3) == ErrorCode.INVALID_PRODUCER_EPOCH
        both = [txn_commit(asked, producer_epoch=epoch) for epoch in (6, 5)]  # in one turn
        assert await asyncio.gather(*both) == [0, ErrorCode.INVALID_PRODUCER_EPOCH]


@pytest.mark.parametrize(
    ("code", "version", "expected"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, 3, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 4, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.INVALID_TXN_STATE, 5, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.PRODUCER_FENCED, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 3, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.NETWORK_EXCEPTION, 3, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.NOT_COORDINATOR, 3, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 4, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 5, ErrorCode.CONCURRENT_TRANSACTIONS),
    ],
)
async def test_what_the_coordinator_says_in_words_that_clients_know(
    code: ErrorCode, version: int, expected: ErrorCode
) -> None:
    assert verification_error(code, version) is expected


async def test_a_refused_transaction_leaves_nothing_behind() -> None:
    async with serving(machine()) as (asked, coordinator):
        await prepared(asked)
        coordinator.code = ErrorCode.NETWORK_EXCEPTION
        assert await txn_commit(asked, 3) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert await txn_commit(asked, 1) == ErrorCode.COORDINATOR_NOT_AVAILABLE, (
            "versions that know no better"
        )
        state = shard(asked).state
        assert (state.groups, state.pending.by_group) == ({}, {})


async def test_where_nobody_coordinates_transactions_clients_try_again() -> None:
    async with machine().broker() as asked:
        await prepared(asked)
        assert await txn_commit(asked) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


# -- what takes them away -----------------------------------------------------------------------------------


async def test_what_is_deleted_is_not_committed_by_a_transaction_that_ends_later() -> None:
    disk = machine()
    async with serving(disk) as (asked, _):
        await prepared(asked)
        await txn_commit(asked)
        partition = offset_delete.OffsetDeleteRequestPartition(partition_index=0)
        topic = offset_delete.OffsetDeleteRequestTopic(name="orders", partitions=[partition])
        request = offset_delete.OffsetDeleteRequest(group_id="g", topics=[topic])
        assert (await asked.ask(ApiKey.OFFSET_DELETE, request, 0)).error_code == 0
        assert not shard(asked).state.groups
        await txn_commit(asked, partition=1)
        deleting = delete_groups.DeleteGroupsRequest(groups_names=["g"])
        assert (await asked.ask(ApiKey.DELETE_GROUPS, deleting, 2)).results[0].error_code == 0
        await end(asked, committed=True)
        assert not shard(asked).state.groups
    async with serving(disk) as (asked, _):
        assert not shard(asked).state.groups


async def test_offsets_of_a_topic_that_was_made_again_do_not_take_new_ones_with_them() -> None:
    disk = machine()
    async with serving(disk) as (asked, _):
        await prepared(asked)
        await commit(asked, offset=100)
        await txn_commit(asked, producer_id=PRODUCER + 1, offset=101)
        here = shard(asked)
        here.unheard = set()  # it has still to hear of what follows
        await asked.broker.metadata.delete_topic("orders")
        await asked.create("orders", partitions=2)
        assert await txn_commit(asked) == 0
        for _ in asked.services.coordinator._hear(here, here.state):
            pass
        await end(asked, committed=True, producer_id=PRODUCER + 1)
        assert await fetch(asked) == [(0, -1, "", 0), NOTHING]
        await end(asked, committed=True)
        assert await fetch_stable(asked) == [(0, 5, "txn", 0), NOTHING]
    async with serving(disk) as (asked, _):
        assert await fetch_stable(asked) == [(0, 5, "txn", 0), NOTHING]


# -- whether it is served -----------------------------------------------------------------------------------


@pytest.mark.parametrize("enabled", [False, True])
async def test_it_is_told_of_where_transactions_are_enabled(enabled: bool) -> None:
    settings = {"penstock.transactions.enable": "true"} if enabled else {}
    async with machine(settings).broker() as asked:
        call = Call(0, "tester", Session(asked.listener, "127.0.0.1"))
        answer = api_versions.handle(asked.services, ApiVersionsRequest(), call)
        told = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        assert told.get(ApiKey.TXN_OFFSET_COMMIT) == ((0, 5) if enabled else None)
