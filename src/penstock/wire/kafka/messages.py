"""Finding a message's codec by its API key. Modules load on first use: a broker needs a third of them.

Kafka's are generated; those of brokers among themselves are our own (`wire.peers`).
"""

from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any, Protocol, cast

from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.index import APIS
from penstock.wire.kafka.primitives import Buffer, DecodeError
from penstock.wire.peers.keys import MODULES, PeerApi


class MessageModule(Protocol):
    """What every module of a request and its response offers."""

    API_KEY: int
    MIN_VERSION: int
    MAX_VERSION: int
    FLEXIBLE_SINCE: int

    def decode_request(self, buffer: Buffer, position: int, version: int) -> tuple[Any, int]: ...
    def encode_request(self, message: Any, version: int) -> bytes: ...
    def decode_response(self, buffer: Buffer, position: int, version: int) -> tuple[Any, int]: ...
    def encode_response(self, message: Any, version: int) -> bytes: ...


@cache
def request_module(api_key: int) -> MessageModule:
    if api_key in MODULES:
        return cast(MessageModule, import_module(f"penstock.wire.peers.{MODULES[api_key]}"))
    row = APIS.get(api_key)
    if row is None:
        raise DecodeError(f"there is no API with key {api_key}")
    return cast(MessageModule, import_module(f"penstock.wire.kafka.generated.{row[0]}"))


def api_name(api_key: int) -> str:
    for keys in (ApiKey, PeerApi):
        with suppress(ValueError):
            return keys(api_key).name
    return f"API key {api_key}"


def version_range(api_key: int) -> tuple[int, int]:
    """The lowest and highest version there is a codec for."""
    _, lowest, highest, _ = APIS[api_key]
    return lowest, highest
