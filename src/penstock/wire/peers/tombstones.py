"""Tombstones (30006): below which offset a leader's log may lack tombstones that once were there (ADR 14).

    request    uuid topic, int32 partition, int32 leader epoch
    response   int16 error, int64 offset

A follower asks before it takes over a gap in a topic that does not compact: compaction made it once, or files are gone
at its leader. In the second case whole replicas that have less must not be sent to begin anew.
"""

from struct import Struct as Layout
from typing import NamedTuple

from penstock.wire.kafka.primitives import NEVER_FLEXIBLE, Buffer, checked_uuid
from penstock.wire.peers.errors import decoding, encoding
from penstock.wire.peers.keys import PeerApi

API_KEY = int(PeerApi.TOMBSTONES)
MIN_VERSION = MAX_VERSION = 0
FLEXIBLE_SINCE = NEVER_FLEXIBLE

_NAME = "Tombstones"
_REQUEST = Layout(">16sii")
_RESPONSE = Layout(">hq")


class TombstonesRequest(NamedTuple):
    topic_id: bytes
    partition: int
    leader_epoch: int


class TombstonesResponse(NamedTuple):
    error_code: int = 0
    offset: int = 0


def decode_request(buffer: Buffer, position: int, version: int) -> tuple[TombstonesRequest, int]:
    with decoding(_NAME, version):
        return TombstonesRequest(*_REQUEST.unpack_from(buffer, position)), position + _REQUEST.size


def encode_request(message: TombstonesRequest, version: int) -> bytes:
    with encoding(_NAME, version):
        return _REQUEST.pack(checked_uuid(message.topic_id), message.partition, message.leader_epoch)


def decode_response(buffer: Buffer, position: int, version: int) -> tuple[TombstonesResponse, int]:
    with decoding(_NAME, version):
        return TombstonesResponse(*_RESPONSE.unpack_from(buffer, position)), position + _RESPONSE.size


def encode_response(message: TombstonesResponse, version: int) -> bytes:
    with encoding(_NAME, version):
        return _RESPONSE.pack(*message)
