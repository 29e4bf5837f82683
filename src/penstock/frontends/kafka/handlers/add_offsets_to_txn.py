"""AddOffsetsToTxn (25), versions 0-4: a group's offsets join a producer's transaction.

v1 throttles, v2 adds the error PRODUCER_FENCED, v3 is flexible, v4 adds the error TRANSACTION_ABORTABLE. What is added
is the group's partition of `__consumer_offsets`. Served where `penstock.transactions.enable` is set.
"""

from functools import partial

from penstock.core.error_codes import ErrorCode
from penstock.frontends.kafka.registry import Call, api
from penstock.groups.transactions.error_names import Api, error_for
from penstock.services.coordinator.pending_reply import PendingReply
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse


@api(ApiKey.ADD_OFFSETS_TO_TXN, versions=(0, 4))
def handle(services: Services, request: AddOffsetsToTxnRequest, call: Call) -> PendingReply:
    later = PendingReply(_same, partial(_render, call.version))
    services.transactions.add_offsets(
        request.transactional_id, request.producer_id, request.producer_epoch, request.group_id, later
    )
    return later


def _same(code: ErrorCode) -> ErrorCode:
    return code


def _render(version: int, code: ErrorCode) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=error_for(code, Api.ADD_OFFSETS, version))
