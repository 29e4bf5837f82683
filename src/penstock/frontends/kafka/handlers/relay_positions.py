"""RelayPositions (30004), version 0: how far a relay is at its target here, committed. Between brokers only.

An error while a fail-over could still take back what was moved last.
"""

from penstock.core.errors import ApiError
from penstock.frontends.kafka.registry import Call, api
from penstock.replication.route_registry import RelayRoute
from penstock.services.services import Services
from penstock.wire.peers.keys import PeerApi
from penstock.wire.peers.relay_positions import RelayPositionsRequest, RelayPositionsResponse


@api(PeerApi.RELAY_POSITIONS, versions=(0, 0), internal=True)
def handle(services: Services, request: RelayPositionsRequest, call: Call) -> RelayPositionsResponse:
    del call
    try:
        places = services.relays.inbox.places(RelayRoute(*request.route))
    except ApiError as error:
        return RelayPositionsResponse(error.code, error.message)
    return RelayPositionsResponse(positions=tuple((place.epoch, place.number) for place in places))
