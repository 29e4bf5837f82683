"""A batch on its way to a broker: its header as it is sent, and the caller's bytes behind it, which are not copied."""

from struct import Struct
from typing import NamedTuple

from penstock.client.raw.errors import BatchError
from penstock.client.topic_partition import TopicPartition
from penstock.core.crc32c import crc32c
from penstock.records.batch import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    HEADER_BYTES,
    NO_LEADER_EPOCH,
    BatchHeader,
    Buffer,
    InvalidBatch,
    check_batch,
    stamp,
)

_PRODUCER = Struct(">qhi")  # producer id, epoch, base sequence
_PRODUCER_POSITION = 43
_CRC = Struct(">I")
SEQUENCE_MAX = 0x7FFFFFFF


class Producer(NamedTuple):
    producer_id: int
    epoch: int


class Delivery:
    """What became of one batch; `offset` is its first record's once a broker has acknowledged it.

    -1: stored, but the broker no longer remembers where (a repeat of an old batch), or was not asked (acks=0).
    """

    __slots__ = ("at", "offset")

    def __init__(self, at: TopicPartition) -> None:
        self.at = at
        self.offset: int | None = None


class Batch:
    __slots__ = ("deadline", "delivery", "failed", "head", "rest", "size_bytes", "tries")

    def __init__(self, delivery: Delivery, head: bytearray, rest: memoryview, deadline: float) -> None:
        self.delivery = delivery
        self.head = head
        self.rest = rest
        self.size_bytes = len(head) + len(rest)
        self.deadline = deadline
        self.tries = 0
        self.failed = False  # its request came to nothing; it is to be sent again

    @property
    def at(self) -> TopicPartition:
        return self.delivery.at


def checked(at: TopicPartition, batch: Buffer) -> tuple[BatchHeader, memoryview]:
    """The header of what must be one whole and undamaged batch, and its bytes; BatchError otherwise."""
    view = memoryview(batch).cast("B")
    try:
        header = check_batch(view)
    except InvalidBatch as error:
        raise BatchError(at, str(error)) from error
    if header.size_bytes != len(view):
        raise BatchError(at, f"{len(view) - header.size_bytes} bytes follow the batch, give one at a time")
    if header.is_control or header.is_transactional:
        raise BatchError(at, "control and transactional batches are not for this client")
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        raise BatchError(
            at, f"{header.record_count} records do not fit the last offset delta {header.last_offset_delta}"
        )
    return header, view


def stamped_head(view: memoryview, producer: Producer, sequence: int) -> bytearray:
    """The header for sending: no place in a log yet, and who sends it as which of his batches."""
    head = bytearray(view[:HEADER_BYTES])
    stamp(head, 0, 0, NO_LEADER_EPOCH)
    _PRODUCER.pack_into(head, _PRODUCER_POSITION, producer.producer_id, producer.epoch, sequence)
    crc = crc32c(view[HEADER_BYTES:], crc32c(memoryview(head)[ATTRIBUTES_POSITION:]))
    _CRC.pack_into(head, CRC_POSITION, crc)
    return head


def following(sequence: int, count: int) -> int:
    """Sequences wrap from 2^31 - 1 to 0."""
    return (sequence + count) & SEQUENCE_MAX
