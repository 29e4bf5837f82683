"""FindCoordinator (10), versions 0-6: which broker coordinates a group or a transactional id.

v1 asks for transactions too and explains errors, v3 is flexible, v4 asks for many keys at once, v5 adds a
transaction error, v6 share groups. No broker coordinates anything yet, which is what this answers: the
error that Kafka gives until its coordinators are ready, and that clients retry. It has to be answered, not
only for groups: librdkafka compresses with lz4 only for brokers that advertise this API.
"""

from penstock.core.error_codes import ErrorCode
from penstock.frontends.kafka.registry import Call, api
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

GROUP, TRANSACTION, SHARE = range(3)
MANY_KEYS_SINCE = 4
_NONE = -1


@api(ApiKey.FIND_COORDINATOR, versions=(0, 6))
def handle(services: Services, request: FindCoordinatorRequest, call: Call) -> FindCoordinatorResponse:
    del services
    known = request.key_type in (GROUP, TRANSACTION, SHARE)
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE if known else ErrorCode.INVALID_REQUEST
    if call.version < MANY_KEYS_SINCE:
        message = "The coordinator is not available." if known else f"no coordinator type {request.key_type}"
        return FindCoordinatorResponse(error_code=code, error_message=message, node_id=_NONE, port=_NONE)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=_NONE, port=_NONE, error_code=code)
            for key in request.coordinator_keys
        ]
    )
