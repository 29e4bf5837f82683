"""Retirement (30005): what the controller asks the leaders of partitions that are retired, and what they promise.

Only leaders know where their readers are and what is left to do; only the controller writes metadata. So it asks now
and then, and every write holds only if the partition is still led as it was when its leader answered: same state,
same process.

    controller                                 leader of the partition, in the epoch that the controller names
    (controller.retirer)                       (services.retiring)

    FREEZE  ─────────────────────────────────▶ the topic's settings want it retired, as known here
            ◀───────── Frozen(limit)           readers see nothing from `limit` on, from now on, as long as it leads
       the limit is written down, once

    LOOK    ─────────────────────────────────▶ it is retired, as known here, and its target has told how far it is
            ◀───────── Seen(start, written)    what readers have left begins at `start`; it was last written to at
       hidden, when nothing is left               `written`, which is now while something is left to move

    CLOSE   ─────────────────────────────────▶ all is moved, nothing is left to read, and the grace is over; the target
                                                  was asked once more whether it has all
            ◀───────── Closed(end)             nothing is taken any more, as long as it leads: its log ends at `end`
            ◀───────── Seen(start, written)    it does not agree yet
       the partition is removed

Who may ask: a broker that has introduced itself and is registered as the one it says. A leader that cannot tell, or is
not of that epoch, answers with an error, which changes nothing: it is asked again.

    request    int8 question, uuid topic, count, per partition: int32 number, int32 leader epoch
    response   int16 error (for all), count, per partition: int32 number, int16 error, int8 kind of answer, two int64

    kind 0     none: there is an error
    kind 1     Frozen   limit, 0
    kind 2     Seen     start offset, written ms
    kind 3     Closed   end offset, 0
"""

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct as Layout
from typing import NamedTuple

from penstock.wire.kafka.primitives import (
    NEVER_FLEXIBLE,
    Buffer,
    DecodeError,
    checked_uuid,
    read_count,
    write_count,
)
from penstock.wire.peers.errors import decoding, encoding
from penstock.wire.peers.keys import PeerApi

API_KEY = int(PeerApi.RETIREMENT)
MIN_VERSION = MAX_VERSION = 0
FLEXIBLE_SINCE = NEVER_FLEXIBLE


class Question(IntEnum):
    FREEZE = 1
    LOOK = 2
    CLOSE = 3


class Frozen(NamedTuple):
    limit: int  # readers see what is below


class Seen(NamedTuple):
    start_offset: int  # what readers have left begins here
    written_ms: int


class Closed(NamedTuple):
    end_offset: int


RetirementAnswer = Frozen | Seen | Closed


class RetirementRequest(NamedTuple):
    question: Question
    topic_id: bytes
    partitions: Sequence[tuple[int, int]]  # (number, leader epoch)


class RetirementResponse(NamedTuple):
    error_code: int = 0
    # (number, error, answer): one of the two
    partitions: Sequence[tuple[int, int, RetirementAnswer | None]] = ()


_NAME = "Retirement"
_HEAD = Layout(">b16s")
_WANTED = Layout(">ii")
_ERROR = Layout(">h")
_ANSWER = Layout(">ihbqq")
_NONE, _FROZEN, _SEEN, _CLOSED = range(4)


def decode_request(buffer: Buffer, position: int, version: int) -> tuple[RetirementRequest, int]:
    with decoding(_NAME, version):
        number, topic_id = _HEAD.unpack_from(buffer, position)
        try:
            question = Question(number)
        except ValueError as error:
            raise DecodeError(f"{_NAME}: {error}") from error
        count, position = read_count(buffer, position + _HEAD.size, _WANTED.size)
        end = position + count * _WANTED.size
        wanted = [_WANTED.unpack_from(buffer, at) for at in range(position, end, _WANTED.size)]
        return RetirementRequest(question, topic_id, wanted), end


def encode_request(message: RetirementRequest, version: int) -> bytes:
    with encoding(_NAME, version):
        out = bytearray(_HEAD.pack(message.question, checked_uuid(message.topic_id)))
        write_count(out, len(message.partitions))
        for number, leader_epoch in message.partitions:
            out += _WANTED.pack(number, leader_epoch)
        return bytes(out)


def decode_response(buffer: Buffer, position: int, version: int) -> tuple[RetirementResponse, int]:
    with decoding(_NAME, version):
        (error_code,) = _ERROR.unpack_from(buffer, position)
        count, position = read_count(buffer, position + _ERROR.size, _ANSWER.size)
        end = position + count * _ANSWER.size
        partitions = []
        for at in range(position, end, _ANSWER.size):
            number, error, kind, *values = _ANSWER.unpack_from(buffer, at)
            partitions.append((number, error, _answer(kind, *values)))
        return RetirementResponse(error_code, partitions), end


def _answer(kind: int, first: int, second: int) -> RetirementAnswer | None:
    if kind == _FROZEN:
        return Frozen(first)
    if kind == _SEEN:
        return Seen(first, second)
    if kind == _CLOSED:
        return Closed(first)
    if kind != _NONE:
        raise DecodeError(f"{_NAME}: an answer of kind {kind}")
    return None


def encode_response(message: RetirementResponse, version: int) -> bytes:
    with encoding(_NAME, version):
        out = bytearray(_ERROR.pack(message.error_code))
        write_count(out, len(message.partitions))
        for number, error, answer in message.partitions:
            match answer:
                case Frozen(limit):
                    out += _ANSWER.pack(number, error, _FROZEN, limit, 0)
                case Seen(start, written_ms):
                    out += _ANSWER.pack(number, error, _SEEN, start, written_ms)
                case Closed(end):
                    out += _ANSWER.pack(number, error, _CLOSED, end, 0)
                case None:
                    out += _ANSWER.pack(number, error, _NONE, 0, 0)
        return bytes(out)
