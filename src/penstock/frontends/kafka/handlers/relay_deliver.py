"""RelayDeliver (30003), version 0: batches that a relay moves here from another broker. Between brokers only.

Answered once all are committed.
"""

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.frontends.kafka.registry import Call, api
from penstock.services.services import Services
from penstock.wire.peers.keys import PeerApi
from penstock.wire.peers.relay_deliver import RelayDeliverRequest, RelayDeliverResponse
from penstock.wire.peers.routes import RouteKind


@api(PeerApi.RELAY_DELIVER, versions=(0, 0), internal=True)
async def handle(services: Services, request: RelayDeliverRequest, call: Call) -> RelayDeliverResponse:
    route, inbox, session = request.route, services.relays.inbox, call.session
    batches = memoryview(bytearray(request.batches))  # they are stamped where they are
    try:
        if route.kind != RouteKind.RETIRED_PARTITION:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"no route of kind {route.kind} is known here")
        inbox.check_sender(session.broker, session.broker_epoch)
        timeout_s = request.timeout_ms / 1000
        first = await inbox.take(route.target_topic_id, route.target_partition, batches, timeout_s)
    except ApiError as error:
        return RelayDeliverResponse(error.code, error.message)
    return RelayDeliverResponse(first_offset=first)
