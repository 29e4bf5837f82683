"""Produce, flattened by hand: the request every message comes in with. Versions 3 to 13.

    request   transactional_id, acks, timeout_ms, [topic, [partition, records]]
    response  [topic, [partition, error, base_offset, log_append_time, log_start_offset, record_errors, message]],
              throttle_time_ms

    v5  log_start_offset in the response        v8   record errors and a message in the response
    v9  flexible: compact lengths, tagged fields v10  tagged current leader and node endpoints, where another one leads
    v13 topics by id instead of by name

Records stay where they were received: a partition's are given as (start, end) in the frame. Topics are given as they
stand on the wire, name or id as bytes, since both are dictionary keys and nothing else on this path.
"""

from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from penstock.core.error_codes import ErrorCode
from penstock.core.limits import REQUEST_ENTRIES_WHOLE_MAX
from penstock.wire.kafka.leaders import (
    EndpointOf,
    Leader,
    LeaderOf,
    Named,
    append_endpoints,
    append_leader,
)
from penstock.wire.kafka.primitives import MALFORMED, DecodeError, read_uvarint, skip_tags, write_uvarint

MIN_VERSION = 3
MAX_VERSION = 13
FLEXIBLE_SINCE = 9
TOPIC_IDS_SINCE = 13
LEADERS_SINCE = 10

_ELSEWHERE = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_HEAD = Struct(">hi")  # acks, timeout
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_NO_TAGS_THRICE = memoryview(bytes(3))
_PAIR = Struct(">ii")  # partition, records length
_ANSWER = Struct(">ihqq")  # partition, error, base offset, append time
_ANSWER_START = Struct(">ihqqq")  # …, log start offset

# topic (name or id as on the wire), [(partition, records start, records end)]; start -1 stands for null records
PartitionRecords = tuple[int, int, int]
TopicRecords = tuple[bytes, list[PartitionRecords]]


class RecordErrors(NamedTuple):
    """In place of a message, where single records are to blame: (index in the batch, message) of each."""

    message: str
    records: list[tuple[int, str]]


# partition, error, base offset, append time, log start offset, message
PartitionAnswer = tuple[int, int, int, int, int, str | RecordErrors | None]
TopicAnswer = tuple[bytes, list[PartitionAnswer]]


def decode_request(
    buffer: memoryview, position: int, version: int
) -> tuple[str | None, int, int, list[TopicRecords]]:
    """(transactional id, acks, timeout in ms, topics)"""
    try:
        if version >= FLEXIBLE_SINCE:
            return _decode_flexible(buffer, position, version)
        return _decode_plain(buffer, position)
    except MALFORMED as error:
        raise DecodeError(f"a Produce request that ends early or is malformed: {error}") from error


def decode_single(buffer: memoryview, position: int, version: int) -> tuple[int, bytes, int, int, int] | None:
    """(acks, topic, partition, records start, records end) of the common kind of flexible request: one batch.

    None for every other kind, which `decode_request` takes apart.
    """
    try:
        # No transactional id, and one topic; a count is stored plus one.
        if buffer[position] or buffer[position + 7] != 2:
            return None
        (acks,) = _INT16.unpack_from(buffer, position + 1)
        position += 8
        if version >= TOPIC_IDS_SINCE:
            behind = position + 16
        else:
            behind = position + buffer[position]
            position += 1
            if behind - position >= 0x7F:
                return None
        topic = bytes(buffer[position:behind])
        if buffer[behind] != 2:
            return None
        (partition,) = _INT32.unpack_from(buffer, behind + 1)
        length, start = read_uvarint(buffer, behind + 5)
        end = start + length - 1
        # Nothing but empty tagged fields may follow: of the partition, the topic and the request.
        if length == 0 or buffer[end:] != _NO_TAGS_THRICE:
            return None
    except MALFORMED:
        return None
    return acks, topic, partition, start, end


def _decode_plain(buffer: memoryview, position: int) -> tuple[str | None, int, int, list[TopicRecords]]:
    size = len(buffer)
    (length,) = _INT16.unpack_from(buffer, position)
    position += 2
    transactional_id = None
    if length >= 0:
        transactional_id = str(_taken(buffer, position, length), "utf-8", "replace")
        position += length
    acks, timeout_ms = _HEAD.unpack_from(buffer, position)
    (topic_count,) = _INT32.unpack_from(buffer, position + 6)
    position += 10
    topics: list[TopicRecords] = []
    entries = topic_count
    for _ in range(topic_count):
        (length,) = _INT16.unpack_from(buffer, position)
        position += 2
        name = _as_text(bytes(_taken(buffer, position, length)))
        position += length
        (count,) = _INT32.unpack_from(buffer, position)
        position += 4
        entries += count
        _check_number(entries)
        partitions: list[PartitionRecords] = []
        for _ in range(count):
            partition, length = _PAIR.unpack_from(buffer, position)
            position += 8
            if length < 0:
                partitions.append((partition, -1, -1))
                continue
            end = position + length
            if end > size:
                raise DecodeError(f"records of {length} bytes with {size - position} left")
            partitions.append((partition, position, end))
            position = end
        topics.append((name, partitions))
    return transactional_id, acks, timeout_ms, topics


def _decode_flexible(
    buffer: memoryview, position: int, version: int
) -> tuple[str | None, int, int, list[TopicRecords]]:
    size = len(buffer)
    length, position = read_uvarint(buffer, position)
    transactional_id = None
    if length:
        transactional_id = str(_taken(buffer, position, length - 1), "utf-8", "replace")
        position += length - 1
    acks, timeout_ms = _HEAD.unpack_from(buffer, position)
    topic_count, position = read_uvarint(buffer, position + 6)
    topics: list[TopicRecords] = []
    entries = topic_count
    for _ in range(topic_count - 1):
        if version >= TOPIC_IDS_SINCE:
            topic = bytes(_taken(buffer, position, 16))
            position += 16
        else:
            length, position = read_uvarint(buffer, position)
            topic = _as_text(bytes(_taken(buffer, position, length - 1)))
            position += length - 1
        count, position = read_uvarint(buffer, position)
        entries += count - 1
        _check_number(entries)
        partitions: list[PartitionRecords] = []
        for _ in range(count - 1):
            (partition,) = _INT32.unpack_from(buffer, position)
            length, position = read_uvarint(buffer, position + 4)
            end = position + length - 1
            if end > size:
                raise DecodeError(f"records of {length - 1} bytes with {size - position} left")
            partitions.append((partition, position, end) if length else (partition, -1, -1))
            position = end if length else position
            position = position + 1 if buffer[position] == 0 else skip_tags(buffer, position)
        topics.append((topic, partitions))
        position = position + 1 if buffer[position] == 0 else skip_tags(buffer, position)
    skip_tags(buffer, position)
    return transactional_id, acks, timeout_ms, topics


def _check_number(entries: int) -> None:
    """Before they are read: null records and topics without any are a few bytes each, in a request of 100 MB."""
    if entries > REQUEST_ENTRIES_WHOLE_MAX:
        raise DecodeError(
            f"Produce with {entries} topics and partitions: {REQUEST_ENTRIES_WHOLE_MAX} are the most"
        )


def _as_text(name: bytes) -> bytes:
    """As Kafka reads it, and echoes it: what is no UTF-8 becomes U+FFFD. Names of topics are ASCII."""
    return name if name.isascii() else name.decode("utf-8", "replace").encode()


def _taken(buffer: memoryview, position: int, length: int) -> memoryview:
    if length < 0 or position + length > len(buffer):
        raise DecodeError(f"a length of {length} with {len(buffer) - position} bytes left")
    return buffer[position : position + length]


def encode_response(
    correlation_id: int,
    version: int,
    topics: list[TopicAnswer],
    throttle_ms: int = 0,
    leader_of: LeaderOf | None = None,
    endpoint_of: EndpointOf | None = None,
) -> bytes:
    """A whole response frame, size and header included; where another broker leads, both are asked for it."""
    out = bytearray(4)
    out += _INT32.pack(correlation_id)
    if version >= FLEXIBLE_SINCE:
        _encode_flexible(out, version, topics, throttle_ms, leader_of, endpoint_of)
    else:
        _encode_plain(out, version, topics, throttle_ms)
    _INT32.pack_into(out, 0, len(out) - 4)
    return bytes(out)


@lru_cache(maxsize=1024)
def _single_layout(topic_bytes: int, *, named: bool) -> Struct:
    return Struct(f">iix{'bb' if named else 'b'}{topic_bytes}sbihqqqb8x")


def encode_single(
    correlation_id: int,
    version: int,
    topic: bytes,
    partition: int,
    offset: int,
    append_time: int,
    log_start: int,
) -> bytes:
    """The frame that answers one stored batch, in a flexible version: one `pack` instead of a dozen appends."""
    size = len(topic)
    if version >= TOPIC_IDS_SINCE:
        layout = _single_layout(size, named=False)
        return layout.pack(
            layout.size - 4, correlation_id, 2, topic, 2, partition, 0, offset, append_time, log_start, 1
        )
    layout = _single_layout(size, named=True)
    return layout.pack(
        layout.size - 4,
        correlation_id,
        2,
        size + 1,
        topic,
        2,
        partition,
        0,
        offset,
        append_time,
        log_start,
        1,
    )


def _encode_plain(out: bytearray, version: int, topics: list[TopicAnswer], throttle_ms: int) -> None:
    out += _INT32.pack(len(topics))
    for name, partitions in topics:
        out += _INT16.pack(len(name))
        out += name
        out += _INT32.pack(len(partitions))
        for partition, error, base_offset, append_time, log_start, message in partitions:
            if version >= 5:
                out += _ANSWER_START.pack(partition, error, base_offset, append_time, log_start)
            else:
                out += _ANSWER.pack(partition, error, base_offset, append_time)
            if version >= 8:
                records, text = _explained(message)
                out += _INT32.pack(len(records))
                for index, why in records:
                    out += _INT32.pack(index)
                    _write_plain(out, why)
                if text is None:
                    out += b"\xff\xff"
                else:
                    _write_plain(out, text)
    out += _INT32.pack(throttle_ms)


def _explained(message: str | RecordErrors | None) -> tuple[list[tuple[int, str]], str | None]:
    return (message.records, message.message) if isinstance(message, RecordErrors) else ([], message)


def _write_plain(out: bytearray, text: str) -> None:
    data = text.encode()
    out += _INT16.pack(len(data))
    out += data


def _write_compact(out: bytearray, text: str) -> None:
    data = text.encode()
    write_uvarint(out, len(data) + 1)
    out += data


def _encode_refusal(
    out: bytearray, message: str | RecordErrors | None, leader: Leader | None, named: Named
) -> None:
    records, text = _explained(message)
    write_uvarint(out, len(records) + 1)
    for index, why in records:
        out += _INT32.pack(index)
        _write_compact(out, why)
        out.append(0)
    if text is None:
        out.append(0)
    else:
        _write_compact(out, text)
    if leader is None:
        out.append(0)
    else:
        out.append(1)
        append_leader(out, 0, leader, named)


def _encode_flexible(
    out: bytearray,
    version: int,
    topics: list[TopicAnswer],
    throttle_ms: int,
    leader_of: LeaderOf | None,
    endpoint_of: EndpointOf | None,
) -> None:
    named: Named = {}
    by_id = version >= TOPIC_IDS_SINCE
    out.append(0)  # no tagged fields in the header
    write_uvarint(out, len(topics) + 1)
    for topic, partitions in topics:
        if not by_id:
            write_uvarint(out, len(topic) + 1)
        out += topic
        write_uvarint(out, len(partitions) + 1)
        for partition, error, base_offset, append_time, log_start, message in partitions:
            out += _ANSWER_START.pack(partition, error, base_offset, append_time, log_start)
            if error == _ELSEWHERE and leader_of is not None and version >= LEADERS_SINCE:
                _encode_refusal(out, message, leader_of(topic, partition, by_id), named)
            elif message is None:
                out += b"\x01\0\0"  # no record errors, null message, no tagged fields
            else:
                _encode_refusal(out, message, None, named)
        out.append(0)
    out += _INT32.pack(throttle_ms)
    append_endpoints(out, named, endpoint_of)
