"""ListTransactions (66), versions 0-2: the transactional ids that this broker coordinates.

v1 asks for transactions that have been open for longer than some time; those that are not open are among them, as in
Kafka. v2 asks for ids by a regular expression, which must match the whole; of Java's, those are understood that can be
compared in bounded time, and others are INVALID_REGULAR_EXPRESSION. States that nobody knows are told back. Served
where `penstock.transactions.enable` is set.
"""

from collections.abc import Callable

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.limits import LARGE_ANSWER_ENTRIES
from penstock.core.turns import give_way
from penstock.frontends.kafka.registry import Call, api
from penstock.groups.transactions.states import TransactionState as State
from penstock.services.services import Services
from penstock.services.transactions.id_pattern import IdPattern, PatternError
from penstock.services.transactions.service import TransactionListing
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)

# Kafka knows one more, which it never stores.
_KNOWN_STATES = frozenset({*(state.value for state in State), "PrepareEpochFence"})


def asks_for_many(services: Services, request: ListTransactionsRequest, call: Call) -> bool:
    return services.transactions.count() > LARGE_ANSWER_ENTRIES


@api(ApiKey.LIST_TRANSACTIONS, versions=(0, 2), gives_way=True, asks_for_much=asks_for_many)
async def handle(
    services: Services, request: ListTransactionsRequest, call: Call
) -> ListTransactionsResponse:
    del call
    try:
        is_wanted = _filter(request, services.clock.now_ms())
        found = await services.transactions.list()
    except PatternError:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    except ApiError as error:
        return ListTransactionsResponse(error_code=error.code)
    listed = []
    for number, listing in enumerate(found):
        await give_way(number)
        if is_wanted(listing):
            listed.append(
                TransactionState(
                    transactional_id=listing.id,
                    producer_id=listing.producer_id,
                    transaction_state=listing.state,
                )
            )
    unknown = [state for state in request.state_filters if state not in _KNOWN_STATES]
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=listed)


def _filter(request: ListTransactionsRequest, now_ms: int) -> Callable[[TransactionListing], bool]:
    """PatternError where the request has one that is none."""
    states, producers = frozenset(request.state_filters), frozenset(request.producer_id_filters)
    longer_than_ms = request.duration_filter
    pattern = IdPattern(request.transactional_id_pattern) if request.transactional_id_pattern else None

    def is_wanted(listing: TransactionListing) -> bool:
        return (
            (not states or listing.state in states)
            and (not producers or listing.producer_id in producers)
            and (longer_than_ms < 0 or now_ms - listing.started_ms > longer_than_ms)
            and (pattern is None or pattern.matches(listing.id))
        )

    return is_wanted
