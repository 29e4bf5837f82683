"""Where whole record batches end in what a broker sent; nothing is looked at but their headers."""

from struct import Struct
from typing import NamedTuple

from penstock.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC, MAGIC_POSITION, read_header

_PLACE = Struct(">qi")  # base offset, length


class NotABatchError(Exception):
    """The bytes cannot be a record batch; the message says why."""


class OldFormatError(NotABatchError):
    """A message from before record batches."""


class Whole(NamedTuple):
    size_bytes: int  # of the batches that are whole and begin before the end asked for
    next_offset: int  # behind the last of them; -1: there is none
    needed_bytes: int  # what the first one takes, where it is cut; 0 otherwise
    at_end: bool  # the next batch begins at the end asked for, or behind it


def whole_batches(records: memoryview, end: int) -> Whole:
    available = len(records)
    position = 0
    last = -1
    at_end = False
    needed = HEADER_BYTES if available else 0
    while available - position > MAGIC_POSITION:
        base_offset, length = _PLACE.unpack_from(records, position)
        if records[position + MAGIC_POSITION] != MAGIC:
            raise _no_batch(records[position + MAGIC_POSITION])
        if base_offset >= end:
            at_end = True
            needed = 0
            break
        following = position + length + LOG_OVERHEAD_BYTES
        if following - position < HEADER_BYTES:
            raise NotABatchError(f"a batch length of {length}")
        if following > available:
            if position == 0:
                needed = following
            break
        last = position
        position = following
    if last < 0:
        return Whole(0, -1, needed, at_end)
    return Whole(position, read_header(records, last).next_offset, 0, at_end)


def _no_batch(magic: int) -> NotABatchError:
    if magic < MAGIC:
        return OldFormatError(f"records in the old format {magic}")
    return NotABatchError(f"unknown magic {magic}")
