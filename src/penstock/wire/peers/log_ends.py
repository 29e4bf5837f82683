"""LogEnds (30007): how far a broker's replicas are, whoever leads them, for an election by log end.

    request    count, per partition: uuid topic, int32 number, int32 leader epoch
    response   count, in the same order: int16 error, int32 last leader epoch, int64 end offset, bool complete

Asked by topic id: a broker that has not yet put a deleted topic away would tell that one's end for the topic that was
made again under its name, be elected for it, and have those cut that hold what was acknowledged. Nor does one tell that
has not heard of the leader epoch: an earlier leader may still have its log cut.
"""

from collections.abc import Sequence
from struct import Struct as Layout
from typing import NamedTuple

from penstock.wire.kafka.primitives import NEVER_FLEXIBLE, Buffer, checked_uuid, read_count, write_count
from penstock.wire.peers.errors import decoding, encoding
from penstock.wire.peers.keys import PeerApi

API_KEY = int(PeerApi.LOG_ENDS)
MIN_VERSION = MAX_VERSION = 0
FLEXIBLE_SINCE = NEVER_FLEXIBLE

_NAME = "LogEnds"
_WANTED = Layout(">16sii")
_TOLD = Layout(">hiq?")


class WantedEnd(NamedTuple):
    topic_id: bytes
    partition: int
    leader_epoch: int


class ToldEnd(NamedTuple):
    error_code: int = 0
    last_epoch: int = -1
    end_offset: int = -1
    is_complete: bool = True


class LogEndsRequest(NamedTuple):
    wanted: Sequence[WantedEnd]


class LogEndsResponse(NamedTuple):
    told: Sequence[ToldEnd]


def decode_request(buffer: Buffer, position: int, version: int) -> tuple[LogEndsRequest, int]:
    with decoding(_NAME, version):
        count, position = read_count(buffer, position, _WANTED.size)
        end = position + count * _WANTED.size
        places = range(position, end, _WANTED.size)
        return LogEndsRequest([WantedEnd(*_WANTED.unpack_from(buffer, at)) for at in places]), end


def encode_request(message: LogEndsRequest, version: int) -> bytes:
    with encoding(_NAME, version):
        out = bytearray()
        write_count(out, len(message.wanted))
        for topic_id, partition, leader_epoch in message.wanted:
            out += _WANTED.pack(checked_uuid(topic_id), partition, leader_epoch)
        return bytes(out)


def decode_response(buffer: Buffer, position: int, version: int) -> tuple[LogEndsResponse, int]:
    with decoding(_NAME, version):
        count, position = read_count(buffer, position, _TOLD.size)
        end = position + count * _TOLD.size
        places = range(position, end, _TOLD.size)
        return LogEndsResponse([ToldEnd(*_TOLD.unpack_from(buffer, at)) for at in places]), end


def encode_response(message: LogEndsResponse, version: int) -> bytes:
    with encoding(_NAME, version):
        out = bytearray()
        write_count(out, len(message.told))
        for told in message.told:
            out += _TOLD.pack(*told)
        return bytes(out)
