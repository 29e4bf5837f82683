"""SaslHandshake (17), versions 0-1: a client that wants to say who it is, and by which mechanism.

v1 announces SaslAuthenticate where v0 is followed by bare bytes. Listeners speak plaintext only: the answer is
ILLEGAL_SASL_STATE, as on Kafka's own plaintext listeners. Clients report that as an error of authentication; from a
closed connection they would learn nothing.
"""

from penstock.core.error_codes import ErrorCode
from penstock.frontends.kafka.registry import Call, api
from penstock.services.refusals import SASL
from penstock.services.services import Services
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


@api(ApiKey.SASL_HANDSHAKE, versions=(0, 1))
def handle(services: Services, request: SaslHandshakeRequest, call: Call) -> SaslHandshakeResponse:
    services.refusals.tell(call.client_id, call.session.peer, "SaslHandshake", SASL)
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
