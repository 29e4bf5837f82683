"""A client's request that another broker passes on: taken out of its envelope, handled as if it had come here.

The handler sees the client's session (principal, client id, address, listener), not that of the broker between. Only
what the controller alone carries out comes this way (`forwarded` in the registry).
"""

import logging
from dataclasses import replace
from functools import cache
from typing import Any

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ProtocolError
from penstock.core.session import Principal, Session
from penstock.frontends.kafka.registry import REGISTRY, Api, Call
from penstock.wire.kafka.messages import MessageModule, api_name
from penstock.wire.kafka.primitives import NEVER_FLEXIBLE, Buffer
from penstock.wire.peers import envelope

_VERSION = 0
# It was not carried out, and may be asked elsewhere.
NOT_CONTROLLER = envelope.EnvelopeResponse(int(ErrorCode.NOT_CONTROLLER))

logger = logging.getLogger(__name__)


def opened(data: bytes, position: int, version: int, session: Session) -> tuple[Api, Call, bytes]:
    """The API inside, whose answers go into an envelope again, who asks it, and the request's body."""
    found, _ = envelope.decode_request(data, position, version)
    api = REGISTRY.find(found.api_key)
    if api is None or not api.forwarded or not api.min_version <= found.version <= api.max_version:
        raise ProtocolError(f"{api_name(found.api_key)} version {found.version} in an envelope")
    caller = Session(found.listener, found.address)
    caller.principal = Principal(found.principal_type, found.principal_name)
    caller.client_id, caller.forwarded_by = found.client_id, session.broker
    logger.debug(
        "%s of %s at %s (%s), forwarded by broker %d",
        api_name(api.key),
        caller.principal,
        caller.peer,
        caller.client_id,
        session.broker,
    )
    return _enveloped(api.key), Call(found.version, found.client_id, caller), bytes(found.body)


class _EnvelopeCodec:
    """Reads the request inside; its answers are put into envelopes, whose headers are never flexible."""

    FLEXIBLE_SINCE = NEVER_FLEXIBLE

    def __init__(self, inside: MessageModule) -> None:
        self._inside = inside
        self.API_KEY, self.MIN_VERSION, self.MAX_VERSION = (
            inside.API_KEY,
            inside.MIN_VERSION,
            inside.MAX_VERSION,
        )
        self.decode_request = inside.decode_request
        self.encode_request = inside.encode_request

    def decode_response(self, buffer: Buffer, position: int, version: int) -> tuple[Any, int]:
        answer, end = envelope.decode_response(buffer, position, _VERSION)
        return self._inside.decode_response(answer.body, 0, version)[0], end

    def encode_response(self, message: Any, version: int) -> bytes:
        body = self._inside.encode_response(message, version)
        return envelope.encode_response(envelope.EnvelopeResponse(body=body), _VERSION)


@cache
def _enveloped(api_key: int) -> Api:
    api = REGISTRY[api_key]
    return replace(api, codec=_EnvelopeCodec(api.codec))
