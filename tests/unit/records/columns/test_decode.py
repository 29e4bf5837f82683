"""Batches to Arrow columns: what is kept, what is left out, and what is refused."""

import subprocess
import sys
from collections.abc import Sequence

import pytest

from penstock.core.varints import encode_varint
from penstock.records.batch import stamp_crc
from penstock.records.builder import BatchBuilder, BatchOptions, build_batch
from penstock.records.columns.decode import (
    HEADERS_TYPE,
    Columns,
    ColumnsTooLargeError,
    CorruptBatchError,
    OldFormatError,
    decode,
    decode_in_parts,
)
from penstock.records.compression import Codec, Unpacker
from penstock.records.reader import Header, Record

ABORT = b"\x00\x00\x00\x00"
COMMIT = b"\x00\x00\x00\x01"
FAR = 2**40


def batch(values: Sequence[bytes | None], *, base: int = 0, **options: object) -> bytes:
    records = [Record(base + i, 1000 + i, b"k%d" % i, value) for i, value in enumerate(values)]
    return bytes(build_batch(records, BatchOptions(base_offset=base, **options)))  # type: ignore[arg-type]


def transaction(producer: int, base: int, *values: bytes) -> bytes:
    return batch(values, base=base, producer_id=producer, producer_epoch=0, transactional=True)


def marker(producer: int, base: int, key: bytes) -> bytes:
    options = BatchOptions(
        base_offset=base, producer_id=producer, producer_epoch=0, transactional=True, control=True
    )
    return bytes(build_batch([Record(base, 0, key, bytes(6))], options))


def mended(data: bytearray) -> bytearray:
    """The CRC made right, so that the damage gets past the door."""
    with memoryview(data) as view:
        stamp_crc(view, 0, len(data))
    return data


def values(columns: Columns) -> list[bytes | None]:
    found: list[bytes | None] = columns.value.to_pylist()
    return found


def test_every_column_of_a_record_is_there() -> None:
    headers: list[Header] = [("trace", b"t1"), ("gone", None)]
    records = [
        Record(40, 1_700_000_000_000, b"key", b"value", tuple(headers)),
        Record(41, 1_700_000_000_007, None, b""),
        Record(45, 1_699_999_999_000, b"", None),
    ]
    columns = decode(build_batch(records, BatchOptions(base_offset=40)), first=0, end=FAR, headers=True)
    assert columns.key.to_pylist() == [b"key", None, b""]
    assert columns.value.to_pylist() == [b"value", b"", None]
    assert columns.offset.to_pylist() == [40, 41, 45]
    assert columns.timestamp.to_pylist() == [1_700_000_000_000, 1_700_000_000_007, 1_699_999_999_000]
    assert columns.timestamp_type.to_pylist() == [0, 0, 0]
    assert columns.headers is not None
    assert columns.headers.to_pylist() == [
        [{"key": "trace", "value": b"t1"}, {"key": "gone", "value": None}],
        None,
        None,
    ]
    assert columns.headers.type == HEADERS_TYPE


def test_headers_are_left_out_unless_asked_for() -> None:
    record = Record(0, 0, None, b"v", (("h", b"1"),))
    assert decode(build_batch([record]), first=0, end=1).headers is None


def test_nothing_gives_empty_columns_of_the_same_types() -> None:
    some = decode(batch([b"a"]), first=0, end=FAR, headers=True)
    for none in (
        decode(b"", first=0, end=FAR, headers=True),
        decode(batch([b"a"]), first=5, end=FAR, headers=True),
        decode(
            build_batch([Record(4, 0, None, b"x"), Record(9, 0, None, b"x")]), first=6, end=8, headers=True
        ),
    ):
        assert [len(column) for column in none if column is not None] == [0] * 6
        assert [c.type for c in none if c is not None] == [c.type for c in some if c is not None]


@pytest.mark.parametrize("codec", list(Codec))
def test_columns_stay_what_they_are_when_their_memory_is_used_again(codec: Codec) -> None:
    unpacker = Unpacker()
    answers = [
        build_batch(
            [Record(i, i, letter * 9, letter * 99, (("h", letter),))],
            BatchOptions(base_offset=i, codec=codec),
        )
        for i, letter in enumerate((b"a", b"b", b"c"))
    ]
    decoded = [decode(answer, first=0, end=FAR, headers=True, unpacker=unpacker) for answer in answers]
    # In parts of one batch each, too: the second is unpacked over the first.
    decoded += decode_in_parts(
        b"".join(answers), first=0, end=FAR, headers=True, unpacker=unpacker, part_bytes_max=1
    )
    for columns, letter in zip(decoded, (b"a", b"b", b"c") * 2, strict=True):
        assert (columns.key.to_pylist(), values(columns)) == ([letter * 9], [letter * 99])
        assert columns.headers is not None
        assert columns.headers.to_pylist() == [[{"key": "h", "value": letter}]]


@pytest.mark.parametrize("codec", list(Codec))
def test_ranges_are_trimmed_inside_batches(codec: Codec) -> None:
    data = b"".join(
        batch([b"%d" % (base + i) for i in range(10)], base=base, codec=codec) for base in (0, 10, 20)
    )
    for first, end in ((0, 30), (3, 27), (10, 20), (12, 13), (9, 11), (29, 99)):
        columns = decode(data, first=first, end=end, headers=True)
        wanted = range(first, min(end, 30))
        assert columns.offset.to_pylist() == list(wanted)
        assert values(columns) == [b"%d" % offset for offset in wanted]
        assert columns.headers is not None
        assert len(columns.headers) == len(wanted)


def test_batches_of_mixed_compression_keep_their_order() -> None:
    data = b"".join(
        batch([b"%d" % i] * 3, base=3 * i, codec=codec) for i, codec in enumerate([0, 3, 0, 0, 4, 1, 2, 0])
    )
    columns = decode(memoryview(data), first=0, end=FAR)
    assert columns.offset.to_pylist() == list(range(24))
    assert values(columns) == [b"%d" % (i // 3) for i in range(24)]


def test_parts_stay_small_and_lose_nothing() -> None:
    for codec in (Codec.NONE, Codec.ZSTD):
        data = b"".join(batch([bytes(1000)] * 10, base=10 * i, codec=codec) for i in range(20))
        parts = list(decode_in_parts(data, first=5, end=195, part_bytes_max=30_000))
        assert len(parts) > 5
        assert max(part.value.nbytes for part in parts) < 45_000
        assert [offset for part in parts for offset in part.offset.to_pylist()] == list(range(5, 195))


def test_what_one_column_cannot_hold_is_refused_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"".join(batch([bytes(1000)] * 30, base=30 * i, codec=Codec.LZ4) for i in range(10))
    parts = list(decode_in_parts(data, first=0, end=FAR, part_bytes_max=30_000))
    monkeypatch.setattr("penstock.records.columns.decode.COLUMN_BYTES_MAX", 100_000)
    monkeypatch.setattr("penstock.records.columns.decode.decode_in_parts", lambda *_, **__: parts)
    with pytest.raises(ColumnsTooLargeError, match="in parts"):
        decode(data, first=0, end=FAR)


def test_append_time_is_the_batches_for_all_its_records() -> None:
    data = batch([b"a", b"b"], append_time_ms=777) + batch([b"c"], base=2)
    columns = decode(data, first=0, end=FAR)
    assert columns.timestamp.to_pylist() == [777, 777, 1000]
    assert columns.timestamp_type.to_pylist() == [1, 1, 0]


def test_a_delete_horizon_does_not_shift_timestamps() -> None:
    assert decode(batch([b"a", b"b"], delete_horizon_ms=5), first=0, end=9).timestamp.to_pylist() == [
        1000,
        1001,
    ]


def test_a_batch_that_compaction_emptied_is_passed_over() -> None:
    empty = bytes(BatchBuilder(BatchOptions(base_offset=3, last_offset_delta=4)).build())
    assert decode(batch([b"a"]) + empty + batch([b"b"], base=8), first=0, end=FAR).offset.to_pylist() == [
        0,
        8,
    ]
    assert len(decode(empty, first=0, end=FAR).offset) == 0


def test_control_batches_are_no_rows() -> None:
    data = (
        transaction(7, 0, b"a", b"b") + marker(7, 2, COMMIT) + transaction(7, 3, b"c") + marker(7, 4, COMMIT)
    )
    assert values(decode(data, first=0, end=FAR)) == [b"a", b"b", b"c"]


def test_an_aborted_transaction_ends_at_its_marker() -> None:
    data = (
        transaction(7, 0, b"no")
        + transaction(8, 1, b"yes")
        + batch([b"plain"], base=2, producer_id=7, producer_epoch=0)
        + transaction(7, 3, b"no")
        + marker(8, 4, COMMIT)
        + marker(7, 5, ABORT)
        + transaction(7, 6, b"again")
        + marker(7, 7, COMMIT)
    )
    assert values(decode(data, first=0, end=FAR, aborted=[(7, 0)])) == [b"yes", b"plain", b"again"]
    assert len(decode(data, first=0, end=FAR).value) == 5


def test_a_transaction_is_aborted_from_its_first_offset_only() -> None:
    data = (
        transaction(7, 0, b"kept")
        + marker(7, 1, COMMIT)
        + transaction(7, 2, b"no")
        + marker(7, 3, ABORT)
        + transaction(7, 4, b"no")
        + marker(7, 5, ABORT)
        + transaction(7, 6, b"kept too")
    )
    # In any order: the broker sorts them, we do not lean on it.
    for aborted in ([(7, 2), (7, 4)], [(7, 4), (7, 2)]):
        assert values(decode(data, first=0, end=FAR, aborted=aborted)) == [b"kept", b"kept too"]


def test_a_marker_before_the_wanted_range_still_ends_its_transaction() -> None:
    data = transaction(7, 0, b"no") + marker(7, 1, ABORT) + transaction(7, 2, b"yes")
    assert values(decode(data, first=2, end=FAR, aborted=[(7, 0)])) == [b"yes"]


def test_a_transaction_that_began_before_the_fetch_is_dropped_from_its_start() -> None:
    data = transaction(7, 50, b"no") + marker(7, 51, ABORT)
    assert values(decode(data, first=50, end=FAR, aborted=[(7, 3)])) == []


def test_a_wrong_crc_names_the_offset() -> None:
    damaged = bytearray(batch([b"abc"], base=12))
    damaged[-3] ^= 1
    with pytest.raises(CorruptBatchError, match="offset 12 cannot be read: its CRC is") as caught:
        decode(batch([b"a"] * 12) + damaged, first=0, end=FAR)
    assert caught.value.offset == 12


def test_old_formats_are_named_as_such() -> None:
    old = (77).to_bytes(8) + (22).to_bytes(4) + bytes(4) + b"\x01" + bytes(17)
    with pytest.raises(OldFormatError, match=r"offset 77 .* message format 1"):
        decode(old, first=0, end=FAR)


def test_bytes_that_end_inside_a_batch_are_refused() -> None:
    data = batch([b"a"]) + batch([b"b"], base=1)
    for cut in (1, 20, 64, 70):
        with pytest.raises(CorruptBatchError):
            decode(data[:-cut], first=0, end=FAR)


@pytest.mark.parametrize("count", [-1, 0, 1, 3, 2**31 - 1])
def test_a_lying_record_count_is_refused(count: int) -> None:
    data = bytearray(batch([b"a", b"b"]))
    data[57:61] = count.to_bytes(4, signed=True)
    data[23:27] = (2**31 - 2).to_bytes(4)
    with pytest.raises(CorruptBatchError, match="offset 0"):
        decode(mended(data), first=0, end=FAR)


def test_a_field_that_reaches_into_the_next_record_is_refused() -> None:
    data = bytearray(batch([b"aaaa", b"bbbb"]))
    position = data.index(b"aaaa") - 1
    data[position] = 30
    with pytest.raises(CorruptBatchError, match="record 0: its fields do not end"):
        decode(mended(data), first=0, end=FAR)


def test_what_a_batch_may_unpack_to_is_bounded() -> None:
    data = batch([bytes(100_000)], codec=Codec.ZSTD)
    with pytest.raises(CorruptBatchError, match="offset 0"):
        decode(data, first=0, end=FAR, batch_bytes_max=50_000)
    assert len(decode(data, first=0, end=FAR, batch_bytes_max=200_000).value) == 1
    with pytest.raises(ValueError, match="must stay below"):
        decode(data, first=0, end=FAR, batch_bytes_max=2**31)


def test_one_record_may_have_many_headers_and_most_none() -> None:
    many: tuple[Header, ...] = tuple((f"h{i}", None if i % 3 else b"x" * (i % 100)) for i in range(5000))
    records = [Record(i, 0, None, b"v", many if i == 70 else (("only", b"1"),) * (i % 2)) for i in range(100)]
    found = decode(build_batch(records), first=0, end=FAR, headers=True).headers
    assert found is not None
    expected = [[{"key": k, "value": v} for k, v in record.headers] or None for record in records]
    assert found.to_pylist() == expected


def test_header_keys_that_are_not_utf8_are_shown_as_java_shows_them() -> None:
    name = b"a\xffb".decode("utf-8", "surrogateescape")
    columns = decode(build_batch([Record(0, 0, None, None, ((name, b"1"),))]), first=0, end=1, headers=True)
    assert columns.headers is not None
    assert columns.headers.to_pylist() == [[{"key": "a\ufffdb", "value": b"1"}]]


def test_the_broker_needs_no_arrow() -> None:
    code = (
        "import sys, penstock.records, penstock.records.reader, penstock.records.builder, penstock.server.broker\n"
        "assert not {'numpy', 'pyarrow'} & set(sys.modules), 'loaded'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_runs_of_like_records_end_where_a_size_changes() -> None:
    """Walked by comparison, not one by one: every place where a run breaks has to be seen."""
    sizes = (
        [100] * 3000
        + [101]
        + [100] * 2000
        + [164]
        + [100] * 900
        + [20_000] * 700
        + [3] * 900
        + list(range(300))
        + [100] * 600
    )
    records = [Record(i, i // 3, None, bytes(size)) for i, size in enumerate(sizes)]
    columns = decode(build_batch(records), first=0, end=FAR)
    assert [len(value) for value in columns.value.to_pylist()] == sizes
    assert columns.offset.to_pylist() == list(range(len(sizes)))


def test_a_run_that_leaves_its_batch_is_refused() -> None:
    """The bytes behind look like more of the same; the batch's own length says where it ends."""
    first, second = (bytearray(batch([bytes(50)] * 2000, base=base)) for base in (0, 2000))
    joined = first[:8] + (len(first) + len(second) - 12).to_bytes(4) + first[12:] + second
    joined[57:61] = (4000).to_bytes(4)
    joined[23:27] = (3999).to_bytes(4)
    with pytest.raises(CorruptBatchError, match="offset 0"):
        decode(mended(joined), first=0, end=FAR)


def by_hand(*records: bytes) -> bytearray:
    """A batch of hand-made records, each without its length."""
    payload = b"".join(encode_varint(len(record)) + record for record in records)
    made = bytearray(batch([b""] * len(records))[:61]) + payload
    made[8:12] = (len(made) - 12).to_bytes(4)
    return mended(made)


# Attributes, timestamp delta, offset delta, null key, null value.
PLAIN = b"\x00\x00\x00\x01\x01"


@pytest.mark.parametrize("headers", [False, True])
@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(PLAIN + b"\x00\x00", id="bytes behind the last field"),
        pytest.param(PLAIN + b"\x80", id="the bytes end inside a varint"),
        pytest.param(PLAIN + b"\x01", id="fewer than no headers"),
        pytest.param(b"\x00\x00\x06\x01\x01\x00", id="an offset beyond the batch's last"),
        pytest.param(b"\x00\x00\x01\x01\x01\x00", id="an offset before the batch's first"),
        pytest.param(b"\x00\x00\x80\x80\x80\x80\x80\x00\x01\x01\x00", id="a varint of six bytes"),
        pytest.param(b"\x00" + b"\x80" * 9 + b"\x02" + b"\x00\x01\x01\x00", id="a varlong of 65 bits"),
        pytest.param(b"\x00\xfe" + b"\xff" * 8 + b"\x01" + b"\x00\x01\x01\x00", id="a time beyond 64 bits"),
        pytest.param(b"\x00\x00\x00\x20\x01\x00", id="a key longer than the record"),
        pytest.param(b"\x00\x00\x00\xfe\xff\xff\xff\x0f\x01\x00", id="a key longer than anything"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(wrong: bytes, headers: bool) -> None:
    fine = PLAIN + b"\x02\x02h\x02v"
    assert len(decode(by_hand(fine, fine), first=0, end=FAR, headers=headers).value) == 2
    for records in ((wrong, fine), (fine, wrong), (wrong,)):
        with pytest.raises(CorruptBatchError, match=f"record {records.index(wrong)}: "):
            decode(by_hand(*records), first=0, end=FAR, headers=headers)


@pytest.mark.parametrize("count", [1, 40])
@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (b"\x02\x01\x04xx", "a header without a key"),
        (b"\xfe\xff\xff\xff\x0f\x02h\x02v", "headers in"),
        (b"\x04\x02h\x02v", "record [0-9]+: "),
        (b"\x02\x02h\x08v", "its headers end"),
        (b"\x02\x02h\x02vv", "its headers end"),
        (b"\x02\x02h" + b"\xff" * 12, "varint"),
    ],
)
def test_headers_that_contradict_themselves_are_refused(wrong: bytes, says: str, count: int) -> None:
    """One record alone is walked in Python, forty together in numpy."""
    with pytest.raises(CorruptBatchError, match=says):
        decode(by_hand(*[PLAIN + wrong] * count), first=0, end=FAR, headers=True)


def test_an_error_far_inside_a_large_fetch_is_named_exactly() -> None:
    fine = PLAIN + b"\x00"
    data = bytes(batch([b"x"] * 5000)) + bytes(by_hand(*[fine] * 9000, PLAIN + b"\x00\x00", fine))
    with pytest.raises(CorruptBatchError, match="record 9000: "):
        decode(data, first=0, end=FAR)


def test_lengths_that_go_nowhere_are_refused() -> None:
    """A length of -3, written in three bytes: a walk that believed it would stand still."""
    data = bytearray(batch([b""] * 2000)[:61]) + b"\x85\x80\x00" * 6000
    data[8:12] = (len(data) - 12).to_bytes(4)
    with pytest.raises(CorruptBatchError, match="offset 0"):
        decode(mended(data), first=0, end=FAR)
