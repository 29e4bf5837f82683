"""How an answer stands on the wire: its header and its body, at once or when what it waits for is there."""

import logging
from struct import Struct as Layout
from typing import Any

from penstock.core.error_codes import ErrorCode
from penstock.core.limits import LARGE_ANSWER_BYTES
from penstock.frontends.kafka.registry import REGISTRY, Api
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import api_versions
from penstock.wire.kafka.primitives import EncodeError

# Size, correlation id, and in flexible versions no tagged fields.
_HEAD_PLAIN = Layout(">ii")
_HEAD_WITH_TAGS = Layout(">iib")

logger = logging.getLogger(__name__)


def encoded(api: Api, correlation_id: int, version: int, response: Any) -> list[object]:
    # A handler may have encoded its answer itself, where it keeps parts of it ready.
    if isinstance(response, list):
        body = b"".join(response)
    else:
        body = response if isinstance(response, bytes) else api.codec.encode_response(response, version)
    # ApiVersions is read by clients that do not know yet what the broker speaks: its header is never flexible.
    if version >= api.codec.FLEXIBLE_SINCE and api.key != ApiKey.API_VERSIONS:
        head = _HEAD_WITH_TAGS.pack(len(body) + 5, correlation_id, 0)
    else:
        head = _HEAD_PLAIN.pack(len(body) + 4, correlation_id)
    # Nobody else runs while a large one is copied.
    return [head + body] if len(body) <= LARGE_ANSWER_BYTES else [head, body]


def unsupported_api_versions(correlation_id: int) -> list[object]:
    """The one version mismatch that is answered: it tells the client which versions to try instead."""
    api = REGISTRY[ApiKey.API_VERSIONS]
    own = api_versions.ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
    response = api_versions.ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])
    return encoded(api, correlation_id, 0, response)


class LaterAnswer:
    """Sends what a request was waiting for, in its place in the row of responses."""

    __slots__ = ("_api", "_connection", "_correlation_id", "_reply", "_version")

    def __init__(self, connection: Any, reply: Any, api: Api, correlation_id: int, version: int) -> None:
        self._connection = connection
        self._api = api
        self._correlation_id = correlation_id
        self._version = version
        self._reply = reply

    def __call__(self, response: Any) -> None:
        try:
            parts = encoded(self._api, self._correlation_id, self._version, response)
        except EncodeError:  # a bug of ours; others wait in the same row and must get theirs
            logger.exception("an answer to %s cannot be encoded", self._connection.peer)
            self._connection.abort()
        else:
            self._reply.send(parts)
