"""What a batch carries that was moved from one partition's log to another's: where it comes from, to the record.

The three fields of an idempotent producer hold it, so that it is part of the log and of the producer state:

    producer id     1 (bit 62) | flags (7 bits) | source (24 bits) | leader epoch of the source batch (31 bits)
    producer epoch  the number of its first record, upper 15 bits
    base sequence   the same number, lower 31 bits

    flag 1          says only where the relay goes on, and that what lies before it cannot be moved any more
    flag 2          `source` is a name that this log gave; else a retired partition of the same topic (ADR 11)

The number belongs to the source: the distance from its limit where a partition is retired, a dense count elsewhere. The
whole place is in every batch: nothing wraps within 2^46 records, and a replica that has only the last of them knows as
much as one that has all. Ids with bit 62 are given to nobody else: producer ids count up from 0.

A source that is no retired partition of the same topic does not fit into 24 bits. The log gives it a name there, in a
position: a control record, which clients skip, and which says the place as well. It stands before all that goes by it
(ADR 18). A position under flag 2 has nothing in epoch and sequence; its value says all:

    version 1 | kind  topic id  partition | leader epoch  number | skips
    2         | 2     16        4         | 4             8      | 1

    -1 in place of epoch and number: nothing is moved yet. A position without flag 2 has no value.
"""

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from penstock.core.error_codes import ErrorCode
from penstock.core.formats import check_version
from penstock.core.limits import RELAYED_DISTANCE_MAX
from penstock.records.batch import (
    ATTRIBUTES_POSITION,
    LAST_OFFSET_DELTA_POSITION,
    TRANSACTIONAL_MASK,
    BatchHeader,
    Buffer,
    InvalidBatch,
    read_header,
    stamp_crc,
)
from penstock.records.builder import BatchBuilder, BatchOptions
from penstock.records.reader import read_records

# The first producer id that is a relay's.
RELAY_IDS = 1 << 62
# The first one whose source goes by a name.
NAMED_IDS = RELAY_IDS | 1 << 56

_SKIPS = 1 << 55
_NAMED = 1 << 56
_SOURCE_SHIFT = 31
_SOURCE_MAX = (1 << 24) - 1
_EPOCH_MASK = 0x7FFFFFFF
_SEQUENCE_BITS = 31
_SEQUENCE_MASK = 0x7FFFFFFF
_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_PRODUCER = Struct(">qhi")
_PRODUCER_POSITION = 43
# The type of a control record that says nothing but where a relay stands; clients skip what they do not know.
_CONTROL_KEY = Struct(">hh").pack(0, 0x5250)
_VERSION = 1
_VALUE_VERSION = Struct(">h")
_VALUE = Struct(">hh16siiqb")


class RelayKind(IntEnum):
    """What records are moved for. Its numbers are in logs: none is ever given a second meaning."""

    RETIRED = 0  # from a retired partition to another of the same topic


# In place of the topic's id, where the source is of the same topic as the target.
OWN_TOPIC = bytes(16)


class RelaySource(NamedTuple):
    """As the target's log knows it: what its place is remembered by."""

    kind: int
    topic_id: bytes
    partition: int


class RelayPlace(NamedTuple):
    """A place in the source: ordered, since epochs only ever rise along it."""

    epoch: int
    number: int  # of the last record moved


NOTHING_MOVED = RelayPlace(-1, -1)


class Relayed(NamedTuple):
    """A moved batch: its source, and from where to where it reaches."""

    source: int  # a retired partition, or where it is named, the name
    epoch: int
    first: int
    last: int
    skips: bool = False  # what lies before it is lost, and shall not be waited for
    named: bool = False

    @property
    def place(self) -> RelayPlace:
        return RelayPlace(self.epoch, self.last)


def retired_source(partition: int) -> RelaySource:
    return RelaySource(RelayKind.RETIRED, OWN_TOPIC, partition)


def relay_place(producer_id: int, producer_epoch: int, last_sequence: int) -> tuple[int, RelayPlace]:
    """(source or its name, how far), from what is told of a relay as a producer."""
    source, epoch = _relay_of(producer_id)
    return source, RelayPlace(epoch, _number(producer_epoch, last_sequence))


def relayed_by(header: BatchHeader) -> Relayed:
    """Of a batch whose producer id is a relay's; not for a position that names its source."""
    source, epoch = _relay_of(header.producer_id)
    first = _number(header.producer_epoch, header.base_sequence)
    skips = header.producer_id & _SKIPS != 0
    named = header.producer_id >= NAMED_IDS
    return Relayed(source, epoch, first, first + header.last_offset_delta, skips, named)


def names_source(header: BatchHeader) -> bool:
    """Whether the header does not tell all: its record says what goes by which name, and how far it is."""
    return header.producer_id >= NAMED_IDS and header.is_control


def read_position(header: BatchHeader, batch: Buffer) -> tuple[RelaySource, Relayed]:
    """Of one that names its source. NewerFormatError: of a newer release. InvalidBatch: it is none."""
    values = [record.value or b"" for record in read_records(batch)]
    value = values[0] if values else b""
    if len(value) >= _VALUE_VERSION.size:
        check_version("a relay's position", _VALUE_VERSION.unpack_from(value)[0], _VERSION)
    if len(values) != 1 or len(value) != _VALUE.size:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, "a relay's position that says no place")
    _, kind, topic_id, partition, epoch, number, skips = _VALUE.unpack(value)
    name, _ = _relay_of(header.producer_id)
    return RelaySource(kind, topic_id, partition), Relayed(name, epoch, number, number, skips != 0, True)


def _relay_of(producer_id: int) -> tuple[int, int]:
    """(source, epoch)"""
    return producer_id >> _SOURCE_SHIFT & _SOURCE_MAX, producer_id & _EPOCH_MASK


def _number(producer_epoch: int, sequence: int) -> int:
    return producer_epoch << _SEQUENCE_BITS | sequence


def producer_fields(source: int, epoch: int, number: int, *, named: bool = False) -> tuple[int, int, int]:
    """(producer id, producer epoch, sequence)"""
    if not 0 <= source <= _SOURCE_MAX or not 0 <= epoch <= _EPOCH_MASK:
        raise ValueError(f"partition or name {source} in epoch {epoch} is out of a relay's range")
    if not 0 <= number <= RELAYED_DISTANCE_MAX:
        raise ValueError(f"{number} records are more than one relay can move")
    producer_id = RELAY_IDS | source << _SOURCE_SHIFT | epoch
    if named:
        producer_id |= _NAMED
    return producer_id, number >> _SEQUENCE_BITS, number & _SEQUENCE_MASK


def stamp_relayed(
    batch: memoryview, source: int, epoch: int, number: int, *, named: bool = False
) -> BatchHeader:
    """Make a batch one that is moved, as one of that leader epoch of its source."""
    header = read_header(batch)
    fields = producer_fields(source, epoch, number, named=named)
    _PRODUCER.pack_into(batch, _PRODUCER_POSITION, *fields)
    if header.is_transactional:  # it was committed where it comes from
        _INT16.pack_into(batch, ATTRIBUTES_POSITION, header.attributes & ~TRANSACTIONAL_MASK)
    stamp_crc(batch, 0, header.size_bytes)
    return read_header(batch)


def stamp_name(batch: memoryview, name: int) -> BatchHeader:
    """By what name the log that it is moved to knows its source."""
    header = read_header(batch)
    if not 0 <= name <= _SOURCE_MAX:
        raise ValueError(f"{name} is out of a relay's range")
    others = header.producer_id & ~(_SOURCE_MAX << _SOURCE_SHIFT)
    _INT64.pack_into(batch, _PRODUCER_POSITION, others | name << _SOURCE_SHIFT)
    stamp_crc(batch, 0, header.size_bytes)
    return read_header(batch)


def filler_batch(count: int, time_ms: int = 0) -> bytearray:
    """A control batch that takes so many offsets, up to 2^31, and says nothing; of 1970 it keeps nothing."""
    builder = BatchBuilder(BatchOptions(control=True))
    builder.append(b"", key=_CONTROL_KEY, timestamp=time_ms)
    batch = builder.build()
    _INT32.pack_into(batch, LAST_OFFSET_DELTA_POSITION, count - 1)
    stamp_crc(memoryview(batch), 0, len(batch))
    return batch


def position_batch(
    source: RelaySource, place: RelayPlace, now_ms: int, *, name: int = 0, skips: bool = False
) -> bytearray:
    """A control batch that says how far a relay is: for when the last moved batch is about to be deleted.

    Or, when it `skips`, that nothing up to and with this place is to be had any more.
    """
    value = b""
    if source.kind == RelayKind.RETIRED:
        producer_id, producer_epoch, sequence = producer_fields(source.partition, *place)
        producer_id |= _SKIPS if skips else 0
    else:
        producer_id, producer_epoch, sequence = producer_fields(name, 0, 0, named=True)
        value = _VALUE.pack(_VERSION, *source, *place, skips)
    builder = BatchBuilder(
        BatchOptions(
            producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=sequence, control=True
        )
    )
    builder.append(value, key=_CONTROL_KEY, timestamp=now_ms)
    return builder.build()
