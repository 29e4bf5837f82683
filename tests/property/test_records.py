"""Batches for all inputs: what we write everyone reads, what others write we read, and damage stays contained."""

import random
import tracemalloc
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.records import batch as batches
from penstock.records.batch import InvalidBatch, check_batch, stamp_crc, validate_batch
from penstock.records.builder import BatchBuilder, BatchOptions, build_batch, recompress
from penstock.records.compression import Codec, OpeningLimit, compress, decompress
from penstock.records.lookup import first_at_or_after, max_timestamp_record
from penstock.records.reader import Record, iter_batches, read_all, read_records, verify_records

MEGABYTE = 1024 * 1024

codecs = st.sampled_from(list(Codec))
fields = st.none() | st.binary(max_size=40) | st.integers(100, 5000).map(lambda size: b"x" * size)
headers = st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=10)), max_size=3)
timestamps = st.integers(0, 2**45)


@st.composite
def record_lists(draw: st.DrawFn, gaps: bool = True) -> list[Record]:
    offset = draw(st.integers(0, 2**50))
    records = []
    for _ in range(draw(st.integers(1, 12))):
        records.append(Record(offset, draw(timestamps), draw(fields), draw(fields), tuple(draw(headers))))
        offset += draw(st.integers(1, 1000)) if gaps else 1
    return records


def contents(records: list[Record]) -> list[tuple[Any, ...]]:
    return [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in records]


@given(record_lists(), codecs)
def test_built_batches_read_back(records: list[Record], codec: Codec) -> None:
    batch = build_batch(records, BatchOptions(base_offset=records[0].offset, codec=codec))
    header = check_batch(memoryview(batch))
    again = list(read_records(batch))
    assert contents(again) == contents(records)
    assert header.last_offset == records[-1].offset
    assert header.max_timestamp == max(r.timestamp for r in records)
    if codec is Codec.NONE:
        assert sum(r.size_bytes for r in again) == len(batch) - batches.HEADER_BYTES


@given(record_lists(gaps=False), codecs, codecs)
def test_recompression_keeps_every_record(records: list[Record], source: Codec, target: Codec) -> None:
    batch = build_batch(records, BatchOptions(base_offset=records[0].offset, codec=source))
    assert contents(list(read_records(recompress(memoryview(batch), target)))) == contents(records)


@given(st.lists(record_lists(), max_size=4), codecs, st.integers(0, 30))
def test_a_buffer_of_batches_is_read_up_to_its_cut(lists: list[list[Record]], codec: Codec, cut: int) -> None:
    built = [build_batch(rs, BatchOptions(base_offset=rs[0].offset, codec=codec)) for rs in lists]
    buffer = b"".join(built)
    whole = lists[:-1] if cut else lists
    assert contents(list(read_all(buffer[: len(buffer) - cut]))) == contents([r for rs in whole for r in rs])
    positions = [position for position, _ in iter_batches(buffer)]
    assert [b - a for a, b in pairwise([*positions, len(buffer)])] == [len(b) for b in built]


@given(record_lists(), codecs, timestamps)
def test_lookup_agrees_with_a_plain_search(records: list[Record], codec: Codec, target: int) -> None:
    batch = build_batch(records, BatchOptions(base_offset=records[0].offset, codec=codec))
    found = next(((r.offset, r.timestamp) for r in records if r.timestamp >= target), None)
    assert first_at_or_after(batch, target) == found
    latest = max(records, key=lambda r: r.timestamp)
    assert max_timestamp_record(batch) == (latest.offset, latest.timestamp)


@given(record_lists(gaps=False), codecs)
def test_another_client_reads_what_we_write(records: list[Record], codec: Codec) -> None:
    others = pytest.importorskip("aiokafka.record.default_records")
    options = BatchOptions(base_offset=records[0].offset, codec=codec, producer_id=4, producer_epoch=1)
    theirs = others.DefaultRecordBatch(bytes(build_batch(records, options)))
    assert theirs.validate_crc()
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_offset) == (4, 1, records[0].offset)
    read = [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]
    assert read == contents(records)


@given(record_lists(gaps=False), codecs, st.booleans())
def test_we_read_what_another_client_writes(records: list[Record], codec: Codec, transactional: bool) -> None:
    others = pytest.importorskip("aiokafka.record.default_records")
    builder = others.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=int(transactional),
        producer_id=11,
        producer_epoch=3,
        base_sequence=8,
        batch_size=10 * MEGABYTE,
    )
    for index, r in enumerate(records):
        assert builder.append(index, r.timestamp, r.key, r.value, list(r.headers)) is not None
    batch = bytes(builder.build())
    header = validate_batch(memoryview(batch))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (11, 3, 8)
    assert header.is_transactional == transactional
    assert verify_records(memoryview(batch)).max_timestamp == header.max_timestamp
    expected = [(index, *rest) for index, (_, *rest) in enumerate(contents(records))]
    assert contents(list(read_records(batch))) == expected


def mutate(data: bytearray, rng: random.Random) -> bytearray:
    """Flip, overwrite with telling values, cut, double or drop a stretch."""
    for _ in range(rng.randint(1, 4)):
        if not data:
            break
        at = rng.randrange(len(data))
        match rng.randrange(5):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                value = rng.choice([b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", bytes(4)])
                data[at : at + 4] = value[: len(data) - at]
            case 2:
                del data[at:]
            case 3:
                data[at:at] = data[at : at + rng.randint(1, 64)]
            case 4:
                del data[at : at + rng.randint(1, 16)]
    return data


def use_everywhere(data: bytearray) -> list[str]:
    """Every entry point that sees foreign bytes; each may refuse, none may raise anything else."""
    view = memoryview(data)
    outcomes = []
    for attempt in (
        lambda: validate_batch(view),
        lambda: check_batch(view),
        lambda: list(iter_batches(data)),
        lambda: list(read_records(data, limit_bytes=MEGABYTE)),
        lambda: list(read_all(data, limit_bytes=MEGABYTE, with_control=True)),
        lambda: verify_records(view, limit_bytes=MEGABYTE),
        lambda: recompress(view, Codec.LZ4, limit_bytes=MEGABYTE),
        lambda: first_at_or_after(data, 5, limit=OpeningLimit(MEGABYTE)),
        lambda: max_timestamp_record(data, limit=OpeningLimit(MEGABYTE)),
    ):
        try:
            attempt()  # type: ignore[no-untyped-call]
        except InvalidBatch as error:
            outcomes.append(error.code.name)
        else:
            outcomes.append("accepted")
    return outcomes


@settings(max_examples=300)
@given(record_lists(gaps=False), codecs, st.integers(0, 2**32), st.booleans())
def test_only_declared_errors_escape_from_mutated_batches(
    records: list[Record], codec: Codec, seed: int, mend: bool
) -> None:
    rng = random.Random(seed)
    data = mutate(build_batch(records, BatchOptions(base_offset=records[0].offset, codec=codec)), rng)
    if mend and len(data) > batches.HEADER_BYTES:
        # With a right length and CRC the damage gets past the door, to the code behind it.
        data[8:12] = (len(data) - 12).to_bytes(4)
        data[16] = 2
        with memoryview(data) as view:
            stamp_crc(view, 0, len(data))
    assert set(use_everywhere(data)) <= {"accepted", "INVALID_RECORD", "CORRUPT_MESSAGE", "INVALID_TIMESTAMP"}


@settings(max_examples=300)
@given(st.binary(max_size=2000) | st.just(bytes(100_000)), codecs, st.integers(0, 2**32))
def test_only_declared_errors_escape_from_mutated_compression(data: bytes, codec: Codec, seed: int) -> None:
    packed = mutate(bytearray(compress(codec, data)), random.Random(seed))
    try:
        unpacked = decompress(codec, packed, MEGABYTE)
    except InvalidBatch:
        return
    assert len(unpacked) <= MEGABYTE


def test_a_lying_record_count_costs_no_memory() -> None:
    builder = BatchBuilder()
    builder.append(b"value")
    batch = builder.build()
    batch[57:61] = (2**31 - 1).to_bytes(4)
    batch[23:27] = (2**31 - 2).to_bytes(4)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidBatch):
            list(read_records(batch))
        assert tracemalloc.get_traced_memory()[1] < MEGABYTE
    finally:
        tracemalloc.stop()
