"""Transactions through the codecs, at every version: which codes and fields each of them gets."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.unit.frontends.in_memory import NOW_MS, Asked, Machine
from tests.unit.services.transactions.serving import SETTINGS, ScriptedWriter
from tests.unit.waiting import until

from penstock.core.error_codes import ErrorCode
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.wire.kafka.generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from penstock.wire.kafka.generated.describe_transactions import DescribeTransactionsRequest
from penstock.wire.kafka.generated.end_txn import EndTxnRequest
from penstock.wire.kafka.generated.find_coordinator import FindCoordinatorRequest
from penstock.wire.kafka.generated.init_producer_id import InitProducerIdRequest
from penstock.wire.kafka.generated.list_transactions import ListTransactionsRequest

TRANSACTION = 1
BROKER = 2
NONE = ErrorCode.NONE


@asynccontextmanager
async def found() -> AsyncIterator[Asked]:
    """A coordinator has been asked for; the topic `orders` has two partitions."""
    async with Machine(SETTINGS).broker() as asked:
        asked.services.marker_sender.writer = ScriptedWriter()
        request = FindCoordinatorRequest(key="tx", key_type=TRANSACTION)
        answer = await asked.ask(ApiKey.FIND_COORDINATOR, request, 3)
        assert (answer.error_code, answer.node_id, answer.port) == (NONE, 1, asked.broker.port)
        await asked.create("orders", partitions=2)
        yield asked


async def init(asked: Asked, version: int = 5, **fields: Any) -> tuple[int, int, int]:
    request = InitProducerIdRequest(**{"transactional_id": "tx", "transaction_timeout_ms": 60_000, **fields})
    answer = await asked.ask(ApiKey.INIT_PRODUCER_ID, request, version)
    return answer.error_code, answer.producer_id, answer.producer_epoch


def topics(places: Sequence[tuple[str, int]]) -> list[AddPartitionsToTxnTopic]:
    return [AddPartitionsToTxnTopic(name=name, partitions=[index]) for name, index in places]


async def add(asked: Asked, version: int, *places: tuple[str, int], epoch: int = 0) -> dict[Any, int]:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="tx",
        v3_and_below_producer_id=0,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=topics(places),
    )
    answer = await asked.ask(ApiKey.ADD_PARTITIONS_TO_TXN, request, version)
    return codes(answer.results_by_topic_v3_and_below)


def codes(results: Any) -> dict[Any, int]:
    return {
        (topic.name, partition.partition_index): partition.partition_error_code
        for topic in results
        for partition in topic.results_by_partition
    }


async def end(asked: Asked, version: int, *, epoch: int = 0, committed: bool = True) -> tuple[int, int, int]:
    request = EndTxnRequest(transactional_id="tx", producer_id=0, producer_epoch=epoch, committed=committed)
    answer = await asked.ask(ApiKey.END_TXN, request, version)
    return answer.error_code, answer.producer_id, answer.producer_epoch


async def state_of(asked: Asked, name: str = "tx") -> Any:
    request = DescribeTransactionsRequest(transactional_ids=[name])
    return (await asked.ask(ApiKey.DESCRIBE_TRANSACTIONS, request, 0)).transaction_states[0]


async def ended(asked: Asked) -> None:
    subject = asked.services.transaction_coordinator.shard_of("tx").state.find("tx")
    assert subject is not None
    await until(lambda: subject.pending is None)


@pytest.mark.parametrize("version", range(4))
async def test_the_topic_is_made_as_kafka_would(version: int) -> None:
    async with Machine(SETTINGS).broker() as asked:
        kind = TRANSACTION if version else 0
        answer = await asked.ask(
            ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(key="tx", key_type=kind), version
        )
        assert answer.error_code == NONE
        if version:
            topic = asked.services.image.topics["__transaction_state"]
            assert len(topic.partitions) == 3
            assert topic.configs == {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": "2",
                "segment.bytes": "104857600",
                "unclean.leader.election.enable": "false",
            }


@pytest.mark.parametrize("version", range(4, 7))
async def test_many_transactional_ids_are_coordinated_here(version: int) -> None:
    request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=["a", "b"])
    async with Machine(SETTINGS).broker() as asked:
        answer = await asked.ask(ApiKey.FIND_COORDINATOR, request, version)
        told = [(each.key, each.error_code, each.node_id) for each in answer.coordinators]
        assert told == [("a", 0, 1), ("b", 0, 1)]
        assert "__consumer_offsets" not in asked.services.image.topics


@pytest.mark.parametrize("version", range(6))
async def test_a_producer_is_given_an_id_and_a_higher_epoch_each_time(version: int) -> None:
    async with found() as asked:
        assert await init(asked, version) == (NONE, 0, 0)
        assert await init(asked, version) == (NONE, 0, 1)
        if version >= 3:
            assert await init(asked, version, producer_id=0, producer_epoch=1) == (NONE, 0, 2)
            fenced = ErrorCode.PRODUCER_FENCED if version >= 4 else ErrorCode.INVALID_PRODUCER_EPOCH
            assert await init(asked, version, producer_id=0, producer_epoch=0) == (fenced, -1, -1)
            assert await init(asked, version, producer_id=5) == (ErrorCode.INVALID_REQUEST, -1, -1)
        assert await init(asked, version, transactional_id="") == (ErrorCode.INVALID_REQUEST, -1, -1)
        timeout = ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert await init(asked, version, transaction_timeout_ms=900_001) == (timeout, -1, -1)
        # Others are served beside them, from the same ids.
        assert (await init(asked, version, transactional_id=None))[0] == NONE


@pytest.mark.parametrize("version", range(4))
async def test_clients_add_partitions(version: int) -> None:
    async with found() as asked:
        await init(asked)
        assert await add(asked, version, ("orders", 0), ("orders", 1)) == {
            ("orders", 0): NONE,
            ("orders", 1): NONE,
        }
        fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
        assert await add(asked, version, ("orders", 0), epoch=7) == {("orders", 0): fenced}
        assert (await state_of(asked)).transaction_state == "Ongoing"


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (("orders", 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("orders", -1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("nothing", 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("__transaction_state", 0), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
async def test_one_partition_that_cannot_be_added_fails_all(wrong: tuple[str, int], code: ErrorCode) -> None:
    async with found() as asked:
        await init(asked)
        assert await add(asked, 3, ("orders", 0), wrong) == {
            ("orders", 0): ErrorCode.OPERATION_NOT_ATTEMPTED,
            wrong: code,
        }
        assert (await state_of(asked)).transaction_state == "Empty"


def by_leader(name: str, *places: tuple[str, int], epoch: int = 0, verify_only: bool = False) -> Any:
    return AddPartitionsToTxnTransaction(
        transactional_id=name,
        producer_id=0,
        producer_epoch=epoch,
        verify_only=verify_only,
        topics=topics(places),
    )


@pytest.mark.parametrize("version", [4, 5])
async def test_leaders_verify_and_add_for_several_transactions(version: int) -> None:
    async with found() as asked:
        await init(asked)
        request = AddPartitionsToTxnRequest(
            transactions=[
                by_leader("tx", ("orders", 0), ("__transaction_state", 0)),
                by_leader("tx", ("orders", 0), ("orders", 1), verify_only=True),
                by_leader("nobody", ("orders", 0)),
                by_leader("tx", ("orders", 0), epoch=9),
                by_leader("", ("orders", 1)),
                by_leader("tx", ("orders", 0), ("orders", 5), verify_only=True),
            ]
        )
        answer = await asked.ask(ApiKey.ADD_PARTITIONS_TO_TXN, request, version, broker=BROKER)
        assert answer.error_code == NONE
        results = [
            (each.transactional_id, codes(each.topic_results)) for each in answer.results_by_transaction
        ]
        first, second = ("orders", 0), ("orders", 1)
        assert results == [
            ("tx", {first: NONE, ("__transaction_state", 0): NONE}),
            ("tx", {first: NONE, second: ErrorCode.TRANSACTION_ABORTABLE}),
            ("nobody", {first: ErrorCode.INVALID_PRODUCER_ID_MAPPING}),
            ("tx", {first: ErrorCode.PRODUCER_FENCED}),
            ("", {second: ErrorCode.INVALID_REQUEST}),
            (
                "tx",
                {
                    first: ErrorCode.OPERATION_NOT_ATTEMPTED,
                    ("orders", 5): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                },
            ),
        ]


@pytest.mark.parametrize("version", [4, 5])
async def test_clients_may_not_ask_as_leaders_do(version: int) -> None:
    async with found() as asked:
        await init(asked)
        request = AddPartitionsToTxnRequest(transactions=[by_leader("tx", ("orders", 0))])
        answer = await asked.ask(ApiKey.ADD_PARTITIONS_TO_TXN, request, version)
        assert (answer.error_code, answer.results_by_transaction) == (
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            [],
        )
        assert (await state_of(asked)).transaction_state == "Empty"


@pytest.mark.parametrize("version", range(5))
async def test_offsets_of_a_group_are_added(version: int) -> None:
    async with found() as asked:
        await init(asked)

        async def add_offsets(epoch: int) -> int:
            request = AddOffsetsToTxnRequest(
                transactional_id="tx", producer_id=0, producer_epoch=epoch, group_id="g"
            )
            return int((await asked.ask(ApiKey.ADD_OFFSETS_TO_TXN, request, version)).error_code)

        assert await add_offsets(0) == NONE
        fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
        assert await add_offsets(3) == fenced
        (topic,) = (await state_of(asked)).topics
        assert topic.topic == "__consumer_offsets"


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", range(6))
async def test_an_end_at_every_version(version: int, committed: bool) -> None:
    async with found() as asked:
        await init(asked)
        await add(asked, 3, ("orders", 0))
        bumps = version >= 5
        fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
        assert await end(asked, version, epoch=5, committed=committed) == (fenced, -1, -1)
        answer = await end(asked, version, committed=committed)
        assert answer == ((NONE, 0, 1) if bumps else (NONE, -1, -1))
        await ended(asked)
        state = await state_of(asked)
        assert state.transaction_state == ("CompleteCommit" if committed else "CompleteAbort")
        assert (state.producer_id, state.producer_epoch) == (0, int(bumps))
        # Once more, for the answer was lost.
        assert await end(asked, version, committed=committed) == answer
        epoch = int(bumps)
        other = await end(asked, version, epoch=0, committed=not committed)
        assert other == (ErrorCode.INVALID_TXN_STATE, -1, -1)
        assert await add(asked, 3, ("orders", 1), epoch=epoch) == {("orders", 1): NONE}


async def test_a_producer_that_comes_anew_aborts_what_is_open() -> None:
    async with found() as asked:
        await init(asked)
        await add(asked, 3, ("orders", 0))
        assert await init(asked) == (ErrorCode.CONCURRENT_TRANSACTIONS, -1, -1)
        await ended(asked)
        assert await init(asked) == (NONE, 0, 2)
        assert await end(asked, 4) == (ErrorCode.PRODUCER_FENCED, -1, -1)


async def test_transactions_are_described() -> None:
    async with found() as asked:
        await init(asked)
        await add(asked, 3, ("orders", 0), ("orders", 1))
        state = await state_of(asked)
        assert (state.error_code, state.transaction_state, state.transaction_timeout_ms) == (
            NONE,
            "Ongoing",
            60_000,
        )
        assert (state.producer_id, state.producer_epoch, state.transaction_start_time_ms) == (0, 0, NOW_MS)
        assert [(topic.topic, topic.partitions) for topic in state.topics] == [("orders", [0, 1])]
        assert (await state_of(asked, "nobody")).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("version", "fields", "ids"),
    [
        (0, {}, ["other", "tx"]),
        (0, {"state_filters": ["Ongoing", "Nonsense"]}, ["tx"]),
        (0, {"state_filters": ["Nonsense"]}, []),
        (0, {"producer_id_filters": [1, 77]}, ["other"]),
        (1, {"duration_filter": 0}, ["other"]),  # one that is not open has no start
        (2, {"transactional_id_pattern": "t."}, ["tx"]),
        (2, {"transactional_id_pattern": "t"}, []),
        (2, {"transactional_id_pattern": ""}, ["other", "tx"]),
    ],
)
async def test_transactions_are_listed(version: int, fields: dict[str, Any], ids: list[str]) -> None:
    async with found() as asked:
        await init(asked)
        await add(asked, 3, ("orders", 0))
        await init(asked, transactional_id="other")
        answer = await asked.ask(ApiKey.LIST_TRANSACTIONS, ListTransactionsRequest(**fields), version)
        assert answer.error_code == NONE
        assert sorted(listed.transactional_id for listed in answer.transaction_states) == ids
        unknown = [state for state in fields.get("state_filters", []) if state == "Nonsense"]
        assert answer.unknown_state_filters == unknown


async def test_a_pattern_that_is_none_is_told() -> None:
    async with found() as asked:
        request = ListTransactionsRequest(transactional_id_pattern="(")
        answer = await asked.ask(ApiKey.LIST_TRANSACTIONS, request, 2)
        assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
