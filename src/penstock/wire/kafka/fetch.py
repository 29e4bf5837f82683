"""Fetch, flattened by hand: the request every message leaves with. Versions 4 to 18.

    request   [replica_id], max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch,
              [topic, [partition, leader epoch, offset, last epoch, log start, max bytes]], [forgotten], rack
    response  throttle, error, session_id,
              [topic, [partition, error, high watermark, last stable, log start, [aborted], replica, records]]

    v5  log_start_offset        v7  sessions and forgotten topics     v9  current_leader_epoch
    v11 rack, preferred replica v12 flexible, last_fetched_epoch      v13 topics by id
    v15 replica state as a tag  v16 node endpoints as a tag           v17 replica directory id as a tag
    v18 high watermark as a tag

The answer's records are not bytes but a place in a file, so a response is a list of parts: bytes, and whatever
object the caller put in for the records. Only its size is needed here.

Where another broker leads, the answer says who and where since version 16 (KIP-951).
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from penstock.core.error_codes import ErrorCode
from penstock.wire.kafka import leaders
from penstock.wire.kafka.primitives import (
    MALFORMED,
    Buffer,
    DecodeError,
    read_uvarint,
    skip_tags,
    write_uvarint,
)

MIN_VERSION = 4
MAX_VERSION = 18
FLEXIBLE_SINCE = 12
TOPIC_IDS_SINCE = 13
FOLLOWERS_SINCE = 11  # consumers may be sent to other replicas
ENDPOINTS_SINCE = 16

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_HEAD = Struct(">iiib")  # max wait, min bytes, max bytes, isolation level
_INT32_INT32 = Struct(">ii")
_INT32_INT64 = Struct(">iq")
_PARTITION_V4 = Struct(">iqi")  # partition, offset, max bytes
_PARTITION_V5 = Struct(">iqqi")  # partition, offset, log start, max bytes
_PARTITION_V9 = Struct(">iiqqi")  # partition, leader epoch, offset, log start, max bytes
_PARTITION_V12 = Struct(">iiqiqi")  # partition, leader epoch, offset, last epoch, log start, max bytes
_ANSWER_V4 = Struct(">ihqq")  # partition, error, high watermark, last stable offset
_ANSWER_V5 = Struct(">ihqqq")  # …, log start offset
_ABORTED = Struct(">qq")
_COPIED_BYTES_MAX = 4096
_ELSEWHERE = (int(ErrorCode.NOT_LEADER_OR_FOLLOWER), int(ErrorCode.FENCED_LEADER_EPOCH))
# Of requests and answers with one partition, in flexible versions. A count is stored plus one.
_HEAD_SINGLE = Struct(">iiibiib")  # as above, session id, session epoch, topic count
_END_SINGLE = b"\0\0\1\1\0"  # no tags of partition and topic, nothing forgotten, no rack, no tags
_FRAME_SINGLE = Struct(">iibihib")  # size, correlation id, no tags, throttle, error, session id, topic count
_ANSWER_SINGLE = Struct(">bihqqqbi")  # partition count, as above, aborted count, preferred replica
_NO_TAGS_THRICE = bytes(3)  # of the partition, the topic and the answer
_tuple = tuple.__new__  # makes a named tuple without a call in Python


class FetchPartition(NamedTuple):
    partition: int
    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class FetchRequest(NamedTuple):
    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[tuple[bytes, list[FetchPartition]]]  # topic: name or id as on the wire
    forgotten: list[tuple[bytes, list[int]]]
    rack: bytes


# Partition, error, high watermark, last stable offset, log start, records (None: none) and their size, aborted
# (producer id, first offset), preferred replica, diverging (epoch, end offset). Whoever reads has its own type for it.
_Aborted = list[tuple[int, int]] | None
Answer = tuple[int, int, int, int, int, object | None, int, _Aborted, int, tuple[int, int] | None]
TopicAnswer = tuple[bytes, Sequence[Answer]]


def decode_request(buffer: memoryview, position: int, version: int) -> FetchRequest:
    try:
        # Bytes are read quicker than a view of them, by more than copying a small request costs.
        if len(buffer) > _COPIED_BYTES_MAX:
            return _decode(buffer, position, version)
        data = bytes(buffer)
        single = _decode_single(data, position, version) if version >= FLEXIBLE_SINCE else None
        return _decode(data, position, version) if single is None else single
    except MALFORMED as error:
        raise DecodeError(f"a Fetch request that ends early or is malformed: {error}") from error


def _decode_single(data: bytes, position: int, version: int) -> FetchRequest | None:
    """The common kind of flexible request: one partition, and nothing that is rare. None for every other kind."""
    replica_id = -1
    if version < 15:
        (replica_id,) = _INT32.unpack_from(data, position)
        position += 4
    wait, least, most, isolation, session, epoch, topics = _HEAD_SINGLE.unpack_from(data, position)
    position += 22
    if topics != 2:
        return None
    if version >= TOPIC_IDS_SINCE:
        behind = position + 16
    else:
        behind = position + data[position]
        position += 1
        if not 0 <= behind - position < 0x7F or not data[position:behind].isascii():
            return None
    if data[behind] != 2 or data[behind + 33 :] != _END_SINGLE:
        return None
    topic = data[position:behind]
    partition = _tuple(FetchPartition, _PARTITION_V12.unpack_from(data, behind + 1))
    wanted = [(topic, [partition])]
    return _tuple(
        FetchRequest, (replica_id, -1, wait, least, most, isolation, session, epoch, wanted, [], b"")
    )


def _decode(buffer: Buffer, position: int, version: int) -> FetchRequest:
    replica_id, replica_epoch = -1, -1
    if version < 15:
        (replica_id,) = _INT32.unpack_from(buffer, position)
        position += 4
    max_wait_ms, min_bytes, max_bytes, isolation = _HEAD.unpack_from(buffer, position)
    position += 13
    session_id, session_epoch = 0, -1
    if version >= 7:
        session_id, session_epoch = _INT32_INT32.unpack_from(buffer, position)
        position += 8
    count, position = _count(buffer, position, version)
    topics: list[tuple[bytes, list[FetchPartition]]] = []
    for _ in range(count):
        topic, position = _topic(buffer, position, version)
        partition_count, position = _count(buffer, position, version)
        partitions: list[FetchPartition] = []
        for _ in range(partition_count):
            partition, position = _partition(buffer, position, version)
            partitions.append(partition)
        if version >= FLEXIBLE_SINCE:
            position = skip_tags(buffer, position)
        topics.append((topic, partitions))
    forgotten: list[tuple[bytes, list[int]]] = []
    if version >= 7:
        count, position = _count(buffer, position, version)
        for _ in range(count):
            topic, position = _topic(buffer, position, version)
            partition_count, position = _count(buffer, position, version)
            if partition_count * 4 > len(buffer) - position:
                raise DecodeError(f"{partition_count} partitions with {len(buffer) - position} bytes left")
            numbers = [_INT32.unpack_from(buffer, position + 4 * i)[0] for i in range(partition_count)]
            position += 4 * partition_count
            if version >= FLEXIBLE_SINCE:
                position = skip_tags(buffer, position)
            forgotten.append((topic, numbers))
    rack = b""
    if version >= 11:
        rack, position = _string(buffer, position, version)
    if version >= 15:
        replica_id, replica_epoch = _replica_state(buffer, position)
    elif version >= FLEXIBLE_SINCE:
        skip_tags(buffer, position)
    return FetchRequest(
        replica_id,
        replica_epoch,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation,
        session_id,
        session_epoch,
        topics,
        forgotten,
        rack,
    )


def _count(buffer: Buffer, position: int, version: int) -> tuple[int, int]:
    """The count of an array whose elements have at least one byte each."""
    if version >= FLEXIBLE_SINCE:
        count, position = read_uvarint(buffer, position)
        count -= 1
    else:
        (count,) = _INT32.unpack_from(buffer, position)
        position += 4
    if count < 0 or count > len(buffer) - position:
        raise DecodeError(f"an array of {count} with {len(buffer) - position} bytes left")
    return count, position


def _topic(buffer: Buffer, position: int, version: int) -> tuple[bytes, int]:
    if version < TOPIC_IDS_SINCE:
        name, position = _string(buffer, position, version)
        # As Kafka reads it, and echoes it: what is no UTF-8 becomes U+FFFD. Names of topics are ASCII.
        return name if name.isascii() else name.decode("utf-8", "replace").encode(), position
    if position + 16 > len(buffer):
        raise DecodeError("the bytes end inside a topic id")
    return bytes(buffer[position : position + 16]), position + 16


def _string(buffer: Buffer, position: int, version: int) -> tuple[bytes, int]:
    if version >= FLEXIBLE_SINCE:
        length, position = read_uvarint(buffer, position)
        length -= 1
    else:
        (length,) = _INT16.unpack_from(buffer, position)
        position += 2
    if length < 0 or position + length > len(buffer):
        raise DecodeError(f"a string of {length} with {len(buffer) - position} bytes left")
    return bytes(buffer[position : position + length]), position + length


def _partition(buffer: Buffer, position: int, version: int) -> tuple[FetchPartition, int]:
    if version >= FLEXIBLE_SINCE:
        partition = FetchPartition._make(_PARTITION_V12.unpack_from(buffer, position))
        position += 32
        position = position + 1 if buffer[position] == 0 else skip_tags(buffer, position)
        return partition, position
    if version >= 9:
        number, epoch, offset, log_start, max_bytes = _PARTITION_V9.unpack_from(buffer, position)
        return FetchPartition(number, epoch, offset, -1, log_start, max_bytes), position + 28
    if version >= 5:
        number, offset, log_start, max_bytes = _PARTITION_V5.unpack_from(buffer, position)
        return FetchPartition(number, -1, offset, -1, log_start, max_bytes), position + 24
    number, offset, max_bytes = _PARTITION_V4.unpack_from(buffer, position)
    return FetchPartition(number, -1, offset, -1, -1, max_bytes), position + 16


def _replica_state(buffer: Buffer, position: int) -> tuple[int, int]:
    """Tag 1 of the request since version 15: the fetching replica's id and broker epoch."""
    count, position = read_uvarint(buffer, position)
    state = (-1, -1)
    for _ in range(count):
        tag, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        if position + size > len(buffer):
            raise DecodeError("a tagged field longer than the bytes left")
        if tag == 1:
            state = _INT32_INT64.unpack_from(buffer, position)
        position += size
    return state


def encode_response(
    correlation_id: int,
    version: int,
    topics: Sequence[TopicAnswer],
    *,
    error: int = 0,
    session_id: int = 0,
    throttle_ms: int = 0,
    leader_of: leaders.LeaderOf | None = None,
    endpoint_of: leaders.EndpointOf | None = None,
) -> list[object]:
    """A whole response frame as parts: bytes, and the answers' own `records` objects in their places.

    Where another broker leads, `leader_of` and `endpoint_of` are asked for it.
    """
    flexible = version >= FLEXIBLE_SINCE
    if flexible and len(topics) == 1 and len(topics[0][1]) == 1:
        topic, (answer,) = topics[0]
        single = _encode_single(correlation_id, version, topic, answer, error, session_id, throttle_ms)
        if single is not None:
            return single
    parts: list[object] = []
    out = bytearray(4)
    total = 0
    named: leaders.Named = {}
    by_id = version >= TOPIC_IDS_SINCE
    out += _INT32.pack(correlation_id)
    if flexible:
        out.append(0)
    out += _INT32.pack(throttle_ms)
    if version >= 7:
        out += _INT16.pack(error)
        out += _INT32.pack(session_id)
    first = out
    _append_count(out, len(topics), flexible=flexible)
    for topic, partitions in topics:
        if not by_id:
            _append_length(out, len(topic), flexible=flexible)
        out += topic
        _append_count(out, len(partitions), flexible=flexible)
        for answer in partitions:
            _append_answer(out, answer, version)
            size = answer[6]
            if flexible:
                write_uvarint(out, size + 1)
            else:
                out += _INT32.pack(size)
            if size:
                total += len(out) + size
                parts += (out, answer[5])
                out = bytearray()
            if flexible:
                leader = None
                if answer[1] in _ELSEWHERE and leader_of is not None and version >= ENDPOINTS_SINCE:
                    leader = leader_of(topic, answer[0], by_id)
                _append_tags(out, answer[9], leader, named)
        if flexible:
            out.append(0)
    if named and version >= ENDPOINTS_SINCE:
        leaders.append_endpoints(out, named, endpoint_of)
    elif flexible:
        out.append(0)
    if out:
        parts.append(out)
    _INT32.pack_into(first, 0, total + len(out) - 4)
    return parts


def _encode_single(
    correlation_id: int,
    version: int,
    topic: bytes,
    answer: Answer,
    error: int,
    session_id: int,
    throttle_ms: int,
) -> list[object] | None:
    """The common kind of flexible answer: one partition without tagged fields. Two `pack`, not a dozen appends.

    None: it is of another kind.
    """
    # As a plain tuple, which is taken apart quicker than one with names.
    number, code, high_watermark, stable, log_start, records, size, aborted, preferred, diverging = answer[:]
    if diverging is not None or aborted or code in _ELSEWHERE:
        return None
    out = bytearray(_FRAME_SINGLE.pack(0, correlation_id, 0, throttle_ms, error, session_id, 2))
    if version < TOPIC_IDS_SINCE:
        write_uvarint(out, len(topic) + 1)
    out += topic
    out += _ANSWER_SINGLE.pack(
        2, number, code, high_watermark, stable, log_start, aborted is not None, preferred
    )
    write_uvarint(out, size + 1)
    _INT32.pack_into(out, 0, len(out) + size - 1)  # with three bytes behind it, without its own four
    if size:
        return [out, records, _NO_TAGS_THRICE]
    out += _NO_TAGS_THRICE
    return [out]


def _append_answer(out: bytearray, answer: Answer, version: int) -> None:
    number, error, high_watermark, stable, log_start, _, _, aborted, preferred, _ = answer
    if version >= 5:
        out += _ANSWER_V5.pack(number, error, high_watermark, stable, log_start)
    else:
        out += _ANSWER_V4.pack(number, error, high_watermark, stable)
    if version >= FLEXIBLE_SINCE:
        write_uvarint(out, 0 if aborted is None else len(aborted) + 1)
    else:
        out += _INT32.pack(-1 if aborted is None else len(aborted))
    for transaction in aborted or ():
        out += _ABORTED.pack(*transaction)
        if version >= FLEXIBLE_SINCE:
            out.append(0)
    if version >= 11:
        out += _INT32.pack(preferred)


def _append_tags(
    out: bytearray, diverging: tuple[int, int] | None, leader: leaders.Leader | None, named: leaders.Named
) -> None:
    if diverging is None and leader is None:
        out.append(0)
        return
    out.append((diverging is not None) + (leader is not None))
    if diverging is not None:
        out += b"\x00\x0d" + _INT32_INT64.pack(*diverging) + b"\0"
    if leader is not None:
        leaders.append_leader(out, 1, leader, named)


def _append_count(out: bytearray, count: int, *, flexible: bool) -> None:
    if flexible:
        write_uvarint(out, count + 1)
    else:
        out += _INT32.pack(count)


def _append_length(out: bytearray, length: int, *, flexible: bool) -> None:
    if flexible:
        write_uvarint(out, length + 1)
    else:
        out += _INT16.pack(length)
