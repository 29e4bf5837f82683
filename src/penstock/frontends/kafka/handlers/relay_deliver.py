"""RelayDeliver (30003), version 0: batches that a relay moves here from another broker. Between brokers only.

Answered once all are committed.
"""

from penstock.core.errors import ApiError
from penstock.frontends.kafka.registry import Call, api
from penstock.replication.route_registry import RelayRoute
from penstock.services.services import Services
from penstock.wire.peers.keys import PeerApi
from penstock.wire.peers.relay_deliver import RelayDeliverRequest, RelayDeliverResponse


@api(PeerApi.RELAY_DELIVER, versions=(0, 0), internal=True)
async def handle(services: Services, request: RelayDeliverRequest, call: Call) -> RelayDeliverResponse:
    route, inbox, session = RelayRoute(*request.route), services.relays.inbox, call.session
    batches = memoryview(bytearray(request.batches))  # they are stamped where they are
    try:
        inbox.check_sender(session.broker, session.broker_epoch)
        first = await inbox.take(route, batches, request.timeout_ms / 1000)
    except ApiError as error:
        return RelayDeliverResponse(error.code, error.message)
    return RelayDeliverResponse(first_offset=first)
