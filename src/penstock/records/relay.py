"""What a batch carries that was moved from one partition's log to another's: where it comes from, to the record.

The three fields of an idempotent producer hold it, so that it is part of the log and of the producer state:

    producer id     1 (bit 62) | kind (7 bits) | source partition (24 bits) | leader epoch of the source batch (31 bits)
    producer epoch  the distance from the source's first moved offset, upper 15 bits
    base sequence   the same distance, lower 31 bits

    kind 1          says only where the relay goes on, and that what lies before it cannot be moved any more

The whole place is in every batch: nothing wraps within 2^46 records, and a replica that has only the last of them knows
as much as one that has all. Ids with bit 62 are given to nobody else: producer ids count up from 0.
"""

from struct import Struct
from typing import NamedTuple

from penstock.core.limits import RELAYED_DISTANCE_MAX
from penstock.records.batch import LAST_OFFSET_DELTA_POSITION, BatchHeader, read_header, stamp_crc
from penstock.records.builder import BatchBuilder, BatchOptions

# The first producer id that is a relay's.
RELAY_IDS = 1 << 62

# The kind of a batch that may leave a gap behind it.
_SKIPS = 1 << 55
_SOURCE_SHIFT = 31
_SOURCE_MAX = (1 << 24) - 1
_EPOCH_MASK = 0x7FFFFFFF
_SEQUENCE_BITS = 31
_SEQUENCE_MASK = 0x7FFFFFFF
_INT32 = Struct(">i")
_PRODUCER = Struct(">qhi")
_PRODUCER_POSITION = 43
# The type of a control record that says nothing but where a relay stands; clients skip what they do not know.
_CONTROL_KEY = Struct(">hh").pack(0, 0x5250)


class RelayPlace(NamedTuple):
    """A place in the source's log: ordered, since epochs only ever rise along it."""

    epoch: int
    distance: int  # of the last record moved, from the first one ever


class Relayed(NamedTuple):
    """A moved batch: its source, and from where to where it reaches."""

    source: int
    epoch: int
    first: int
    last: int
    skips: bool = False  # what lies before it is lost, and shall not be waited for

    @property
    def place(self) -> RelayPlace:
        return RelayPlace(self.epoch, self.last)


def relay_place(producer_id: int, producer_epoch: int, last_sequence: int) -> tuple[int, RelayPlace]:
    """(source, how far), from what is told of a relay as a producer."""
    source, epoch = _relay_of(producer_id)
    return source, RelayPlace(epoch, _distance(producer_epoch, last_sequence))


def relayed_by(header: BatchHeader) -> Relayed:
    """Of a batch whose producer id is a relay's."""
    source, epoch = _relay_of(header.producer_id)
    first = _distance(header.producer_epoch, header.base_sequence)
    skips = header.producer_id & _SKIPS != 0
    return Relayed(source, epoch, first, first + header.last_offset_delta, skips)


def _relay_of(producer_id: int) -> tuple[int, int]:
    """(source, epoch)"""
    return producer_id >> _SOURCE_SHIFT & _SOURCE_MAX, producer_id & _EPOCH_MASK


def _distance(producer_epoch: int, sequence: int) -> int:
    return producer_epoch << _SEQUENCE_BITS | sequence


def producer_fields(source: int, epoch: int, distance: int) -> tuple[int, int, int]:
    """(producer id, producer epoch, sequence)"""
    if not 0 <= source <= _SOURCE_MAX or not 0 <= epoch <= _EPOCH_MASK:
        raise ValueError(f"partition {source} in epoch {epoch} is out of a relay's range")
    if not 0 <= distance <= RELAYED_DISTANCE_MAX:
        raise ValueError(f"{distance} records are more than one relay can move")
    producer_id = RELAY_IDS | source << _SOURCE_SHIFT | epoch
    return producer_id, distance >> _SEQUENCE_BITS, distance & _SEQUENCE_MASK


def stamp_relayed(batch: memoryview, source: int, epoch: int, distance: int) -> BatchHeader:
    """Make a batch of the source's log one that is moved, as one of that leader epoch."""
    header = read_header(batch)
    fields = producer_fields(source, epoch, distance)
    _PRODUCER.pack_into(batch, _PRODUCER_POSITION, *fields)
    stamp_crc(batch, 0, header.size_bytes)
    return read_header(batch)


def filler_batch(count: int) -> bytearray:
    """A control batch that takes so many offsets, up to 2^31, and says nothing; of 1970, so that it keeps nothing."""
    builder = BatchBuilder(BatchOptions(control=True))
    builder.append(b"", key=_CONTROL_KEY, timestamp=0)
    batch = builder.build()
    _INT32.pack_into(batch, LAST_OFFSET_DELTA_POSITION, count - 1)
    stamp_crc(memoryview(batch), 0, len(batch))
    return batch


def place_batch(source: int, place: RelayPlace, now_ms: int, *, skips: bool = False) -> bytearray:
    """A control batch that says how far a relay is: for when the last moved batch is about to be deleted.

    Or, when it `skips`, that nothing up to and with this place is to be had any more.
    """
    producer_id, producer_epoch, sequence = producer_fields(source, place.epoch, place.distance)
    if skips:
        producer_id |= _SKIPS
    builder = BatchBuilder(
        BatchOptions(
            producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=sequence, control=True
        )
    )
    builder.append(b"", key=_CONTROL_KEY, timestamp=now_ms)
    return builder.build()
