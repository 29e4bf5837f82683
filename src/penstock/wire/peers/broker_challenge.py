"""BrokerChallenge (30000): a broker that wants to introduce itself asks for something to prove itself on.

    request    empty
    response   int16 error, bytes nonce

A nonce is good for one introduction, on the connection that asked for it (`replication.introduction`).
"""

from struct import Struct as Layout
from typing import NamedTuple

from penstock.wire.kafka.primitives import NEVER_FLEXIBLE, Buffer, read_bytes, write_bytes
from penstock.wire.peers.errors import decoding, encoding
from penstock.wire.peers.keys import PeerApi

API_KEY = int(PeerApi.BROKER_CHALLENGE)
MIN_VERSION = MAX_VERSION = 0
FLEXIBLE_SINCE = NEVER_FLEXIBLE

_NAME = "BrokerChallenge"
_ERROR = Layout(">h")


class ChallengeRequest(NamedTuple):
    pass


class ChallengeResponse(NamedTuple):
    error_code: int = 0
    nonce: bytes = b""


def decode_request(buffer: Buffer, position: int, version: int) -> tuple[ChallengeRequest, int]:
    del buffer
    with decoding(_NAME, version):
        return ChallengeRequest(), position


def encode_request(message: ChallengeRequest, version: int) -> bytes:
    del message
    with encoding(_NAME, version):
        return b""


def decode_response(buffer: Buffer, position: int, version: int) -> tuple[ChallengeResponse, int]:
    with decoding(_NAME, version):
        (error_code,) = _ERROR.unpack_from(buffer, position)
        nonce, position = read_bytes(buffer, position + _ERROR.size)
        return ChallengeResponse(error_code, nonce), position


def encode_response(message: ChallengeResponse, version: int) -> bytes:
    with encoding(_NAME, version):
        out = bytearray(_ERROR.pack(message.error_code))
        write_bytes(out, message.nonce)
        return bytes(out)
