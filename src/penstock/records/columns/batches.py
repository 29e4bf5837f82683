"""Which batches of a Fetch answer a consumer sees, opened in parts of bounded size. No numpy in here.

A batch is dropped when it is a control batch, when it lies outside the wanted offsets, or when it belongs
to an aborted transaction. The last works as in every Kafka consumer: the broker names producers and the
offset from which each one's transaction was aborted; from there on the producer's transactional batches
are dropped, until its abort marker (a control batch) ends the transaction.

    control record key: version int16 | type int16 (0 abort, 1 commit)
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from penstock.core.crc32c import crc32c
from penstock.core.errors import PenstockError
from penstock.records.batch import (
    ATTRIBUTES_POSITION,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_POSITION,
    RECORD_BYTES_MIN,
    BatchHeader,
    Buffer,
    InvalidBatch,
    read_header,
    size_at,
)
from penstock.records.compression import Codec, Unpacker
from penstock.records.control import transaction_end
from penstock.records.reader import read_records

# Arrow columns come in parts of about this many bytes of records, so that a few megabytes which unpack to
# gigabytes are never in memory at once. Far more than a Fetch answer holds: uncompressed ones stay whole.
PART_BYTES_MAX = 64 * 1024 * 1024

_OFFSET_MAX = 2**63 - 1


class CorruptBatchError(PenstockError):
    """A batch that is not what it claims to be; `offset` is the first it holds, by its own account."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(f"the batch at offset {offset} cannot be read: {message}")
        self.offset = offset


class OldFormatError(CorruptBatchError):
    """Messages of format 0 or 1. Nothing is damaged, but nobody has written such for years."""

    def __init__(self, offset: int, magic: int) -> None:
        super().__init__(
            offset,
            f"it is of message format {magic}, which Kafka wrote before 0.11; only format 2 is read."
            " Copy the topic with a client that reads both, or start behind this offset",
        )


class Batch(NamedTuple):
    """A batch to decode; its records lie in the part's `data[start:end]`."""

    header: BatchHeader
    start: int
    end: int


class Part(NamedTuple):
    data: memoryview
    batches: list[Batch]


def open_parts(
    records: Buffer,
    *,
    first: int,
    end: int,
    aborted: Sequence[tuple[int, int]],
    batch_bytes_max: int,
    part_bytes_max: int = PART_BYTES_MAX,
    unpacker: Unpacker | None = None,
) -> Iterator[Part]:
    """The batches with records in `[first, end)`, uncompressed, as few parts as the bound allows.

    A part is good until the next one is asked for: its bytes may lie in `unpacker`.
    """
    view = memoryview(records).cast("B")
    unpacker = unpacker or Unpacker()
    unpacker.restart()
    batches: list[Batch] = []
    size_bytes = 0
    compressed = False

    def part() -> Part:
        if compressed:
            return Part(unpacker.view(), batches)
        # Nothing to unpack: the columns are copied straight out of the Fetch answer.
        origin = batches[0].start
        moved = [Batch(header, start - origin, stop - origin) for header, start, stop in batches]
        return Part(view[origin : batches[-1].end], moved)

    for position, header in visible_batches(view, first=first, end=end, aborted=aborted):
        start, stop = position + HEADER_BYTES, position + header.size_bytes
        packed = header.codec != Codec.NONE
        # Parts are of one kind; an uncompressed batch is counted before it is taken, as its size is known.
        if batches and (packed != compressed or (not packed and size_bytes + stop - start > part_bytes_max)):
            yield part()
            batches, size_bytes = [], 0
            unpacker.restart()
        compressed = packed
        if packed:
            added = _unpack(unpacker, view[start:stop], header, batch_bytes_max)
            start, stop = size_bytes, size_bytes + added
        _check_count(header, stop - start)
        batches.append(Batch(header, start, stop))
        size_bytes = stop if packed else stop - batches[0].start
        if size_bytes >= part_bytes_max:
            yield part()
            batches, size_bytes = [], 0
            unpacker.restart()
    if batches:
        yield part()


def visible_batches(
    view: memoryview, *, first: int, end: int, aborted: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of the batches whose records a consumer of `[first, end)` is given."""
    waiting = sorted(aborted, key=lambda entry: entry[1], reverse=True)
    aborting: set[int] = set()
    for position, header in checked_batches(view):
        if header.base_offset >= end:
            return
        while waiting and waiting[-1][1] <= header.last_offset:
            aborting.add(waiting.pop()[0])
        if header.is_control:
            if header.producer_id in aborting and _is_abort_marker(view, position, header):
                aborting.discard(header.producer_id)
        elif header.last_offset >= first and not (header.is_transactional and header.producer_id in aborting):
            yield position, header


def checked_batches(view: memoryview) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every batch, CRC checked; bytes that are no whole batch are an error."""
    position, end = 0, len(view)
    offset = -1
    while position < end:
        offset = _offset_at(view, position) if end - position >= LOG_OVERHEAD_BYTES else offset + 1
        try:
            size_bytes = size_at(view, position, end)
        except InvalidBatch as error:
            raise CorruptBatchError(offset, str(error)) from None
        if size_bytes is None or position + size_bytes > end:
            raise CorruptBatchError(offset, f"it is cut off after {end - position} bytes")
        if view[position + MAGIC_POSITION] < MAGIC:
            raise OldFormatError(offset, view[position + MAGIC_POSITION])
        if size_bytes < HEADER_BYTES:
            raise CorruptBatchError(offset, f"{size_bytes} bytes are shorter than its header")
        header = read_header(view, position)
        crc = crc32c(view[position + ATTRIBUTES_POSITION : position + size_bytes])
        if crc != header.crc:
            raise CorruptBatchError(offset, f"its CRC is {header.crc:08x}, its bytes give {crc:08x}")
        if offset < 0 or not 0 <= header.last_offset_delta <= _OFFSET_MAX - offset:
            raise CorruptBatchError(offset, f"a last offset delta of {header.last_offset_delta}")
        yield position, header
        offset = header.last_offset
        position += size_bytes


def _offset_at(view: memoryview, position: int) -> int:
    return int.from_bytes(view[position : position + 8], "big", signed=True)


def _unpack(unpacker: Unpacker, packed: memoryview, header: BatchHeader, batch_bytes_max: int) -> int:
    try:
        return unpacker.add(header.codec, packed, batch_bytes_max)
    except InvalidBatch as error:
        raise CorruptBatchError(header.base_offset, str(error)) from None


def _check_count(header: BatchHeader, size_bytes: int) -> None:
    """Before anything is allocated by it: no record takes fewer bytes than the smallest one."""
    count = header.record_count
    if not 0 <= count <= size_bytes // RECORD_BYTES_MIN or (count == 0 and size_bytes):
        raise CorruptBatchError(header.base_offset, f"{count} records in {size_bytes} bytes")


def _is_abort_marker(view: memoryview, position: int, header: BatchHeader) -> bool:
    try:
        marker = next(read_records(view, position), None)
    except InvalidBatch as error:
        raise CorruptBatchError(header.base_offset, str(error)) from None
    # Compaction can empty a control batch; then it ends nothing.
    return marker is not None and transaction_end(marker.key) is False
