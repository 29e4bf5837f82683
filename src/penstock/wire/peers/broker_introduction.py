"""BrokerIntroduction (30001): a broker says which one it is, of which registration, and proves it.

    request    int32 node id, int64 broker epoch, bytes proof
    response   int16 error

What the proof is made of: `replication.introduction`.
"""

from struct import Struct as Layout
from typing import NamedTuple

from penstock.wire.kafka.primitives import NEVER_FLEXIBLE, Buffer, read_bytes, write_bytes
from penstock.wire.peers.errors import decoding, encoding
from penstock.wire.peers.keys import PeerApi

API_KEY = int(PeerApi.BROKER_INTRODUCTION)
MIN_VERSION = MAX_VERSION = 0
FLEXIBLE_SINCE = NEVER_FLEXIBLE

_NAME = "BrokerIntroduction"
_CLAIM = Layout(">iq")
_ERROR = Layout(">h")


class IntroductionRequest(NamedTuple):
    node: int
    broker_epoch: int
    proof: bytes


class IntroductionResponse(NamedTuple):
    error_code: int = 0


def decode_request(buffer: Buffer, position: int, version: int) -> tuple[IntroductionRequest, int]:
    with decoding(_NAME, version):
        node, broker_epoch = _CLAIM.unpack_from(buffer, position)
        proof, position = read_bytes(buffer, position + _CLAIM.size)
        return IntroductionRequest(node, broker_epoch, proof), position


def encode_request(message: IntroductionRequest, version: int) -> bytes:
    with encoding(_NAME, version):
        out = bytearray(_CLAIM.pack(message.node, message.broker_epoch))
        write_bytes(out, message.proof)
        return bytes(out)


def decode_response(buffer: Buffer, position: int, version: int) -> tuple[IntroductionResponse, int]:
    with decoding(_NAME, version):
        return IntroductionResponse(*_ERROR.unpack_from(buffer, position)), position + _ERROR.size


def encode_response(message: IntroductionResponse, version: int) -> bytes:
    with encoding(_NAME, version):
        return _ERROR.pack(message.error_code)
