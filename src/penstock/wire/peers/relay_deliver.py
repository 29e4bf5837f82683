"""RelayDeliver (30003): batches that a relay moves, to the leader of its target.

    request    route (`routes`), int32 timeout ms, bytes batches, one behind the other
    response   int16 error, nullable string message, int64 offset of the first batch

It is answered once the target has committed all of them. An error leaves open what became of them: the source asks for
the positions (RelayPositions), and a batch that is there already is dropped.
"""

from struct import Struct as Layout
from typing import NamedTuple

from penstock.wire.kafka.primitives import (
    NEVER_FLEXIBLE,
    Buffer,
    read_nullable_string,
    read_records,
    write_bytes,
    write_nullable_string,
)
from penstock.wire.peers.errors import decoding, encoding
from penstock.wire.peers.keys import PeerApi
from penstock.wire.peers.routes import WireRoute, read_route, write_route

API_KEY = int(PeerApi.RELAY_DELIVER)
MIN_VERSION = MAX_VERSION = 0
FLEXIBLE_SINCE = NEVER_FLEXIBLE

_NAME = "RelayDeliver"
_TIMEOUT = Layout(">i")
_ERROR = Layout(">h")
_OFFSET = Layout(">q")


class RelayDeliverRequest(NamedTuple):
    route: WireRoute
    timeout_ms: int
    batches: Buffer  # decoded, a view of the frame


class RelayDeliverResponse(NamedTuple):
    error_code: int = 0
    error_message: str | None = None
    first_offset: int = -1


def decode_request(buffer: Buffer, position: int, version: int) -> tuple[RelayDeliverRequest, int]:
    with decoding(_NAME, version):
        route, position = read_route(buffer, position)
        (timeout_ms,) = _TIMEOUT.unpack_from(buffer, position)
        batches, position = read_records(buffer, position + _TIMEOUT.size)
        return RelayDeliverRequest(route, timeout_ms, batches), position


def encode_request(message: RelayDeliverRequest, version: int) -> bytes:
    with encoding(_NAME, version):
        out = bytearray()
        write_route(out, message.route)
        out += _TIMEOUT.pack(message.timeout_ms)
        write_bytes(out, message.batches)
        return bytes(out)


def decode_response(buffer: Buffer, position: int, version: int) -> tuple[RelayDeliverResponse, int]:
    with decoding(_NAME, version):
        (error_code,) = _ERROR.unpack_from(buffer, position)
        message, position = read_nullable_string(buffer, position + _ERROR.size)
        (first_offset,) = _OFFSET.unpack_from(buffer, position)
        return RelayDeliverResponse(error_code, message, first_offset), position + _OFFSET.size


def encode_response(message: RelayDeliverResponse, version: int) -> bytes:
    with encoding(_NAME, version):
        out = bytearray(_ERROR.pack(message.error_code))
        write_nullable_string(out, message.error_message)
        out += _OFFSET.pack(message.first_offset)
        return bytes(out)
