"""BrokerChallenge (30000), version 0: what a broker has to prove itself on. Between brokers only.

See `replication.introduction`.
"""

from penstock.frontends.kafka.registry import Call, api
from penstock.services.services import Services
from penstock.wire.peers.broker_challenge import ChallengeRequest, ChallengeResponse
from penstock.wire.peers.keys import PeerApi


@api(PeerApi.BROKER_CHALLENGE, versions=(0, 0), internal=True, introduces=True)
def handle(services: Services, request: ChallengeRequest, call: Call) -> ChallengeResponse:
    del request
    return services.authenticator.challenge(call.session)
