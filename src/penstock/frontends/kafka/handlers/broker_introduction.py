"""BrokerIntroduction (30001), version 0: a broker says which one it is, and proves it. Between brokers only.

From then on, what it sends over this connection is that broker's. See `replication.introduction`.
"""

from penstock.frontends.kafka.registry import Call, api
from penstock.services.services import Services
from penstock.wire.peers.broker_introduction import IntroductionRequest, IntroductionResponse
from penstock.wire.peers.keys import PeerApi


@api(PeerApi.BROKER_INTRODUCTION, versions=(0, 0), internal=True, introduces=True)
def handle(services: Services, request: IntroductionRequest, call: Call) -> IntroductionResponse:
    return services.authenticator.introduce(call.session, request)
