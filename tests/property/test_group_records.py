"""The layouts of `__consumer_offsets`: what is written is read back, and only declared errors leave a decoder."""

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from penstock.groups.records.group_value import (
    StoredGroup,
    StoredMember,
    decode_group_value,
    encode_group_value,
)
from penstock.groups.records.keys import (
    GroupKey,
    OffsetKey,
    decode_key,
    encode_group_key,
    encode_offset_key,
)
from penstock.groups.records.offset_value import (
    NO_EXPIRY,
    NO_TOPIC_ID,
    CommittedOffset,
    decode_offset_value,
    encode_offset_value,
)
from penstock.groups.state import CoordinatorState
from penstock.wire.kafka.primitives import DecodeError

TEXT = st.text(max_size=50)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TIMEOUT = st.integers(0, 2**31 - 1)
MEMBERS = st.builds(
    StoredMember,
    member_id=TEXT,
    instance_id=st.none() | TEXT,
    client_id=TEXT,
    client_host=TEXT,
    rebalance_timeout_ms=TIMEOUT,
    session_timeout_ms=TIMEOUT,
    subscription=st.binary(max_size=50),
    assignment=st.binary(max_size=50),
)
GROUPS = st.builds(
    StoredGroup,
    protocol_type=TEXT,
    generation=INT32,
    protocol=st.none() | TEXT,
    leader=st.none() | TEXT,
    state_since_ms=INT64,
    members=st.lists(MEMBERS, max_size=4),
)
OFFSETS = st.builds(
    CommittedOffset,
    offset=INT64,
    leader_epoch=INT32,
    metadata=TEXT,
    committed_ms=INT64,
    expires_ms=st.just(NO_EXPIRY),
    topic_id=st.just(NO_TOPIC_ID) | st.binary(min_size=16, max_size=16),
)


@given(TEXT, TEXT, INT32)
def test_keys_are_read_back(group: str, topic: str, partition: int) -> None:
    assert decode_key(encode_offset_key(group, topic, partition)) == OffsetKey(group, topic, partition)
    assert decode_key(encode_group_key(group)) == GroupKey(group)


@given(OFFSETS)
def test_offsets_are_read_back(value: CommittedOffset) -> None:
    assert decode_offset_value(encode_offset_value(value)) == value


@given(OFFSETS, st.integers(0, 2**62))
def test_offsets_with_an_expiry_of_no_topic_lose_only_their_epoch(
    value: CommittedOffset, expires_ms: int
) -> None:
    value.expires_ms = expires_ms
    read = decode_offset_value(encode_offset_value(value))
    if value.topic_id == NO_TOPIC_ID:
        value.leader_epoch = -1
    assert read == value


@given(GROUPS)
def test_groups_are_read_back(group: StoredGroup) -> None:
    assert decode_group_value(encode_group_value(group)) == group


@given(st.binary(max_size=200), st.none() | st.binary(max_size=200))
def test_any_bytes_are_a_record_or_a_declared_error(key: bytes, value: bytes | None) -> None:
    for decode in (decode_key, decode_offset_value, decode_group_value):
        with suppress(DecodeError):
            decode(key)
    state = CoordinatorState()
    try:
        state.apply(key, value)
    except DecodeError:
        assert not state.offsets, "a damaged record left something behind"


@given(GROUPS, st.data())
def test_damaged_groups_are_a_declared_error_or_another_group(
    group: StoredGroup, data: st.DataObject
) -> None:
    encoded = bytearray(encode_group_value(group))
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(encoded)))
    for damaged in (bytes(encoded), bytes(encoded[:cut])):
        state = CoordinatorState()
        try:
            assert state.apply(encode_group_key("g"), damaged)
        except DecodeError:
            assert not state.groups, "a damaged record left something behind"


def test_bytes_as_kafka_writes_them() -> None:
    """Taken from the layouts of Kafka's schema, field by field."""
    assert encode_offset_key("g", "t", 3) == bytes.fromhex("0001 0001 67 0001 74 00000003")
    assert encode_group_key("g") == bytes.fromhex("0002 0001 67")
    assert encode_offset_value(CommittedOffset(5, 2, "m", 7)) == bytes.fromhex(
        "0003 0000000000000005 00000002 0001 6d 0000000000000007"
    )
    old = bytes.fromhex("0000 0000000000000005 0001 6d 0000000000000007")
    assert decode_offset_value(old) == CommittedOffset(5, -1, "m", 7)
    flexible = bytes.fromhex("0004 0000000000000005 00000002 02 6d 0000000000000007 00")
    assert decode_offset_value(flexible) == CommittedOffset(5, 2, "m", 7)
    topic_id = bytes(range(16))
    bound = flexible[:-1] + bytes.fromhex("01 00 10") + topic_id
    assert encode_offset_value(CommittedOffset(5, 2, "m", 7, topic_id=topic_id)) == bound
    plain = bytes.fromhex("0004 0000000000000005 00000002 01 0000000000000007 01 00 10") + topic_id
    assert encode_offset_value(CommittedOffset(5, 2, "", 7, topic_id=topic_id)) == plain
    unknown = flexible[:-1] + bytes.fromhex("02 00 10") + topic_id + bytes.fromhex("05 01 ff")
    assert decode_offset_value(unknown) == CommittedOffset(5, 2, "m", 7, topic_id=topic_id)
    member = StoredMember("m", None, "c", "h", 2, 1, b"s", b"a")
    group = StoredGroup("consumer", 4, "range", "m", 9, [member])
    assert encode_group_value(group) == bytes.fromhex(
        "0003 0008 636f6e73756d6572 00000004 0005 72616e6765 0001 6d 0000000000000009 00000001"
        "0001 6d ffff 0001 63 0001 68 00000002 00000001 00000001 73 00000001 61"
    )
    oldest = bytes.fromhex(
        "0000 0008 636f6e73756d6572 00000004 0005 72616e6765 0001 6d 00000001"
        "0001 6d 0001 63 0001 68 00000001 00000001 73 00000001 61"
    )
    found = decode_group_value(oldest)
    assert (found.state_since_ms, found.members[0].rebalance_timeout_ms) == (-1, 1)
    newest = bytes.fromhex(
        "0004 09 636f6e73756d6572 00000004 06 72616e6765 02 6d 0000000000000009 02"
        "02 6d 00 02 63 02 68 00000002 00000001 02 73 02 61 00 00"
    )
    assert decode_group_value(newest) == group
