"""EndTxn (26), versions 0-5: a producer commits or aborts its transaction.

v1 throttles, v2 adds the error PRODUCER_FENCED, v3 is flexible, v4 adds the error TRANSACTION_ABORTABLE. v5 is the
second version of transactions: every end raises the epoch, and the answer says with which producer id and epoch to go
on. It leaves once the decision is committed; markers follow. Served where `penstock.transactions.enable` is set.
"""

from functools import partial

from penstock.frontends.kafka.registry import Call, api
from penstock.groups.transactions.error_names import Api, error_for
from penstock.groups.transactions.requests import End, EndReply
from penstock.groups.transactions.states import BUMPING_VERSION
from penstock.services.coordinator.pending_reply import PendingReply
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.end_txn import EndTxnRequest, EndTxnResponse

_BUMPS_SINCE = 5


@api(ApiKey.END_TXN, versions=(0, 5))
def handle(services: Services, request: EndTxnRequest, call: Call) -> PendingReply:
    later = PendingReply(EndReply, partial(_render, call.version))
    client_version = BUMPING_VERSION if call.version >= _BUMPS_SINCE else 0
    ending = End(request.producer_id, request.producer_epoch, request.committed, client_version)
    services.transactions.end(request.transactional_id, ending, later)
    return later


def _render(version: int, reply: EndReply) -> EndTxnResponse:
    return EndTxnResponse(
        error_code=error_for(reply.error, Api.END, version),
        producer_id=reply.producer_id,
        producer_epoch=reply.epoch,
    )
