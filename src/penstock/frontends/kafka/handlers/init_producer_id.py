"""InitProducerId (22), versions 0-5: an id under which a producer's batches are stored once, however often sent.

v2 is flexible. v3 lets a producer name the id and epoch it has, both or neither: what is bumped is a transactional
producer's epoch, an idempotent one gets a new id. v4 adds the error PRODUCER_FENCED, v5 marks clients of the second
transaction protocol. Unless `penstock.transactions.enable` is set, a transactional id is refused with
TRANSACTIONAL_ID_AUTHORIZATION_FAILED, the one error (but for those of a producer that was replaced) that no client
takes for a reason to try again. Most learn it from FindCoordinator, which can say why.
"""

from collections.abc import Awaitable
from functools import partial

from penstock.coordination.tree import CoordinationError
from penstock.core.error_codes import ErrorCode
from penstock.frontends.kafka.registry import Call, api
from penstock.groups.transactions.error_names import Api, error_for
from penstock.groups.transactions.requests import InitProducerId, InitReply
from penstock.services.coordinator.pending_reply import PendingReply
from penstock.services.refusals import TRANSACTIONS
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_NONE = -1


@api(ApiKey.INIT_PRODUCER_ID, versions=(0, 5))
def handle(
    services: Services, request: InitProducerIdRequest, call: Call
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse] | PendingReply:
    if call.version >= 3 and (request.producer_id == _NONE) != (request.producer_epoch == _NONE):
        return _refused(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is None:
        return _idempotent(services)
    if services.config.now.penstock_transactions_enable:
        return _transactional(services, request.transactional_id, request, call)
    return _refused(_not_served(services, request, call))


async def _idempotent(services: Services) -> InitProducerIdResponse:
    try:
        producer_id = await services.producer_ids.next()
    except CoordinationError:
        # What Kafka says while it has no block to give from: clients come back.
        return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _transactional(
    services: Services, transactional_id: str, request: InitProducerIdRequest, call: Call
) -> PendingReply:
    later = PendingReply(InitReply, partial(_render, call.version))
    services.transactions.init_producer_id(
        InitProducerId(
            transactional_id, request.transaction_timeout_ms, request.producer_id, request.producer_epoch
        ),
        later,
    )
    return later


def _render(version: int, reply: InitReply) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=error_for(reply.error, Api.INIT_PRODUCER_ID, version),
        producer_id=reply.producer_id,
        producer_epoch=reply.epoch,
    )


def _not_served(services: Services, request: InitProducerIdRequest, call: Call) -> ErrorCode:
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if not 0 < request.transaction_timeout_ms <= services.config.now.transaction_max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    services.refusals.tell(call.client_id, call.session.peer, "InitProducerId", TRANSACTIONS)
    return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=_NONE)
