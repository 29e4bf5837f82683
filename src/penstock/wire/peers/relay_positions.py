"""RelayPositions (30004): how far a relay is at its target, as far as no fail-over can take it back.

    request    route (`routes`)
    response   int16 error, nullable string message, count, per position: int32 source epoch, int64 position

The latest epoch first, and behind it what is there of the logs of earlier leaders.
"""

from struct import Struct as Layout
from typing import NamedTuple

from penstock.wire.kafka.primitives import (
    NEVER_FLEXIBLE,
    Buffer,
    read_count,
    read_nullable_string,
    write_count,
    write_nullable_string,
)
from penstock.wire.peers.errors import decoding, encoding
from penstock.wire.peers.keys import PeerApi
from penstock.wire.peers.routes import WireRoute, read_route, write_route

API_KEY = int(PeerApi.RELAY_POSITIONS)
MIN_VERSION = MAX_VERSION = 0
FLEXIBLE_SINCE = NEVER_FLEXIBLE

_NAME = "RelayPositions"
_ERROR = Layout(">h")
_POSITION = Layout(">iq")


class RelayPositionsRequest(NamedTuple):
    route: WireRoute


class RelayPositionsResponse(NamedTuple):
    error_code: int = 0
    error_message: str | None = None
    positions: tuple[tuple[int, int], ...] = ()  # (source epoch, position)


def decode_request(buffer: Buffer, position: int, version: int) -> tuple[RelayPositionsRequest, int]:
    with decoding(_NAME, version):
        route, position = read_route(buffer, position)
        return RelayPositionsRequest(route), position


def encode_request(message: RelayPositionsRequest, version: int) -> bytes:
    with encoding(_NAME, version):
        out = bytearray()
        write_route(out, message.route)
        return bytes(out)


def decode_response(buffer: Buffer, position: int, version: int) -> tuple[RelayPositionsResponse, int]:
    with decoding(_NAME, version):
        (error_code,) = _ERROR.unpack_from(buffer, position)
        message, position = read_nullable_string(buffer, position + _ERROR.size)
        count, position = read_count(buffer, position, _POSITION.size)
        end = position + count * _POSITION.size
        positions = tuple(_POSITION.unpack_from(buffer, at) for at in range(position, end, _POSITION.size))
        return RelayPositionsResponse(error_code, message, positions), end


def encode_response(message: RelayPositionsResponse, version: int) -> bytes:
    with encoding(_NAME, version):
        out = bytearray(_ERROR.pack(message.error_code))
        write_nullable_string(out, message.error_message)
        write_count(out, len(message.positions))
        for epoch, position in message.positions:
            out += _POSITION.pack(epoch, position)
        return bytes(out)
