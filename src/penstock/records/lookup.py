"""Finding records by time, as ListOffsets defines it.

By timestamp: the first record, in offset order, whose timestamp is not below the target. For the maximum:
the first record that carries the batch's max timestamp. In a batch with append time all records share that
time, so both come down to its first record.
"""

from typing import NamedTuple

from penstock.records.batch import BatchHeader, Buffer, read_header
from penstock.records.compression import WHOLE, OpeningLimit
from penstock.records.reader import payload_of, records_in


class TimestampedOffset(NamedTuple):
    offset: int
    timestamp: int


def first_at_or_after(
    batch: Buffer,
    timestamp: int,
    *,
    from_offset: int = 0,
    limit: OpeningLimit = WHOLE,
) -> TimestampedOffset | None:
    """The first record from `from_offset` on with that time or later; `from_offset` is the log's start."""
    header = read_header(batch)
    if header.max_timestamp < timestamp or header.last_offset < from_offset:
        return None
    if _shares_one_time(header):
        return TimestampedOffset(max(header.base_offset, from_offset), header.max_timestamp)
    limit.check_count(header.record_count)
    for record in records_in(header, payload_of(batch, 0, header, limit.size_bytes)):
        if record.timestamp >= timestamp and record.offset >= from_offset:
            return TimestampedOffset(record.offset, record.timestamp)
    return None


def max_timestamp_record(batch: Buffer, *, limit: OpeningLimit = WHOLE) -> TimestampedOffset | None:
    """The first record with the latest time; None for a batch that compaction has emptied.

    The header's max timestamp is the producer's word, and the hot path does not check it. If no record
    has it, the latest time that is really there counts.
    """
    header = read_header(batch)
    if _shares_one_time(header):
        return TimestampedOffset(header.base_offset, header.max_timestamp)
    best: TimestampedOffset | None = None
    limit.check_count(header.record_count)
    for record in records_in(header, payload_of(batch, 0, header, limit.size_bytes)):
        if record.timestamp == header.max_timestamp:
            return TimestampedOffset(record.offset, record.timestamp)
        if best is None or record.timestamp > best.timestamp:
            best = TimestampedOffset(record.offset, record.timestamp)
    return best


def _shares_one_time(header: BatchHeader) -> bool:
    """Append time, and no record compacted away: the answer needs no look inside."""
    return header.is_append_time and header.record_count == header.last_offset_delta + 1
