"""Columns for all inputs: the same rows as the record reader and other clients, and damage stays contained."""

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.records.batch import HEADER_BYTES, InvalidBatch, stamp_crc, validate_batch
from penstock.records.builder import BatchOptions, build_batch
from penstock.records.columns.decode import HEADERS_TYPE, Columns, CorruptBatchError, decode, decode_in_parts
from penstock.records.columns.encode import encode, partition_of
from penstock.records.compression import Codec
from penstock.records.partitioner import partition_for
from penstock.records.reader import Record, read_all, read_records, verify_records

FAR = 2**62
MEGABYTE = 1024 * 1024

# How long an example takes is no property of the code.
calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

codecs = st.sampled_from(list(Codec))
small_fields = st.none() | st.binary(max_size=80)
fields = small_fields | st.sampled_from([63, 64, 8191, 8192, 20_000]).map(lambda size: b"x" * size)
small_headers = st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=70)), max_size=3)
headers = small_headers | st.integers(0, 70).map(lambda count: [("many", b"x")] * count)
timestamps = st.integers(0, 2**45) | st.integers(-(2**62), 2**62 - 1) | st.just(-1)


@st.composite
def record_lists(draw: st.DrawFn, base: int | None = None) -> list[Record]:
    offset = draw(st.integers(0, 2**50)) if base is None else base
    near = draw(st.integers(0, 2**42))
    times = timestamps if draw(st.booleans()) else st.integers(near, near + 5000)
    # Alike and many, so that runs of equal lengths and lanes of headers occur; or all different.
    if draw(st.booleans()):
        key, value, content = draw(small_fields), draw(small_fields), tuple(draw(small_headers))
        count = draw(st.integers(1, 300))
        rows = [(key, value, content)] * count
        if count > 3 and draw(st.booleans()):
            rows[draw(st.integers(0, count - 1))] = (draw(fields), draw(fields), tuple(draw(headers)))
    else:
        rows = [(draw(fields), draw(fields), tuple(draw(headers))) for _ in range(draw(st.integers(1, 25)))]
    step = draw(st.sampled_from([1, 1, 7, 90_000]))
    time = draw(times)
    return [Record(offset + i * step, time + i % 3, *row) for i, row in enumerate(rows)]


@st.composite
def fetches(draw: st.DrawFn) -> list[tuple[BatchOptions, list[Record]]]:
    """Batches at rising offsets, with holes between them."""
    out = []
    offset = draw(st.integers(0, 2**50))
    for _ in range(draw(st.integers(0, 4))):
        records = draw(record_lists(base=offset))
        options = BatchOptions(base_offset=offset, codec=draw(codecs))
        if draw(st.booleans()):
            options.append_time_ms = draw(st.integers(0, 2**45))
        out.append((options, records))
        offset = records[-1].offset + draw(st.integers(1, 10))
    return out


def rows_of(columns: Columns) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in columns if column is not None), strict=True))


def headers_of(record: Record) -> list[dict[str, Any]] | None:
    return [{"key": key, "value": value} for key, value in record.headers] or None


def expected_rows(data: bytes | bytearray, first: int, end: int) -> list[tuple[Any, ...]]:
    return [
        (r.key, r.value, r.offset, r.timestamp, headers_of(r))
        for r in read_all(data)
        if first <= r.offset < end
    ]


def without_type(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [(*row[:4], row[5]) for row in rows]


@settings(calm, max_examples=300)
@given(fetches(), st.data())
def test_rows_are_those_of_the_record_reader(
    fetch: list[tuple[BatchOptions, list[Record]]], data: st.DataObject
) -> None:
    buffer = b"".join(build_batch(records, options) for options, records in fetch)
    offsets = [r.offset for _, records in fetch for r in records] or [0]
    first = data.draw(st.just(0) | st.sampled_from(offsets))
    end = data.draw(st.just(FAR) | st.sampled_from(offsets))
    columns = decode(buffer, first=first, end=end, headers=True)
    assert without_type(rows_of(columns)) == expected_rows(buffer, first, end)
    types = [int(o.append_time_ms is not None) for o, rs in fetch for r in rs if first <= r.offset < end]
    assert columns.timestamp_type.to_pylist() == types
    parts = decode_in_parts(buffer, first=first, end=end, headers=True, part_bytes_max=2000)
    assert [row for part in parts for row in rows_of(part)] == rows_of(columns)
    for column in columns:
        assert column is not None
        column.validate(full=True)


@calm
@given(record_lists(base=0), codecs)
@pytest.mark.parametrize("library", ["aiokafka.record.default_records", "kafka.record.default_records"])
def test_what_another_client_writes_is_decoded(library: str, records: list[Record], codec: Codec) -> None:
    others = pytest.importorskip(library)
    builder = others.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=100 * MEGABYTE,
    )
    for index, r in enumerate(records):
        r.timestamp = abs(r.timestamp)  # aiokafka takes -1 for "none so far", and 0 in its place
        builder.append(index, r.timestamp, r.key, r.value, list(r.headers))
    rows = without_type(rows_of(decode(bytes(builder.build()), first=0, end=FAR, headers=True)))
    assert rows == [(r.key, r.value, i, r.timestamp, headers_of(r)) for i, r in enumerate(records)]


def encoded(records: list[Record], **options: Any) -> list[bytearray]:
    return list(
        encode(
            pa.array([r.key for r in records], pa.binary()),
            pa.array([r.value for r in records], pa.binary()),
            timestamp=pa.array([r.timestamp for r in records], pa.int64()),
            headers=pa.array([headers_of(r) for r in records], HEADERS_TYPE),
            **options,
        )
    )


def contents(records: list[Record]) -> list[tuple[Any, ...]]:
    return [(r.key, r.value, r.timestamp, r.headers) for r in records]


@settings(calm, max_examples=300)
@given(record_lists(base=0), codecs, st.sampled_from([62, 200, 5000, MEGABYTE]))
def test_encoded_columns_read_back(records: list[Record], codec: Codec, limit: int) -> None:
    batches = encoded(records, compression=codec.name.lower(), batch_bytes_max=limit)
    again = [list(read_records(batch)) for batch in batches]
    assert contents([r for batch in again for r in batch]) == contents(records)
    for batch, read in zip(batches, again, strict=True):
        verified = verify_records(memoryview(batch))
        assert (len(verified.payload) + HEADER_BYTES <= limit) or len(read) == 1
        assert verified.header == validate_batch(memoryview(batch))
        assert verified.max_timestamp == verified.header.max_timestamp
    if codec is Codec.NONE and limit == MEGABYTE and len(batches) == 1:
        for index, r in enumerate(records):
            r.offset = index
        assert batches[0] == build_batch(records)


@calm
@given(record_lists(base=0), codecs)
@pytest.mark.parametrize("library", ["aiokafka.record.default_records", "kafka.record.default_records"])
def test_another_client_reads_what_is_encoded(library: str, records: list[Record], codec: Codec) -> None:
    others = pytest.importorskip(library)
    (batch,) = encoded(records, compression=codec.name.lower(), batch_bytes_max=100 * MEGABYTE)
    theirs = others.DefaultRecordBatch(bytes(batch))
    assert theirs.validate_crc()
    read = [(r.offset, r.key, r.value, r.timestamp, tuple(r.headers)) for r in theirs]
    assert read == [(index, *row) for index, row in enumerate(contents(records))]


@calm
@given(st.lists(st.none() | st.binary(max_size=70), max_size=60), st.integers(1, 2**31 - 1))
def test_partitions_are_those_of_the_partitioner(keys: list[bytes | None], partitions: int) -> None:
    expected = [-1 if key is None else partition_for(key, partitions) for key in keys]
    assert partition_of(pa.array(keys, pa.binary()), partitions).tolist() == expected


def mutate(data: bytearray, rng: random.Random) -> bytearray:
    """Flip, overwrite with telling values, cut, double or drop a stretch, mostly among the records."""
    for _ in range(rng.randint(1, 4)):
        if not data:
            break
        at = rng.randrange(HEADER_BYTES if rng.random() < 0.8 and len(data) > HEADER_BYTES else 0, len(data))
        match rng.randrange(6):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                value = rng.choice(
                    [b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", bytes(4), b"\xff" * 12]
                )
                data[at : at + len(value)] = value[: len(data) - at]
            case 2:
                del data[at:]
            case 3:
                data[at:at] = data[at : at + rng.randint(1, 64)]
            case 4:
                del data[at : at + rng.randint(1, 16)]
            case 5:
                data[at] = rng.choice([0, 1, 2, 0x7E, 0x7F, 0x80, 0xFE, 0xFF])
    return data


def mend(data: bytearray) -> None:
    """With a right length and CRC the damage gets past the door, to the code behind it."""
    data[8:12] = (len(data) - 12).to_bytes(4)
    data[16] = 2
    with memoryview(data) as view:
        stamp_crc(view, 0, len(data))


@settings(calm, max_examples=1500)
@given(
    record_lists(), st.sampled_from([Codec.NONE, Codec.NONE, *Codec]), st.integers(0, 2**32), st.booleans()
)
def test_mutated_batches_are_refused_or_read_as_the_reader_reads_them(
    records: list[Record], codec: Codec, seed: int, mending: bool
) -> None:
    rng = random.Random(seed)
    data = mutate(build_batch(records, BatchOptions(base_offset=records[0].offset, codec=codec)), rng)
    if mending and len(data) > HEADER_BYTES:
        mend(data)
    try:
        rows = rows_of(decode(data, first=-FAR, end=2 * FAR, headers=True, batch_bytes_max=MEGABYTE))
        decode(data, first=-FAR, end=2 * FAR, headers=False, batch_bytes_max=MEGABYTE)
    except CorruptBatchError:
        return
    for r in (expected := list(read_all(data))):
        # Undecodable header names: ours is made to be shown, the reader's to be written back.
        r.headers = tuple((shown(name), value) for name, value in r.headers)
    assert without_type(rows) == [(r.key, r.value, r.offset, r.timestamp, headers_of(r)) for r in expected]


def shown(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@settings(calm, max_examples=300)
@given(record_lists(), st.integers(0, 2**32))
def test_a_batch_whose_lengths_are_right_is_not_refused(records: list[Record], seed: int) -> None:
    """The other way round: what the reader takes, columns take, unless a number is written in too many bytes."""
    data = mutate(build_batch(records, BatchOptions(base_offset=records[0].offset)), random.Random(seed))
    if len(data) > HEADER_BYTES:
        mend(data)
    try:
        accepted = list(read_all(data))
    except InvalidBatch:
        return
    try:
        count = len(decode(data, first=-FAR, end=2 * FAR, headers=True).offset)
    except CorruptBatchError as error:
        if not any(reason in str(error) for reason in ("overlong", "last offset delta", "cut off")):
            raise
    else:
        assert count == len(accepted)
