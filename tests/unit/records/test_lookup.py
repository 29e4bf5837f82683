"""Offsets by time: ListOffsets' rules inside one batch."""

from struct import pack_into

import pytest

from penstock.records.builder import BatchBuilder, BatchOptions, build_batch
from penstock.records.compression import Codec
from penstock.records.lookup import first_at_or_after, max_timestamp_record
from penstock.records.reader import Record


def a_batch(timestamps: list[int], options: BatchOptions) -> bytearray:
    builder = BatchBuilder(options)
    for timestamp in timestamps:
        builder.append(b"value", timestamp=timestamp)
    return builder.build()


@pytest.mark.parametrize("codec", list(Codec))
def test_times_out_of_order_are_searched_by_offset(codec: Codec) -> None:
    batch = a_batch([50, 20, 70, 70, 60], BatchOptions(base_offset=100, codec=codec))
    assert first_at_or_after(batch, 10) == (100, 50)
    assert first_at_or_after(batch, 51) == (102, 70)
    assert first_at_or_after(batch, 70) == (102, 70)
    assert first_at_or_after(batch, 71) is None
    assert max_timestamp_record(batch) == (102, 70)


def test_nothing_below_the_log_start_is_found() -> None:
    batch = a_batch([50, 60, 55], BatchOptions(base_offset=100))
    assert first_at_or_after(batch, 55, from_offset=102) == (102, 55)
    assert first_at_or_after(batch, 60, from_offset=102) is None
    assert first_at_or_after(batch, 0, from_offset=103) is None


def test_append_time_is_that_of_every_record() -> None:
    batch = a_batch([50, 60], BatchOptions(base_offset=100, append_time_ms=900))
    assert first_at_or_after(batch, 55) == (100, 900)
    assert first_at_or_after(batch, 55, from_offset=101) == (101, 900)
    assert first_at_or_after(batch, 901) is None
    assert max_timestamp_record(batch) == (100, 900)


def test_append_time_with_compacted_records_names_one_that_is_there() -> None:
    options = BatchOptions(base_offset=100, append_time_ms=900, last_offset_delta=9)
    batch = build_batch([Record(104, 1, b"k", b"v"), Record(106, 2, b"l", b"v")], options)
    assert first_at_or_after(batch, 900) == (104, 900)
    assert max_timestamp_record(batch) == (104, 900)


def test_a_false_max_timestamp_falls_back_to_what_is_there() -> None:
    batch = a_batch([50, 60, 60], BatchOptions())
    pack_into(">q", batch, 35, 10**12)
    assert max_timestamp_record(batch) == (1, 60)
    assert first_at_or_after(batch, 10**11) is None


def test_an_emptied_batch_has_no_latest_record() -> None:
    batch = BatchBuilder(BatchOptions(last_offset_delta=4)).build()
    assert max_timestamp_record(batch) is None
