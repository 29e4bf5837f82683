"""The layouts of `__transaction_state`: what is written is read back, and only declared errors leave a decoder."""

from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.groups.transactions.layouts import (
    NO_ID,
    StoredTransaction,
    TopicPartition,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from penstock.groups.transactions.machine import TransactionMachine
from penstock.groups.transactions.states import DEAD, EMPTY, ONGOING, PREPARE_COMMIT, TransactionState
from penstock.wire.kafka.primitives import DecodeError

TEXT = st.text(max_size=50)
ID = st.integers(0, 2**63 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
PARTITIONS = st.frozensets(st.builds(TopicPartition, TEXT, st.integers(0, 2**31 - 1)), max_size=8)
STORED = st.builds(
    StoredTransaction,
    producer_id=ID,
    epoch=st.integers(0, 2**15 - 1),
    timeout_ms=st.integers(0, 2**31 - 1),
    state=st.sampled_from([state for state in TransactionState if state is not DEAD]),
    partitions=PARTITIONS,
    updated_ms=INT64,
    started_ms=INT64,
    previous_id=st.just(NO_ID) | ID,
    next_id=st.just(NO_ID) | ID,
    client_version=st.integers(0, 2),
).map(lambda stored: replace(stored, partitions=frozenset()) if stored.state is EMPTY else stored)
LEVEL = st.integers(0, 2)


@given(TEXT)
def test_keys_are_read_back(transactional_id: str) -> None:
    assert decode_key(encode_key(transactional_id)) == transactional_id


@given(STORED, LEVEL)
def test_transactions_are_read_back_whatever_the_level(stored: StoredTransaction, level: int) -> None:
    assert decode_value(encode_value(stored, level)) == stored


@given(st.binary(max_size=200), st.none() | st.binary(max_size=200))
def test_any_bytes_are_a_record_or_a_declared_error(key: bytes, value: bytes | None) -> None:
    for decode in (decode_key, decode_value):
        with suppress(DecodeError):
            decode(key)
    machine = TransactionMachine()
    try:
        machine.apply(key, value)
    except DecodeError:
        assert not list(machine.subjects()), "a damaged record left something behind"


@given(STORED, LEVEL, st.data())
def test_damaged_transactions_are_a_declared_error_or_another_transaction(
    stored: StoredTransaction, level: int, data: st.DataObject
) -> None:
    encoded = bytearray(encode_value(stored, level))
    cut = data.draw(st.integers(0, len(encoded) - 1))
    at = data.draw(st.integers(0, len(encoded) - 1))
    shorter = bytes(encoded[:cut])
    encoded[at] ^= data.draw(st.integers(1, 255))
    machine = TransactionMachine()
    with pytest.raises(DecodeError):
        machine.apply(encode_key("t"), shorter)
    assert not list(machine.subjects()), "a damaged record left something behind"
    try:
        assert machine.apply(encode_key("t"), bytes(encoded))
    except DecodeError:
        assert not list(machine.subjects()), "a damaged record left something behind"


def test_bytes_as_kafka_writes_them() -> None:
    """Taken from the layouts of Kafka's schema, field by field."""
    assert encode_key("tx") == bytes.fromhex("0000 0002 7478")
    empty = StoredTransaction(5, 3, 60000, EMPTY, updated_ms=7)
    head = "0000000000000005 0003 0000ea60"
    times = "0000000000000007 ffffffffffffffff"
    assert encode_value(empty, 0) == bytes.fromhex(f"0000 {head} 00 ffffffff {times}")
    assert encode_value(empty, 2) == bytes.fromhex(f"0001 {head} 00 00 {times} 00")
    partitions = frozenset({TopicPartition("u", 0), TopicPartition("t", 2), TopicPartition("t", 1)})
    ongoing = StoredTransaction(5, 3, 60000, ONGOING, partitions, 7, 6)
    times = "0000000000000007 0000000000000006"
    assert encode_value(ongoing, 0) == bytes.fromhex(
        f"0000 {head} 01 00000002 0001 74 00000002 00000001 00000002 0001 75 00000001 00000000 {times}"
    )
    prepared = replace(ongoing, state=PREPARE_COMMIT, previous_id=4, next_id=9, client_version=2)
    compact = "03 02 74 03 00000001 00000002 00 02 75 02 00000000 00"
    tags = "03 00 08 0000000000000004 01 08 0000000000000009 02 02 0002"
    assert encode_value(prepared, 2) == bytes.fromhex(f"0001 {head} 02 {compact} {times} {tags}")
    # What only tags can tell is never left out.
    assert encode_value(prepared, 0) == encode_value(prepared, 2)


def test_tags_that_are_not_known_are_stepped_over() -> None:
    stored = StoredTransaction(5, 3, 60000, ONGOING, updated_ms=7, started_ms=6, client_version=2)
    encoded = encode_value(stored, 2)
    assert encoded.endswith(bytes.fromhex("01 02 02 0002"))
    newer = encoded[:-5] + bytes.fromhex("03 02 02 0002 03 02 0009 04 02 0001")
    assert decode_value(newer) == stored


_GOOD = encode_value(StoredTransaction(5, 3, 60000, EMPTY, updated_ms=7), 2)
REFUSED = {
    "a newer version": (b"\x00\x02" + _GOOD[2:], "version 2"),
    "no version at all": (b"\xff\xff" + _GOOD[2:], "version -1"),
    "Dead, which is never stored": (_GOOD[:16] + b"\x06" + _GOOD[17:], "state 6"),
    "PrepareEpochFence, which is never stored": (_GOOD[:16] + b"\x07" + _GOOD[17:], "state 7"),
    "a negative epoch": (_GOOD[:10] + b"\xff\xff" + _GOOD[12:], "epoch -1"),
    "more than there should be": (_GOOD + b"\x00", "1 bytes behind"),
    "nothing": (b"", "a stored transaction"),
}


@pytest.mark.parametrize(("value", "words"), REFUSED.values(), ids=REFUSED)
def test_records_that_say_nothing_of_use_are_refused_in_words(value: bytes, words: str) -> None:
    machine = TransactionMachine()
    with pytest.raises(DecodeError, match=words):
        machine.apply(encode_key("t"), value)
    assert machine.find("t") is None


def test_keys_of_other_kinds_are_skipped() -> None:
    assert TransactionMachine().apply(bytes.fromhex("0001 0001 74"), _GOOD) is False


def test_a_tombstone_takes_everything() -> None:
    machine = TransactionMachine()
    stored = StoredTransaction(5, 3, 60000, ONGOING, frozenset({TopicPartition("t", 0)}))
    assert machine.apply(encode_key("t"), encode_value(stored, 2))
    assert machine.size_bytes > 0
    assert machine.subjects_bytes > 0
    assert machine.apply(encode_key("t"), None)
    assert machine.find("t") is None
    assert (machine.size_bytes, machine.subjects_bytes) == (0, 0)
