"""The RecordBatch, version 2: its header, its checks, and the few bytes the broker writes into it.

A batch as the producer sends it, as it lies on disk and as the consumer gets it (big-endian):

    position  bytes  field
    0         8      base offset              ┐ stamped by the broker,
    8         4      batch length (from 12)   │ outside the CRC
    12        4      partition leader epoch   ┘
    16        1      magic = 2
    17        4      CRC-32C of everything from 21 to the end
    21        2      attributes: bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control,
                                 6 base timestamp is a delete horizon
    23        4      last offset delta
    27        8      base timestamp
    35        8      max timestamp            (the append time, where bit 3 is set)
    43        8      producer id              (-1: not idempotent)
    51        2      producer epoch
    53        4      base sequence
    57        4      record count
    61        …      records, compressed as one block where the codec is not 0

Everything here looks at the header alone; records are opened by `records.reader`. `validate_batch` runs
once per produced batch, so it is flat and allocates the header tuple and one slice for the CRC.

Kafka's leader opens every batch, compressed or not, to check its records. We do not: that would be most of what a
Produce costs. So a count that lies within what its bytes could hold is stored as it came, and whoever reads the topic
finds a batch that cannot be opened. Its sender needs the right to write there, and hurts that topic alone: its log end
moves by the count, by 64 for a byte at most. Batches for compacted topics, and for those with a `compression.type` of
their own, are opened.

Error codes are those of Apache Kafka 4: old formats, several batches and contradictory headers are
INVALID_RECORD; lengths below the header, unknown magic and a wrong CRC are CORRUPT_MESSAGE.
"""

from struct import Struct
from typing import Any, NamedTuple

from penstock.core.crc32c import crc32c
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.limits import COMPRESSED_RECORDS_MAX, COMPRESSED_RECORDS_PER_BYTE_MAX

Buffer = bytes | bytearray | memoryview

HEADER = Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
# What `batch_length` does not count: the base offset and itself.
LOG_OVERHEAD_BYTES = 12
# The smallest `batch_length` of any format Kafka ever had; below it the bytes are no batch at all.
_ANY_FORMAT_LENGTH_MIN = 14

LENGTH_POSITION = 8
LEADER_EPOCH_POSITION = 12
MAGIC_POSITION = 16
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21
LAST_OFFSET_DELTA_POSITION = 23
MAX_TIMESTAMP_POSITION = 35

MAGIC = 2

# Length, attributes, two deltas, two null lengths and a header count: no record is shorter.
RECORD_BYTES_MIN = 7

CODEC_MASK = 0x07
CODEC_MAX = 4
APPEND_TIME_MASK = 0x08
TRANSACTIONAL_MASK = 0x10
CONTROL_MASK = 0x20
DELETE_HORIZON_MASK = 0x40

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1

_INT64 = Struct(">q")
_INT32 = Struct(">i")
_INT16 = Struct(">h")
_UINT32 = Struct(">I")


class InvalidBatch(ApiError):  # noqa: N818 - named for what it is on the wire
    """A batch that is not what it claims to be; `code` is what the producer is told."""


class UnreadableBatch(InvalidBatch):
    """Refused before the log is asked: the bytes are no batch, a damaged one or one too large."""


class TruncatedBatch(UnreadableBatch):
    """The bytes end before the batch does: a torn tail on disk, a cut request from a client."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, message)


class BatchHeader(NamedTuple):
    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        return self.batch_length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequences wrap from 2^31 - 1 to 0, not to the negative numbers."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_append_time(self) -> bool:
        return bool(self.attributes & APPEND_TIME_MASK)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_MASK)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_MASK)

    @property
    def has_delete_horizon(self) -> bool:
        return bool(self.attributes & DELETE_HORIZON_MASK)


# As `_make`, without a call in Python and its check: the struct always gives thirteen fields.
_new_tuple: Any = tuple.__new__


def header_at(buffer: Buffer, position: int) -> BatchHeader:
    """The same as `read_header` for who knows that it is there."""
    header: BatchHeader = _new_tuple(BatchHeader, HEADER.unpack_from(buffer, position))
    return header


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`, unchecked but for being there."""
    if position < 0 or len(buffer) - position < HEADER_BYTES:
        raise TruncatedBatch(f"{len(buffer) - position} bytes are too few for a batch header")
    return header_at(buffer, position)


def size_at(buffer: Buffer, position: int, end: int) -> int | None:
    """Total bytes of the batch, of any format, at `position`; None if it is cut before its magic."""
    if end - position < LOG_OVERHEAD_BYTES:
        return None
    length: int = _INT32.unpack_from(buffer, position + LENGTH_POSITION)[0]
    if length < _ANY_FORMAT_LENGTH_MIN:
        raise UnreadableBatch(ErrorCode.CORRUPT_MESSAGE, f"a batch length of {length}")
    if end - position <= MAGIC_POSITION:
        return None
    magic = buffer[position + MAGIC_POSITION]
    if magic > MAGIC:
        raise UnreadableBatch(ErrorCode.CORRUPT_MESSAGE, f"unknown magic {magic}")
    return length + LOG_OVERHEAD_BYTES


def check_batch(view: memoryview, position: int = 0, end: int | None = None) -> BatchHeader:
    """Is there one whole, undamaged batch at `position`? For bytes the broker itself wrote or replicated."""
    if end is None:
        end = len(view)
    size_bytes = size_at(view, position, end)
    if size_bytes is None or position + size_bytes > end:
        raise TruncatedBatch(f"{end - position} bytes hold no whole batch")
    if view[position + MAGIC_POSITION] != MAGIC:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, "only record batches of magic 2 are accepted")
    if size_bytes < HEADER_BYTES:
        raise InvalidBatch(
            ErrorCode.CORRUPT_MESSAGE, f"a batch of {size_bytes} bytes is shorter than its header"
        )
    header = header_at(view, position)
    if crc32c(view[position + ATTRIBUTES_POSITION : position + size_bytes]) != header.crc:
        raise InvalidBatch(ErrorCode.CORRUPT_MESSAGE, "the CRC does not match")
    return header


def validate_batch(
    view: memoryview, position: int = 0, end: int | None = None, *, size_bytes_max: int = 0x7FFFFFFF
) -> BatchHeader:
    """The header of the single batch a client sent in `view[position:end]`, or InvalidBatch."""
    if end is None:
        end = len(view)
    available = end - position
    if available < HEADER_BYTES:
        raise _why_no_batch(view, position, end)
    header: BatchHeader = _new_tuple(BatchHeader, HEADER.unpack_from(view, position))
    (
        base_offset,
        length,
        _,
        magic,
        crc,
        attributes,
        last_delta,
        _,
        _,
        producer_id,
        epoch,
        sequence,
        count,
    ) = header
    size_bytes = length + 12
    if magic != 2 or size_bytes != available or size_bytes < HEADER_BYTES:
        _check_frame(view, position, end)
    if size_bytes > size_bytes_max:
        raise UnreadableBatch(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {size_bytes} bytes, the topic allows {size_bytes_max}",
        )
    if crc32c(view[position + 21 : position + size_bytes]) != crc:
        raise UnreadableBatch(ErrorCode.CORRUPT_MESSAGE, "the CRC does not match")
    if base_offset != 0:
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD, f"the base offset of a new batch is 0, not {base_offset}"
        )
    if count <= 0 or count != last_delta + 1:
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD, f"{count} records do not fit the last offset delta {last_delta}"
        )
    if count * 7 > size_bytes - 61:
        _check_count(count, size_bytes - 61, compressed=bool(attributes & CODEC_MASK))
    if not 0 <= attributes <= 4:  # more than a codec, or none that is known
        _check_attributes(attributes)
    if producer_id >= 0 and (sequence < 0 or epoch < 0):
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD,
            f"producer id {producer_id} comes with epoch {epoch} and sequence {sequence}",
        )
    return header


def _check_attributes(attributes: int) -> None:
    if attributes & CONTROL_MASK:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, "clients may not write control batches")
    if attributes & CODEC_MASK > CODEC_MAX:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, f"unknown compression codec {attributes & CODEC_MASK}")


def _check_count(count: int, payload_bytes: int, *, compressed: bool) -> None:
    """More records than fit uncompressed: refused, or for compressed ones held against what any codec can do."""
    if compressed:
        count_max = min(COMPRESSED_RECORDS_PER_BYTE_MAX * payload_bytes, COMPRESSED_RECORDS_MAX)
    else:
        count_max = payload_bytes // RECORD_BYTES_MIN
    if count > count_max:
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD,
            f"{count} records cannot be in {payload_bytes} bytes: {count_max} at most",
        )


def _check_frame(view: memoryview, position: int, end: int) -> None:
    """The rare path: says what is wrong around the batch, and lets a cut-off rest pass as Kafka does."""
    size_bytes = size_at(view, position, end)
    if size_bytes is None or position + size_bytes > end:
        raise _why_no_batch(view, position, end)
    if view[position + MAGIC_POSITION] != MAGIC:
        raise UnreadableBatch(ErrorCode.INVALID_RECORD, "only record batches of magic 2 are accepted")
    following = position + size_bytes
    second = size_at(view, following, end)
    if second is not None and following + second <= end:
        raise UnreadableBatch(ErrorCode.INVALID_RECORD, "more than one batch for a partition")
    if size_bytes < HEADER_BYTES:
        raise UnreadableBatch(
            ErrorCode.CORRUPT_MESSAGE, f"a batch of {size_bytes} bytes is shorter than its header"
        )


def _why_no_batch(view: memoryview, position: int, end: int) -> InvalidBatch:
    if size_at(view, position, end) is None:
        return TruncatedBatch(f"{end - position} bytes hold no batch")
    return TruncatedBatch("the batch is longer than the bytes sent for it")


def check_timestamps(header: BatchHeader, now_ms: int, before_max_ms: int, after_max_ms: int) -> None:
    """`message.timestamp.before/after.max.ms`, by the header: the batch's first and latest timestamp."""
    latest, first = header.max_timestamp, header.base_timestamp
    if latest - now_ms > after_max_ms and latest != NO_TIMESTAMP:
        late = latest
    elif now_ms - first > before_max_ms and first != NO_TIMESTAMP:
        late = first
    else:
        return
    raise InvalidBatch(
        ErrorCode.INVALID_TIMESTAMP,
        f"timestamp {late} is outside [{now_ms - before_max_ms}, {now_ms + after_max_ms}]",
    )


def stamp(view: memoryview | bytearray, position: int, base_offset: int, leader_epoch: int) -> None:
    """Give the batch its place in the log. Both fields lie outside the CRC."""
    _INT64.pack_into(view, position, base_offset)
    _INT32.pack_into(view, position + LEADER_EPOCH_POSITION, leader_epoch)


def stamp_append_time(view: memoryview, position: int, now_ms: int) -> None:
    """Mark the whole batch as appended now (`message.timestamp.type=LogAppendTime`)."""
    header = read_header(view, position)
    _INT16.pack_into(view, position + ATTRIBUTES_POSITION, header.attributes | APPEND_TIME_MASK)
    _INT64.pack_into(view, position + MAX_TIMESTAMP_POSITION, now_ms)
    stamp_crc(view, position, header.size_bytes)


def clear_append_time(view: memoryview, position: int) -> None:
    """Records keep the times their producer gave them (`CreateTime`), whatever its batch claims."""
    header = read_header(view, position)
    _INT16.pack_into(view, position + ATTRIBUTES_POSITION, header.attributes & ~APPEND_TIME_MASK)
    stamp_crc(view, position, header.size_bytes)


def stamp_crc(view: memoryview, position: int, size_bytes: int) -> None:
    crc = crc32c(view[position + ATTRIBUTES_POSITION : position + size_bytes])
    _UINT32.pack_into(view, position + CRC_POSITION, crc)
