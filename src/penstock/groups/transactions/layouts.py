"""Keys and values of `__transaction_state`, byte for byte as Apache Kafka 4.3 writes and reads them.

    key     version int16 (0) | transactional id string

    value   version int16 (0 or 1)
            producer id int64 | producer epoch int16 | timeout int32, ms
            status int8: 0 Empty, 1 Ongoing, 2 PrepareCommit, 3 PrepareAbort, 4 CompleteCommit, 5 CompleteAbort
            partitions array? of (topic string, array of int32); null in Empty
            last update int64 | start int64, both ms; start is -1 in Empty

Version 1 has compact strings and arrays, and tagged fields: 0 previous producer id int64, 1 next producer id int64,
2 version of transactions that the client spoke int16. (3, the next epoch, nobody writes.) A tag is left out where it
has its default: -1, -1, 0. No value at all: a tombstone, the id is forgotten.

Keys of other versions are of kinds that are not known here, and skipped. A value of a newer version is refused: Kafka
has promised new tags within version 1, and anything else would be misread. So are 6 (Dead) and 7 (PrepareEpochFence),
which Kafka numbers and never stores.
"""

from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from penstock.groups.transactions.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionState,
)
from penstock.wire.kafka.primitives import (
    MALFORMED,
    DecodeError,
    check_tag_end,
    read_compact_count,
    read_compact_nullable_count,
    read_compact_string,
    read_count,
    read_nullable_count,
    read_numbers,
    read_string,
    read_tag,
    read_uvarint,
    skip_tags,
    write_compact_count,
    write_compact_string,
    write_count,
    write_numbers,
    write_string,
    write_uvarint,
)

NO_ID = -1
NO_EPOCH = -1
NO_TIME = -1
_KEY_VERSION = 0
_FLEXIBLE_VERSION = _VERSION_MAX = 1
_INT16 = Struct(">h")
_INT64 = Struct(">q")
_HEAD = Struct(">hqhib")
_TIMES = Struct(">qq")
_STATUS = {EMPTY: 0, ONGOING: 1, PREPARE_COMMIT: 2, PREPARE_ABORT: 3, COMPLETE_COMMIT: 4, COMPLETE_ABORT: 5}
_STATES = {status: state for state, status in _STATUS.items()}
_PREVIOUS_ID_TAG, _NEXT_ID_TAG, _CLIENT_VERSION_TAG = 0, 1, 2
# A topic without partitions: fewer bytes hold none.
_TOPIC_BYTES_MIN, _TOPIC_BYTES_MIN_COMPACT = 6, 3


class TopicPartition(NamedTuple):
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class StoredTransaction:
    """What a record says of a transactional id."""

    producer_id: int
    epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition] = frozenset()
    updated_ms: int = NO_TIME
    started_ms: int = NO_TIME
    previous_id: int = NO_ID  # the producer id before, where this very record brought another
    next_id: int = NO_ID  # the producer id that the completion will bring
    client_version: int = 0  # of transactions, as the last request that opened or ended one showed


def encode_key(transactional_id: str) -> bytes:
    out = bytearray(_INT16.pack(_KEY_VERSION))
    write_string(out, transactional_id)
    return bytes(out)


def decode_key(data: bytes) -> str | None:
    """The transactional id. None: a kind of record that is not known here. DecodeError: not a key at all."""
    try:
        (version,) = _INT16.unpack_from(data)
        if version != _KEY_VERSION:
            return None
        transactional_id, position = read_string(data, 2)
    except MALFORMED as error:
        raise DecodeError(f"the key of a transaction record: {error}") from error
    if position != len(data):
        raise DecodeError(f"{len(data) - position} bytes behind the key of a transaction record")
    return transactional_id


def encode_value(stored: StoredTransaction, level: int) -> bytes:
    """`level`: of `transaction.version`. At 0 the older version is written where it can tell everything."""
    tags = _tags(stored)
    version = 1 if level >= 1 or len(tags) > 1 else 0
    flexible = version >= _FLEXIBLE_VERSION
    out = bytearray(
        _HEAD.pack(version, stored.producer_id, stored.epoch, stored.timeout_ms, _STATUS[stored.state])
    )
    if stored.state is EMPTY:
        out += b"\x00" if flexible else b"\xff\xff\xff\xff"
    elif flexible:
        _write_compact_partitions(out, stored.partitions)
    else:
        _write_partitions(out, stored.partitions)
    out += _TIMES.pack(stored.updated_ms, stored.started_ms)
    if flexible:
        out += tags
    return bytes(out)


def _by_topic(partitions: frozenset[TopicPartition]) -> dict[str, list[int]]:
    """Sorted, so that the same transaction is the same bytes."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    return topics


def _write_partitions(out: bytearray, partitions: frozenset[TopicPartition]) -> None:
    topics = _by_topic(partitions)
    write_count(out, len(topics))
    for topic, indexes in topics.items():
        write_string(out, topic)
        write_count(out, len(indexes))
        write_numbers(out, indexes, "i")


def _write_compact_partitions(out: bytearray, partitions: frozenset[TopicPartition]) -> None:
    topics = _by_topic(partitions)
    write_compact_count(out, len(topics))
    for topic, indexes in topics.items():
        write_compact_string(out, topic)
        write_compact_count(out, len(indexes))
        write_numbers(out, indexes, "i")
        out.append(0)  # no tagged fields


def _tags(stored: StoredTransaction) -> bytearray:
    fields = []
    if stored.previous_id != NO_ID:
        fields.append((_PREVIOUS_ID_TAG, _INT64.pack(stored.previous_id)))
    if stored.next_id != NO_ID:
        fields.append((_NEXT_ID_TAG, _INT64.pack(stored.next_id)))
    if stored.client_version:
        fields.append((_CLIENT_VERSION_TAG, _INT16.pack(stored.client_version)))
    out = bytearray()
    write_uvarint(out, len(fields))
    for tag, data in fields:
        out += bytes((tag, len(data))) + data
    return out


def decode_value(data: bytes) -> StoredTransaction:
    """DecodeError: damaged, or of a version that is not known here."""
    try:
        return _decode(data)
    except MALFORMED as error:
        raise DecodeError(f"a stored transaction: {error}") from error


def _decode(data: bytes) -> StoredTransaction:
    (version,) = _INT16.unpack_from(data)
    if not 0 <= version <= _VERSION_MAX:
        raise DecodeError(f"a stored transaction of version {version}; {_VERSION_MAX} is the newest known")
    _, producer_id, epoch, timeout_ms, status = _HEAD.unpack_from(data)
    state = _STATES.get(status)
    if state is None:
        raise DecodeError(f"a stored transaction in state {status}")
    if producer_id < 0 or epoch < 0 or timeout_ms < 0:
        raise DecodeError(f"a stored transaction of producer {producer_id}, epoch {epoch}, {timeout_ms} ms")
    flexible = version >= _FLEXIBLE_VERSION
    partitions, position = _read_partitions(data, _HEAD.size, flexible=flexible)
    updated_ms, started_ms = _TIMES.unpack_from(data, position)
    position += _TIMES.size
    previous_id, next_id, client_version = NO_ID, NO_ID, 0
    if flexible:
        previous_id, next_id, client_version, position = _read_tags(data, position)
    if position != len(data):
        raise DecodeError(f"{len(data) - position} bytes behind a stored transaction")
    return StoredTransaction(
        producer_id,
        epoch,
        timeout_ms,
        state,
        partitions,
        updated_ms,
        started_ms,
        previous_id,
        next_id,
        client_version,
    )


def _read_partitions(data: bytes, position: int, *, flexible: bool) -> tuple[frozenset[TopicPartition], int]:
    if flexible:
        topics, position = read_compact_nullable_count(data, position, _TOPIC_BYTES_MIN_COMPACT)
    else:
        topics, position = read_nullable_count(data, position, _TOPIC_BYTES_MIN)
    found: set[TopicPartition] = set()
    for _ in range(topics):
        topic, position = (read_compact_string if flexible else read_string)(data, position)
        count, position = (read_compact_count if flexible else read_count)(data, position, 4)
        indexes, position = read_numbers(data, position, count, "i", 4)
        if flexible:
            position = skip_tags(data, position)
        if any(index < 0 for index in indexes):
            raise DecodeError(f"a stored transaction with partition {min(indexes)} of {topic}")
        found.update(TopicPartition(topic, index) for index in indexes)
    return frozenset(found), position


def _read_tags(data: bytes, position: int) -> tuple[int, int, int, int]:
    previous_id, next_id, client_version = NO_ID, NO_ID, 0
    count, position = read_uvarint(data, position)
    for _ in range(count):
        tag, start, position = read_tag(data, position)
        if tag == _CLIENT_VERSION_TAG:
            check_tag_end(start + _INT16.size, position)
            (client_version,) = _INT16.unpack_from(data, start)
        elif tag in (_PREVIOUS_ID_TAG, _NEXT_ID_TAG):
            check_tag_end(start + _INT64.size, position)
            (producer_id,) = _INT64.unpack_from(data, start)
            if tag == _PREVIOUS_ID_TAG:
                previous_id = producer_id
            else:
                next_id = producer_id
    return previous_id, next_id, client_version, position
