"""What is inside each record, for all records together: numpy decodes one field after the other.

    length varint | attributes int8 | timestamp delta varlong | offset delta varint
    key length varint, key | value length varint, value | header count varint | headers

A field's position follows from the field before and none goes back. So a record whose last field ends where its
length says has all its fields inside, and nothing wrong is believed on the way: reads are clipped to the data.
"""

from typing import NamedTuple

import numpy as np

from penstock.core.varints import VARLONG_BYTES_MAX
from penstock.records.batch import RECORD_BYTES_MIN
from penstock.records.columns.varints import Bytes, LaneError, Longs, read_varints, refuse

# Records decoded in one go: their numbers stay in the processor's nearer cache (measured: 40 % less time than
# all 40,000 records of a fetch at once), and the calls still cost next to nothing per record.
_SLICE_RECORDS = 8192


class Fields(NamedTuple):
    """By record; lengths are -1 or less for null."""

    timestamp_delta: Longs
    offset_delta: Longs
    key_start: Longs
    key_length: Longs
    value_start: Longs
    value_length: Longs
    headers_start: Longs
    header_count: Longs


def read_fields(data: Bytes, starts: Longs, ends: Longs, last_offset_deltas: Longs) -> Fields:
    """The fields of the records at `starts`, each proven to end at `ends`; headers only to begin before it."""
    out = np.empty((len(Fields._fields), len(starts)), np.int64)
    for first in range(0, len(starts), _SLICE_RECORDS):
        part = slice(first, first + _SLICE_RECORDS)
        try:
            fields = _read_slice(data, starts[part], ends[part], last_offset_deltas[part])
        except LaneError as error:
            raise LaneError(first + error.lane, str(error)) from None
        for row, field in zip(out, fields, strict=True):
            row[part] = field
    return Fields(*out)


def _read_slice(data: Bytes, starts: Longs, ends: Longs, last_offset_deltas: Longs) -> Fields:
    length, at = read_varints(data, starts)
    refuse((at + length != ends) | (length < RECORD_BYTES_MIN - 1), "its length is wrong")
    # One byte of attributes, unused so far.
    timestamp_delta, at = read_varints(data, at + 1, VARLONG_BYTES_MAX)
    offset_delta, at = read_varints(data, at)
    refuse((offset_delta < 0) | (offset_delta > last_offset_deltas), "its offset is outside the batch")
    key_length, key_start = read_varints(data, at)
    value_length, value_start = read_varints(data, key_start + np.maximum(key_length, 0))
    header_count, at = read_varints(data, value_start + np.maximum(value_length, 0))
    beyond = at > ends if header_count.any() else at != ends
    refuse(beyond, "its fields do not end where its length says")
    refuse((at != ends) & (header_count == 0) | (header_count < 0), "its headers are not what it says")
    return Fields(
        timestamp_delta, offset_delta, key_start, key_length, value_start, value_length, at, header_count
    )
