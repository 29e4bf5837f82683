"""RelayPositions (30004), version 0: how far a relay is at its target here, committed. Between brokers only.

An error while a fail-over could still take back what was moved last.
"""

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.frontends.kafka.registry import Call, api
from penstock.services.services import Services
from penstock.wire.peers.keys import PeerApi
from penstock.wire.peers.relay_positions import RelayPositionsRequest, RelayPositionsResponse
from penstock.wire.peers.routes import RouteKind


@api(PeerApi.RELAY_POSITIONS, versions=(0, 0), internal=True)
def handle(services: Services, request: RelayPositionsRequest, call: Call) -> RelayPositionsResponse:
    del call
    route = request.route
    try:
        if route.kind != RouteKind.RETIRED_PARTITION:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"no route of kind {route.kind} is known here")
        places = services.relays.inbox.places(
            route.target_topic_id, route.target_partition, route.source_partition
        )
    except ApiError as error:
        return RelayPositionsResponse(error.code, error.message)
    return RelayPositionsResponse(positions=tuple((place.epoch, place.distance) for place in places))
