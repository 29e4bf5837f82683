"""Envelope (30002): a client's request on its way to the controller, and whose it is.

    request    string principal type, string principal name, nullable string client id, string address,
               string listener, int16 API key, int16 version, bytes body
    response   int16 error, bytes body

The body is that of the request inside, and of its answer, in the version that the client spoke; neither has a header.
With an error (NOT_CONTROLLER) the body is empty, and nothing was carried out: it may be asked again.
"""

from struct import Struct as Layout
from typing import NamedTuple

from penstock.wire.kafka.primitives import (
    NEVER_FLEXIBLE,
    Buffer,
    read_nullable_string,
    read_records,
    read_string,
    write_bytes,
    write_nullable_string,
    write_string,
)
from penstock.wire.peers.errors import decoding, encoding
from penstock.wire.peers.keys import PeerApi

API_KEY = int(PeerApi.ENVELOPE)
MIN_VERSION = MAX_VERSION = 0
FLEXIBLE_SINCE = NEVER_FLEXIBLE

_NAME = "Envelope"
_INSIDE = Layout(">hh")
_ERROR = Layout(">h")


class EnvelopeRequest(NamedTuple):
    principal_type: str
    principal_name: str
    client_id: str | None
    address: str
    listener: str
    api_key: int
    version: int
    body: Buffer  # decoded, a view of the frame


class EnvelopeResponse(NamedTuple):
    error_code: int = 0
    body: Buffer = b""


def decode_request(buffer: Buffer, position: int, version: int) -> tuple[EnvelopeRequest, int]:
    with decoding(_NAME, version):
        principal_type, position = read_string(buffer, position)
        principal_name, position = read_string(buffer, position)
        client_id, position = read_nullable_string(buffer, position)
        address, position = read_string(buffer, position)
        listener, position = read_string(buffer, position)
        api_key, inside = _INSIDE.unpack_from(buffer, position)
        body, position = read_records(buffer, position + _INSIDE.size)
        found = EnvelopeRequest(
            principal_type, principal_name, client_id, address, listener, api_key, inside, body
        )
        return found, position


def encode_request(message: EnvelopeRequest, version: int) -> bytes:
    with encoding(_NAME, version):
        out = bytearray()
        write_string(out, message.principal_type)
        write_string(out, message.principal_name)
        write_nullable_string(out, message.client_id)
        write_string(out, message.address)
        write_string(out, message.listener)
        out += _INSIDE.pack(message.api_key, message.version)
        write_bytes(out, message.body)
        return bytes(out)


def decode_response(buffer: Buffer, position: int, version: int) -> tuple[EnvelopeResponse, int]:
    with decoding(_NAME, version):
        (error_code,) = _ERROR.unpack_from(buffer, position)
        body, position = read_records(buffer, position + _ERROR.size)
        return EnvelopeResponse(error_code, body), position


def encode_response(message: EnvelopeResponse, version: int) -> bytes:
    with encoding(_NAME, version):
        out = bytearray(_ERROR.pack(message.error_code))
        write_bytes(out, message.body)
        return bytes(out)
