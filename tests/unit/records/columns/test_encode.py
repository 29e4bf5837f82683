"""Arrow columns to batches: how they are cut, what they carry, which columns are refused."""

from typing import Any

import pyarrow as pa
import pytest

from penstock.records.batch import BatchHeader, validate_batch
from penstock.records.columns.decode import HEADERS_TYPE, decode
from penstock.records.columns.encode import encode, partition_of
from penstock.records.partitioner import partition_for
from penstock.records.reader import read_records, verify_records


def headers_of(batches: list[bytearray]) -> list[BatchHeader]:
    return [validate_batch(memoryview(batch)) for batch in batches]


def headers_column(rows: list[Any]) -> pa.ListArray:
    entries = [None if row is None else [{"key": k, "value": v} for k, v in row] for row in rows]
    return pa.array(entries, HEADERS_TYPE)


def test_a_batch_carries_every_column() -> None:
    headers: list[Any] = [[("trace", b"1"), ("none", None)], None, []]
    (batch,) = encode(
        pa.array([b"k", None, b""]),
        pa.array([b"v", b"", None]),
        timestamp=pa.array([5000, None, 4000], pa.int64()),
        headers=headers_column(headers),
        timestamp_default=7,
    )
    (header,) = headers_of([batch])
    assert (header.base_timestamp, header.max_timestamp, header.record_count) == (5000, 5000, 3)
    assert [(r.key, r.value, r.timestamp, list(r.headers)) for r in read_records(batch)] == [
        (b"k", b"v", 5000, [("trace", b"1"), ("none", None)]),
        (None, b"", 7, []),
        (b"", None, 4000, []),
    ]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_stay_below_the_limit_and_fill_it(compression: str) -> None:
    values = pa.array([b"%05d" % i + bytes(i % 300) for i in range(20_000)])
    batches = list(encode(None, values, compression=compression, batch_bytes_max=50_000))
    sizes = [len(verify_records(memoryview(batch)).payload) + 61 for batch in batches]
    assert max(sizes) <= 50_000
    assert min(sizes[:-1]) > 45_000
    assert [r.value for batch in batches for r in read_records(batch)] == values.to_pylist()


def test_a_record_beyond_the_limit_is_a_batch_of_its_own() -> None:
    values = pa.array([b"small", bytes(5000), bytes(6000), b"small", b"small"])
    batches = list(encode(values, None, batch_bytes_max=1000))
    assert [header.record_count for header in headers_of(batches)] == [1, 1, 1, 2]


def test_rows_of_many_groups_of_batches_come_out_in_order() -> None:
    values = pa.array([b"%09d" % i + bytes(1000) for i in range(10_000)])
    batches = list(encode(None, values))
    assert len(batches) > 8
    assert all(size <= 1_000_000 for size in map(len, batches))
    assert [r.value for batch in batches for r in read_records(batch)] == values.to_pylist()


def test_slices_and_chunks_and_other_byte_types_are_taken_as_they_are() -> None:
    keys = pa.chunked_array([pa.array(["a", "b"]), pa.array([None, "dé"])])
    values = pa.array([b"x", b"1", b"22", None, b"4444", b"y"], pa.large_binary())[1:5]
    times = pa.array([0, 10, 20, 30, 40, 50], pa.int64())[1:5]
    entries: list[Any] = [[("z", b"z")], None, [("h", b"1"), ("i", b"2")], [], [("j", None)], [("z", b"z")]]
    headers = headers_column(entries)[1:5]
    (batch,) = encode(keys, values, timestamp=times, headers=headers)
    assert [(r.key, r.value, r.timestamp, r.headers) for r in read_records(batch)] == [
        (b"a", b"1", 10, ()),
        (b"b", b"22", 20, (("h", b"1"), ("i", b"2"))),
        (None, None, 30, ()),
        ("dé".encode(), b"4444", 40, (("j", None),)),
    ]


def test_no_rows_are_no_batches() -> None:
    assert list(encode(pa.array([], pa.binary()), None)) == []
    assert list(encode(None, None)) == []


def test_a_value_under_a_null_is_not_written() -> None:
    """Arrow allows bytes where the validity bit says there are none."""
    offsets = pa.py_buffer(pa.array([0, 3, 6], pa.int32()).buffers()[1])
    hidden = pa.BinaryArray.from_buffers(
        pa.binary(), 2, [pa.py_buffer(b"\x02"), offsets, pa.py_buffer(b"abcdef")]
    )
    (batch,) = encode(hidden, hidden)
    assert [(r.key, r.value) for r in read_records(batch)] == [(None, None), (b"def", b"def")]
    assert partition_of(hidden, 9).tolist() == [-1, partition_for(b"def", 9)]


@pytest.mark.parametrize(
    ("columns", "kind", "says"),
    [
        ({"value": pa.array([1])}, TypeError, "binary or string, not int64"),
        ({"value": pa.array([b"a"]), "key": pa.array([b"a", b"b"])}, ValueError, "unequal length"),
        ({"value": pa.array([b"a"]), "timestamp": pa.array([1.5])}, TypeError, "int64 milliseconds"),
        ({"value": pa.array([b"a"]), "headers": pa.array(["h"])}, TypeError, "headers are list"),
        ({"value": pa.array([b"a"]), "compression": "brotli"}, ValueError, "there are none, gzip"),
        ({"value": pa.array([b"a"]), "batch_bytes_max": 61}, ValueError, "more than 61 bytes"),
        (
            {"value": pa.array([b"a", b"b"]), "timestamp": pa.array([-(2**63), 2**63 - 1], pa.int64())},
            ValueError,
            "too far apart",
        ),
    ],
)
def test_wrong_columns_are_refused_by_name(columns: dict[str, Any], kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        list(encode(columns.pop("key", None), columns.pop("value"), **columns))


def test_a_header_without_a_key_is_refused_with_its_row() -> None:
    column = pa.array([[], [{"key": "a", "value": b""}], [{"key": None, "value": b""}]], HEADERS_TYPE)
    with pytest.raises(ValueError, match="row 2 has a header without a key"):
        list(encode(None, pa.array([b"1", b"2", b"3"]), headers=column))


def test_the_way_there_and_back() -> None:
    values = pa.array([b"v%d" % i if i % 5 else None for i in range(3000)])
    keys = pa.array([b"k%d" % (i % 7) if i % 3 else None for i in range(3000)])
    times = pa.array([1_700_000_000_000 + i * 37 % 1000 for i in range(3000)], pa.int64())
    (batch,) = encode(keys, values, timestamp=times, compression="zstd")
    columns = decode(batch, first=0, end=5000)
    assert columns.key.equals(keys)
    assert columns.value.equals(values)
    assert columns.timestamp.equals(times)
    assert columns.offset.to_pylist() == list(range(3000))


def test_keys_of_all_lengths_go_where_the_partitioner_says() -> None:
    keys = [bytes(range(i % 251)) * (1 + i // 300) for i in range(900)] + [b"x" * 100_001, None, b""]
    expected = [-1 if key is None else partition_for(key, 13) for key in keys]
    assert partition_of(pa.array(keys, pa.binary()), 13).tolist() == expected
    assert partition_of(pa.array(keys, pa.binary())[100:300], 13).tolist() == expected[100:300]
    with pytest.raises(ValueError, match="at least one partition"):
        partition_of(pa.array([b"a"]), 0)
