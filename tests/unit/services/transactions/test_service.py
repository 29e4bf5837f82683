"""The transaction coordinator on a real shard: what is answered, what is stored, what a restart finds."""

import asyncio

import pytest
from tests.unit.services.transactions.serving import P0, P1, ScriptedWriter, a_machine, later, serving, told
from tests.unit.waiting import until

from penstock.coordination.memory import Fault
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.groups.transactions.layouts import TopicPartition
from penstock.groups.transactions.requests import AddPartitions
from penstock.replication.transactions import MarkerToWrite
from penstock.services.coordinator.shard import Status
from penstock.services.transactions import room


async def test_a_transaction_from_its_first_request_to_its_last_marker() -> None:
    async with serving(a_machine()) as serves:
        assert await serves.init() == (ErrorCode.NONE, 0, 0)
        assert await serves.add(0, 0, P0, P1) is ErrorCode.NONE
        assert serves.state() == "Ongoing"
        assert await serves.end(0, 0) == (ErrorCode.NONE, -1, -1)
        await until(lambda: serves.state() == "CompleteCommit")
        epoch = serves.shard().epoch
        assert sorted(serves.writer.written) == [
            (P0, MarkerToWrite(0, 0, True, epoch, 0)),
            (P1, MarkerToWrite(0, 0, True, epoch, 0)),
        ]


async def test_a_client_of_the_second_version_goes_on_with_a_raised_epoch() -> None:
    async with serving(a_machine()) as serves:
        producer_id, epoch = await serves.begun(P0, version=2)
        assert await serves.end(producer_id, epoch, committed=False, version=2) == (
            ErrorCode.NONE,
            producer_id,
            epoch + 1,
        )
        await until(lambda: serves.state() == "CompleteAbort")
        coordinator = serves.shard().epoch
        assert serves.writer.written == [(P0, MarkerToWrite(producer_id, epoch + 1, False, coordinator, 2))]
        assert await serves.add(producer_id, epoch + 1, P1, version=2) is ErrorCode.NONE


async def test_until_all_have_their_markers_the_next_transaction_waits() -> None:
    async with serving(a_machine()) as serves:
        serves.writer.open.clear()
        await serves.begun(P0, P1)
        assert (await serves.end(0, 0)).error is ErrorCode.NONE
        assert await serves.add(0, 0, P0) is ErrorCode.CONCURRENT_TRANSACTIONS
        assert serves.state() == "PrepareCommit"
        serves.writer.open.set()
        await until(lambda: serves.state() == "CompleteCommit")
        assert await serves.add(0, 0, P0) is ErrorCode.NONE


async def test_no_marker_leaves_before_the_decision_is_committed() -> None:
    async with serving(a_machine()) as serves:
        await serves.begun(P0)
        shard = serves.shard()
        serves.asked.partition("__transaction_state", shard.partition.index).log.sync_failed()
        assert await serves.end(0, 0) is ErrorCode.NOT_COORDINATOR
        for _ in range(20):
            await asyncio.sleep(0)
        assert serves.writer.written == []


async def test_what_was_begun_is_there_after_a_restart() -> None:
    machine = a_machine()
    async with serving(machine) as serves:
        await serves.begun(P0)
    async with serving(machine) as serves:
        assert serves.state() == "Ongoing"
        assert (await serves.end(0, 0)).error is ErrorCode.NONE
        await until(lambda: serves.state() == "CompleteCommit")


async def test_of_a_prepared_transaction_all_markers_are_written_again_under_the_new_epoch() -> None:
    machine, writer = a_machine(), ScriptedWriter()
    async with serving(machine, writer) as serves:
        before = serves.shard().epoch
        writer.script(P1, *100 * [ErrorCode.NOT_LEADER_OR_FOLLOWER])
        await serves.begun(P0, P1)
        assert (await serves.end(0, 0)).error is ErrorCode.NONE
        await until(lambda: len(writer.written) >= 2)
        assert serves.state() == "PrepareCommit"
    async with serving(machine) as serves:
        await until(lambda: serves.state() == "CompleteCommit")
        after = serves.shard().epoch
        assert after > before
        marker = MarkerToWrite(0, 0, True, after, 0)
        assert sorted(serves.writer.written) == [(P0, marker), (P1, marker)]


async def test_the_first_producers_wait_for_ids_and_get_one_each() -> None:
    async with serving(a_machine()) as serves:
        replies = await asyncio.gather(*(serves.init(f"tx-{number}") for number in range(30)))
        assert {reply.error for reply in replies} == {ErrorCode.NONE}
        assert len({reply.producer_id for reply in replies}) == 30


async def test_no_id_is_taken_where_nobody_asks_for_one() -> None:
    async with serving(a_machine()) as serves:
        assert await serves.asked.services.producer_ids.next() == 0


async def test_a_store_that_gives_no_ids_makes_producers_come_back() -> None:
    async with serving(a_machine()) as serves:
        serves.asked.tree.fail_next(Fault.REQUEST_LOST)
        assert (await serves.init()).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert serves.state() == "none"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": "x" * 40_000}, ErrorCode.INVALID_REQUEST),
        ({"timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"enable_two_phase": True}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ({"keep_prepared": True}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
async def test_what_is_wrong_with_a_request_is_told(fields: dict[str, object], error: ErrorCode) -> None:
    async with serving(a_machine()) as serves:
        assert await serves.init(**fields) == (error, -1, -1)  # type: ignore[arg-type]


async def test_an_id_that_nobody_knows() -> None:
    async with serving(a_machine()) as serves:
        unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert await serves.add(0, 0, P0) is unknown
        assert (await serves.end(0, 0)).error is unknown
        assert await told(serves.service.add_offsets, "tx", 0, 0, "g") is unknown
        assert await told(serves.service.describe, "tx") is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


async def test_past_its_bound_a_broker_takes_no_new_ids_and_serves_those_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(a_machine()) as serves:
        await serves.begun(P0)
        monkeypatch.setattr(room, "TRANSACTIONS_BYTES_MAX", 500)
        assert (await serves.init("other")).error is ErrorCode.POLICY_VIOLATION
        assert await serves.add(0, 0, P0, P1) is ErrorCode.NONE
        monkeypatch.setattr(room, "TRANSACTIONS_RESERVE_BYTES", 0)
        assert await serves.add(0, 0, P0, TopicPartition("orders", 2)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await serves.end(0, 0)).error is ErrorCode.NONE
        assert (await serves.init()).error is ErrorCode.CONCURRENT_TRANSACTIONS


async def test_a_groups_offsets_are_its_partition() -> None:
    async with serving(a_machine({"offsets.topic.num.partitions": "1"})) as serves:
        await serves.init()
        assert await told(serves.service.add_offsets, "tx", 0, 0, "g") is ErrorCode.NONE
        described = await told(serves.service.describe, "tx")
        assert described.partitions == (TopicPartition("__consumer_offsets", 0),)


async def test_leaders_verify_and_add_with_a_code_for_each_partition() -> None:
    async with serving(a_machine()) as serves:
        await serves.begun(P0)
        both = AddPartitions(0, 0, frozenset((P0, P1)), 2)

        async def asked(*, verify_only: bool) -> object:
            serves.service.add_or_verify("tx", both, pending := later(), verify_only=verify_only)
            filled: asyncio.Future[object] = asyncio.get_running_loop().create_future()
            pending.subscribe(filled.set_result)
            return await filled

        expected = {P0: ErrorCode.NONE, P1: ErrorCode.TRANSACTION_ABORTABLE}
        assert await asked(verify_only=True) == expected
        assert await asked(verify_only=False) == dict.fromkeys((P0, P1), ErrorCode.NONE)
        assert await asked(verify_only=True) == dict.fromkeys((P0, P1), ErrorCode.NONE)


async def test_of_a_transaction_that_ends_those_without_markers_are_described() -> None:
    async with serving(a_machine()) as serves:
        serves.writer.script(P1, *1000 * [ErrorCode.NOT_LEADER_OR_FOLLOWER])
        await serves.begun(P0, P1)
        await serves.end(0, 0)
        await until(lambda: P0 in serves.writer.places() and not serves.writer.under_way)
        described = await told(serves.service.describe, "tx")
        assert (described.state, described.partitions) == ("PrepareCommit", (P1,))
        assert [(found.id, found.state) for found in await serves.service.list()] == [("tx", "PrepareCommit")]


@pytest.mark.parametrize("status", [Status.LOADING, Status.OFFLINE])
async def test_while_some_are_not_known_nothing_is_listed(status: Status) -> None:
    async with serving(a_machine()) as serves:
        serves.shard().go_offline("for a test")
        if status is Status.LOADING:
            next(iter(serves.runtime.shards())).restart()
        with pytest.raises(ApiError) as refused:
            await serves.service.list()
        assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
