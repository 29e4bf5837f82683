"""Envelope (30002), version 0: a client's request on its way to the controller, and whose it is. Between brokers only.

The dispatcher opens it (`frontends.kafka.envelopes`): the request inside takes the way that it would take by itself.
"""

from typing import Never

from penstock.core.errors import ProtocolError
from penstock.frontends.kafka.registry import Call, api
from penstock.services.services import Services
from penstock.wire.peers.envelope import EnvelopeRequest
from penstock.wire.peers.keys import PeerApi


@api(PeerApi.ENVELOPE, versions=(0, 0), internal=True)
def handle(services: Services, request: EnvelopeRequest, call: Call) -> Never:
    raise ProtocolError("an envelope that nobody opened")
