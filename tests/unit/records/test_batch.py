"""The header checks of the hot path: what is accepted, and which code each refusal carries."""

from struct import pack_into

import pytest

from penstock.core.crc32c import crc32c
from penstock.core.error_codes import ErrorCode
from penstock.records import batch as batches
from penstock.records.batch import InvalidBatch, TruncatedBatch
from penstock.records.builder import BatchOptions, build_batch
from penstock.records.reader import Record


def a_batch(**changed: int) -> bytearray:
    """A header-valid batch of three "records" (their bytes are not looked at here)."""
    fields = {
        "base_offset": 0,
        "batch_length": 49 + 30,
        "leader_epoch": -1,
        "magic": 2,
        "crc": 0,
        "attributes": 0,
        "last_offset_delta": 2,
        "base_timestamp": 1000,
        "max_timestamp": 1002,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "record_count": 3,
    } | changed
    data = bytearray(batches.HEADER.pack(*fields.values()) + bytes(range(30)))
    if "crc" not in changed:
        pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return data


def refusal(data: bytes | bytearray | memoryview, **options: int) -> ErrorCode:
    with pytest.raises(InvalidBatch) as caught:
        batches.validate_batch(memoryview(data), **options)
    return caught.value.code


def test_the_header_struct_and_the_positions_agree() -> None:
    assert batches.HEADER_BYTES == 61
    data = a_batch(leader_epoch=7, attributes=4, max_timestamp=99)
    header = batches.read_header(data)
    assert int.from_bytes(data[batches.LENGTH_POSITION : batches.LENGTH_POSITION + 4]) == header.batch_length
    assert int.from_bytes(data[batches.LEADER_EPOCH_POSITION : batches.LEADER_EPOCH_POSITION + 4]) == 7
    assert data[batches.MAGIC_POSITION] == 2
    assert int.from_bytes(data[batches.CRC_POSITION : batches.CRC_POSITION + 4]) == header.crc
    assert int.from_bytes(data[batches.ATTRIBUTES_POSITION : batches.ATTRIBUTES_POSITION + 2]) == 4
    assert int.from_bytes(data[batches.MAX_TIMESTAMP_POSITION : batches.MAX_TIMESTAMP_POSITION + 8]) == 99


def test_a_valid_batch_is_accepted_at_any_position() -> None:
    data = a_batch(producer_id=5, producer_epoch=0, base_sequence=10)
    view = memoryview(b"abc" + data + b"de")
    header = batches.validate_batch(view, 3, 3 + len(data))
    assert header == batches.read_header(data)
    assert (header.size_bytes, header.last_sequence, header.next_offset) == (len(data), 12, 3)


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"magic": 0}, ErrorCode.INVALID_RECORD),
        ({"magic": 1}, ErrorCode.INVALID_RECORD),
        ({"magic": 3}, ErrorCode.CORRUPT_MESSAGE),
        ({"magic": -1}, ErrorCode.CORRUPT_MESSAGE),
        ({"crc": 1}, ErrorCode.CORRUPT_MESSAGE),
        ({"base_offset": 1}, ErrorCode.INVALID_RECORD),
        ({"batch_length": -1}, ErrorCode.CORRUPT_MESSAGE),
        ({"batch_length": 0}, ErrorCode.CORRUPT_MESSAGE),
        ({"batch_length": 13}, ErrorCode.CORRUPT_MESSAGE),
        ({"batch_length": 48}, ErrorCode.CORRUPT_MESSAGE),
        ({"batch_length": 80}, ErrorCode.INVALID_RECORD),
        ({"batch_length": 2**31 - 1}, ErrorCode.INVALID_RECORD),
        ({"record_count": 0}, ErrorCode.INVALID_RECORD),
        ({"record_count": -1, "last_offset_delta": -2}, ErrorCode.INVALID_RECORD),
        ({"record_count": 4}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": 3}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": -1}, ErrorCode.INVALID_RECORD),
        ({"attributes": 5}, ErrorCode.INVALID_RECORD),
        ({"attributes": 7}, ErrorCode.INVALID_RECORD),
        ({"attributes": 0x20}, ErrorCode.INVALID_RECORD),
        ({"producer_id": 1}, ErrorCode.INVALID_RECORD),
        ({"producer_id": 1, "producer_epoch": 0}, ErrorCode.INVALID_RECORD),
        ({"producer_id": 1, "base_sequence": 0}, ErrorCode.INVALID_RECORD),
    ],
)
def test_a_contradictory_header_is_refused_with_its_code(changed: dict[str, int], code: ErrorCode) -> None:
    assert refusal(a_batch(**changed)) is code


@pytest.mark.parametrize("codec", range(8))
@pytest.mark.parametrize("bit", [0, *(1 << bit for bit in range(3, 15)), -(1 << 15)])
def test_codecs_are_known_ones_and_control_batches_refused_whatever_else_is_set(codec: int, bit: int) -> None:
    data = a_batch(attributes=bit | codec)
    if codec > batches.CODEC_MAX or bit == batches.CONTROL_MASK:
        assert refusal(data) is ErrorCode.INVALID_RECORD
    else:
        assert batches.validate_batch(memoryview(data)).codec == codec


@pytest.mark.parametrize("length", range(91))
def test_no_prefix_of_a_batch_is_a_batch(length: int) -> None:
    assert refusal(a_batch()[:length]) is ErrorCode.INVALID_RECORD
    with pytest.raises(TruncatedBatch):
        batches.check_batch(memoryview(a_batch()[:length]))


def test_two_batches_are_refused_but_a_cut_off_rest_is_ignored() -> None:
    assert refusal(a_batch() + a_batch()) is ErrorCode.INVALID_RECORD
    assert refusal(a_batch() + bytes(40)) is ErrorCode.CORRUPT_MESSAGE
    header = batches.validate_batch(memoryview(a_batch() + a_batch()[:-1]))
    assert header.size_bytes == len(a_batch())


def test_a_batch_over_the_topics_limit_is_too_large() -> None:
    size_bytes = len(a_batch())
    assert batches.validate_batch(memoryview(a_batch()), size_bytes_max=size_bytes).size_bytes == size_bytes
    assert refusal(a_batch(), size_bytes_max=size_bytes - 1) is ErrorCode.MESSAGE_TOO_LARGE


def test_a_flipped_bit_is_noticed_wherever_it_is_covered() -> None:
    for position in range(batches.CRC_POSITION, len(a_batch())):
        data = a_batch()
        data[position] ^= 0x10
        assert refusal(data) is ErrorCode.CORRUPT_MESSAGE


def counting(count: int, codec: int) -> bytearray:
    return a_batch(record_count=count, last_offset_delta=count - 1, attributes=codec)


@pytest.mark.parametrize("codec", range(5))
def test_a_count_beyond_what_the_bytes_can_hold_is_refused(codec: int) -> None:
    payload_bytes = len(a_batch()) - batches.HEADER_BYTES
    plausible = 64 * payload_bytes if codec else payload_bytes // batches.RECORD_BYTES_MIN
    for count in (1, plausible):
        assert batches.validate_batch(memoryview(counting(count, codec))).record_count == count
    for count in (plausible + 1, 2**31 - 1):
        assert refusal(counting(count, codec)) is ErrorCode.INVALID_RECORD


def test_however_large_a_batch_is_its_count_has_a_bound() -> None:
    data = memoryview(counting(20_000_000, 4) + bytes(1_000_000))
    pack_into(">i", data, batches.LENGTH_POSITION, len(data) - batches.LOG_OVERHEAD_BYTES)
    batches.stamp_crc(data, 0, len(data))
    assert refusal(data) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", range(5))
def test_the_densest_honest_batch_is_accepted(codec: int) -> None:
    """Empty records, nothing but their offsets differs; at the codec's highest level where it has one."""
    records = [Record(offset=at, timestamp=1, key=None, value=None) for at in range(20_000)]
    level = {1: 9, 4: 22}.get(codec)
    batch = build_batch(records, BatchOptions(codec=codec, level=level))
    assert batches.validate_batch(memoryview(batch)).record_count == len(records)


def test_the_brokers_own_batches_may_be_what_clients_may_not_send() -> None:
    data = a_batch(base_offset=500, attributes=0x38, producer_id=1, producer_epoch=0)
    header = batches.check_batch(memoryview(data))
    assert header.is_control
    assert header.is_transactional
    assert header.is_append_time
    assert not header.has_delete_horizon


def test_stamping_the_place_leaves_the_crc_valid() -> None:
    data = a_batch()
    batches.stamp(memoryview(data), 0, 123_456_789_012, 42)
    header = batches.check_batch(memoryview(data))
    assert (header.base_offset, header.leader_epoch, header.last_offset) == (
        123_456_789_012,
        42,
        123_456_789_014,
    )


def test_stamping_the_append_time_renews_the_crc() -> None:
    data = bytearray(b"xy" + a_batch(attributes=4) + b"z")
    batches.stamp_append_time(memoryview(data), 2, 77_000)
    header = batches.check_batch(memoryview(data), 2)
    assert header.max_timestamp == 77_000
    assert header.is_append_time
    assert header.codec == 4
    assert header.base_timestamp == 1000


def test_clearing_the_append_time_gives_records_their_own_times_back() -> None:
    data = bytearray(b"xy" + a_batch(attributes=0x08 | 4) + b"z")
    batches.clear_append_time(memoryview(data), 2)
    header = batches.check_batch(memoryview(data), 2)
    assert not header.is_append_time
    assert header.codec == 4


def test_sequences_wrap_to_zero() -> None:
    header = batches.read_header(a_batch(base_sequence=2**31 - 2))
    assert header.last_sequence == 0


@pytest.mark.parametrize("now_ms", [902, 1002, 1050])
def test_timestamps_within_the_topics_window_pass(now_ms: int) -> None:
    header = batches.read_header(a_batch())
    batches.check_timestamps(header, now_ms, before_max_ms=50, after_max_ms=100)
    assert header.base_timestamp >= now_ms - 50


@pytest.mark.parametrize("now_ms", [901, 1051])
def test_timestamps_outside_the_topics_window_are_refused(now_ms: int) -> None:
    header = batches.read_header(a_batch())
    with pytest.raises(InvalidBatch) as caught:
        batches.check_timestamps(header, now_ms, before_max_ms=50, after_max_ms=100)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
