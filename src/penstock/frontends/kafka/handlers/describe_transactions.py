"""DescribeTransactions (65), version 0: what this broker knows of transactional ids that it coordinates.

Of a transaction that ends, those partitions are told that have no marker yet. Served where
`penstock.transactions.enable` is set.
"""

import asyncio

from penstock.core.error_codes import ErrorCode
from penstock.core.limits import DEAR_ENTRIES_MAX
from penstock.core.turns import Turn
from penstock.frontends.kafka.registry import Call, api
from penstock.frontends.kafka.repeats import without_repeats
from penstock.services.coordinator.pending_reply import PendingReply, arrival
from penstock.services.services import Services
from penstock.services.transactions.service import TransactionDescription
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


def asks_for_many(services: Services, request: DescribeTransactionsRequest, call: Call) -> bool:
    return len(request.transactional_ids) > DEAR_ENTRIES_MAX


@api(
    ApiKey.DESCRIBE_TRANSACTIONS,
    versions=(0, 0),
    portions=(("transactional_ids",),),
    asks_for_much=asks_for_many,
)
async def handle(
    services: Services, request: DescribeTransactionsRequest, call: Call
) -> DescribeTransactionsResponse:
    del call
    turn = Turn(asyncio.get_running_loop().time)
    asked: dict[str, PendingReply] = {}
    for transactional_id in without_repeats(request.transactional_ids, str):
        await turn.give_way()
        later = asked[transactional_id] = PendingReply(_same, _same)
        services.transactions.describe(transactional_id, later)
    described = [
        _rendered(transactional_id, await arrival(later)) for transactional_id, later in asked.items()
    ]
    return DescribeTransactionsResponse(transaction_states=described)


def _same(answer: ErrorCode | TransactionDescription) -> ErrorCode | TransactionDescription:
    return answer


def _rendered(transactional_id: str, found: ErrorCode | TransactionDescription) -> TransactionState:
    if isinstance(found, ErrorCode):
        return TransactionState(transactional_id=transactional_id, error_code=found)
    topics: dict[str, list[int]] = {}
    for topic, partition in found.partitions:
        topics.setdefault(topic, []).append(partition)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=found.state,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.started_ms,
        producer_id=found.producer_id,
        producer_epoch=found.epoch,
        topics=[TopicData(topic=name, partitions=indexes) for name, indexes in topics.items()],
    )
