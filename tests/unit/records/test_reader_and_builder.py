"""Building and opening batches: fields kept, damage found, several batches walked."""

from struct import pack_into

import pytest

from penstock.core.error_codes import ErrorCode
from penstock.records.batch import (
    InvalidBatch,
    TruncatedBatch,
    check_batch,
    read_header,
    stamp_crc,
    validate_batch,
)
from penstock.records.builder import BatchBuilder, BatchOptions, build_batch, encode_record, recompress
from penstock.records.compression import Codec
from penstock.records.reader import (
    InvalidRecord,
    KeylessRecords,
    Record,
    iter_batches,
    read_all,
    read_records,
    verify_records,
)

# One record, written by hand: key "k", value "v", header "h" = "1".
HAND_WRITTEN = bytes.fromhex("18 00 00 00 02 6b 02 76 02 02 68 02 31")


def three(**options: object) -> bytearray:
    builder = BatchBuilder(BatchOptions(**options))  # type: ignore[arg-type]
    builder.append(b"one", key=b"a", timestamp=1000, headers=[("h", b"1"), ("none", None)])
    builder.append(None, key=b"b", timestamp=3000)
    builder.append(b"", timestamp=2000, headers=[("ü", b"")])
    return builder.build()


def with_payload(payload: bytes, count: int) -> bytearray:
    """A batch with a valid CRC around any bytes as records."""
    data = three()[:61] + payload
    pack_into(">i", data, 8, len(data) - 12)
    pack_into(">i", data, 23, count - 1)
    pack_into(">i", data, 57, count)
    with memoryview(data) as view:
        stamp_crc(view, 0, len(data))
    return data


def test_a_record_is_encoded_as_the_protocol_draws_it() -> None:
    assert encode_record(0, 0, b"k", b"v", [("h", b"1")]) == HAND_WRITTEN
    (record,) = read_records(with_payload(HAND_WRITTEN, 1))
    assert record == Record(0, 1000, b"k", b"v", (("h", b"1"),), 13)


@pytest.mark.parametrize("codec", list(Codec))
def test_what_is_built_is_read(codec: Codec) -> None:
    batch = three(codec=codec, base_offset=40)
    records = list(read_records(batch))
    assert [(r.offset, r.timestamp, r.key, r.value) for r in records] == [
        (40, 1000, b"a", b"one"),
        (41, 3000, b"b", None),
        (42, 2000, None, b""),
    ]
    assert [r.headers for r in records] == [(("h", b"1"), ("none", None)), (), (("ü", b""),)]
    header = check_batch(memoryview(batch))
    assert (header.base_timestamp, header.max_timestamp, header.record_count) == (1000, 3000, 3)
    assert header.codec == codec


def test_a_built_batch_passes_the_brokers_door() -> None:
    batch = three(producer_id=7, producer_epoch=1, base_sequence=5, transactional=True)
    header = validate_batch(memoryview(batch))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, 5)
    assert header.is_transactional


def test_append_time_replaces_the_records_own() -> None:
    assert {r.timestamp for r in read_records(three(append_time_ms=9000))} == {9000}


def test_a_compacted_batch_keeps_its_range_and_its_gaps() -> None:
    kept = [Record(12, 500, b"k", b"v"), Record(15, 400, b"l", None)]
    options = BatchOptions(base_offset=10, last_offset_delta=9, delete_horizon_ms=77)
    batch = build_batch(kept, options)
    header = check_batch(memoryview(batch))
    assert (header.last_offset, header.record_count, header.base_timestamp) == (19, 2, 77)
    assert header.has_delete_horizon
    assert [(r.offset, r.timestamp, r.key) for r in read_records(batch)] == [(12, 500, b"k"), (15, 400, b"l")]
    assert list(read_records(BatchBuilder(BatchOptions(last_offset_delta=3)).build())) == []


def test_offsets_must_rise() -> None:
    builder = BatchBuilder(BatchOptions(base_offset=10))
    builder.append(b"", offset=12)
    for offset in (12, 9):
        with pytest.raises(ValueError, match="does not follow"):
            builder.append(b"", offset=offset)
    assert builder.count == 1


def test_an_empty_or_too_narrow_batch_is_not_built() -> None:
    with pytest.raises(ValueError, match="last offset delta"):
        BatchBuilder().build()
    builder = BatchBuilder(BatchOptions(last_offset_delta=0))
    builder.append(b"")
    builder.append(b"")
    with pytest.raises(ValueError, match="last offset delta"):
        builder.build()


def test_undecodable_header_names_survive() -> None:
    record = encode_record(0, 0, None, None, []).removesuffix(b"\x00") + b"\x02\x04\xff\xfe\x01"
    batch = with_payload(bytes([(len(record) - 1) * 2]) + record[1:], 1)
    (record_read,) = read_records(batch)
    assert build_batch([record_read], BatchOptions())[61:] == batch[61:]


def test_several_batches_are_walked_up_to_a_cut_off_one() -> None:
    buffer = three() + three(base_offset=3, codec=Codec.LZ4) + three(base_offset=6)[:-1]
    assert [header.base_offset for _, header in iter_batches(buffer)] == [0, 3]
    assert [r.offset for r in read_all(buffer)] == [0, 1, 2, 3, 4, 5]
    assert [r.offset for r in read_all(buffer, from_offset=2)] == [2, 3, 4, 5]
    assert [r.offset for r in read_all(buffer, from_offset=3)] == [3, 4, 5]


def test_control_batches_are_seen_on_request_only() -> None:
    buffer = three() + three(base_offset=3, control=True)
    assert len(list(read_all(buffer))) == 3
    assert len(list(read_all(buffer, with_control=True))) == 6


@pytest.mark.parametrize("source", list(Codec))
@pytest.mark.parametrize("target", list(Codec))
def test_recompression_changes_the_codec_and_nothing_else(source: Codec, target: Codec) -> None:
    batch = three(
        codec=source, base_offset=0, leader_epoch=3, producer_id=9, producer_epoch=2, base_sequence=4
    )
    again = recompress(memoryview(batch), target)
    before, after = read_header(batch), check_batch(memoryview(again))
    assert after.codec == target
    assert list(read_records(again)) == list(read_records(batch))
    same = {"crc": 0, "batch_length": 0, "attributes": 0}
    assert after._replace(**same) == before._replace(**same)


def test_recompression_puts_a_false_max_timestamp_right() -> None:
    batch = three()
    pack_into(">q", batch, 35, 10**12)
    with memoryview(batch) as view:
        stamp_crc(view, 0, len(batch))
        assert read_header(recompress(view, Codec.GZIP)).max_timestamp == 3000


def test_the_deep_check_wants_keys_only_where_required() -> None:
    view = memoryview(three())
    assert verify_records(view).max_timestamp == 3000
    with pytest.raises(KeylessRecords) as caught:
        verify_records(view, key_required=True)
    assert caught.value.indexes == [2]
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_the_deep_check_finds_gaps_in_the_offsets() -> None:
    payload = encode_record(0, 0, b"k", b"v", []) + encode_record(0, 0, b"k", b"v", [])
    with pytest.raises(InvalidRecord, match="offset delta 0"):
        verify_records(memoryview(with_payload(payload, 2)))
    compacted = build_batch([Record(1, 0, b"", b"")], BatchOptions())
    with pytest.raises(InvalidBatch, match="last offset delta"):
        verify_records(memoryview(compacted))


RECORD = encode_record(0, 0, b"key", b"value", [("h", b"1")])


@pytest.mark.parametrize(
    ("payload", "count"),
    [
        (b"", 1),
        (RECORD, 2),
        (RECORD, 2**31 - 1),
        (RECORD + RECORD, 1),
        (RECORD + b"\x00", 1),
        (RECORD[:-1], 1),
        (b"\x80" * 20, 1),
        (b"\x00" * 20, 1),
        (b"\x01" + bytes(20), 1),
        (b"\xfe\xff\xff\xff\x0f" + bytes(20), 1),
        (bytes.fromhex("0c 00 00 00 10 01 00"), 1),  # a key longer than the record
        (bytes.fromhex("0c 00 00 00 01 10 00"), 1),  # a value longer than the record
        (bytes.fromhex("0c 00 00 00 01 01 7e"), 1),  # 63 headers in no bytes
        (bytes.fromhex("0c 00 00 00 01 01 01"), 1),  # -1 headers
        (bytes.fromhex("10 00 00 00 01 01 02 01 01"), 1),  # a header without a key
        (bytes.fromhex("0e 00 00 00 01 01 00 00"), 1),  # a byte unread inside the record
        (bytes.fromhex("0c 00 00 02 01 01 00"), 1),  # an offset beyond the last
        (bytes.fromhex("0c 00 00 01 01 01 00"), 1),  # an offset before the first
        (b"\x1e\x00" + b"\xff" * 9 + b"\x7f" + b"\x00\x01\x01\x00", 1),  # a timestamp beyond 64 bits
    ],
)
def test_records_that_contradict_their_lengths_are_refused(payload: bytes, count: int) -> None:
    batch = with_payload(payload, count)
    with pytest.raises(InvalidBatch) as caught:
        list(read_records(batch))
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_a_cut_batch_is_not_read() -> None:
    with pytest.raises(TruncatedBatch):
        list(read_records(three()[:-1]))
    with pytest.raises(TruncatedBatch):
        list(read_records(three()[:60]))


def test_the_walk_refuses_what_is_no_batch() -> None:
    short = three()
    pack_into(">i", short, 8, 30)
    old = three()
    old[16] = 1
    for buffer, code in ((short, ErrorCode.CORRUPT_MESSAGE), (old, ErrorCode.INVALID_RECORD)):
        with pytest.raises(InvalidBatch) as caught:
            list(iter_batches(buffer))
        assert caught.value.code is code
