"""The parts of the SDK that need no broker."""

import subprocess
import sys
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.client.scripted_message import Stored

from penstock.client import tags
from penstock.client.console.row import ConsoleRow
from penstock.client.consuming.starting import checked_start
from penstock.client.errors import ClientError, kafka_errors
from penstock.client.message import Message
from penstock.client.profiles import consumer_settings, producer_settings
from penstock.client.retry import headers as retry_headers
from penstock.client.retry.policy import BadBackoffError, Retry, parse_backoff
from penstock.client.serializers import (
    SerializationError,
    decode_int_key,
    deserializer_for,
    encode_key,
    serializer_for,
)
from penstock.records.partitioner import murmur2, partition_for

words = st.text(min_size=1).filter(lambda it: "," not in it and it == it.strip() and max(it) < "\ud800")
names = words.filter(lambda it: "=" not in it)
values = st.text().filter(lambda it: "," not in it and it == it.strip() and all(c < "\ud800" for c in it))


@given(st.lists(names), st.dictionaries(names, values))
def test_tags_and_labels_come_back_as_they_were(given_tags: list[str], labels: dict[str, str]) -> None:
    assert tags.decode([tags.encode(given_tags, labels).encode()]) == (tuple(given_tags), labels)


@given(st.lists(st.binary()))
def test_any_tags_header_can_be_read(headers: list[bytes]) -> None:
    found, labels = tags.decode(headers)
    assert all(found)
    assert all(labels)


def test_tags_of_several_headers_count_together() -> None:
    assert tags.decode([b"a, b", None, b"x=1=2"]) == (("a", "b"), {"x": "1=2"})


@pytest.mark.parametrize(
    ("given_tags", "labels", "said"),
    [
        (["a,b"], {}, "holds a comma"),
        ([""], {}, "is empty"),
        ([" a"], {}, "ends in spaces"),
        (["a=b"], {}, "labels="),
        ("checkout", {}, "tags=['checkout']"),
        ([1], {}, "not text"),
        ([], {"a=b": "c"}, "only its value may"),
        ([], {"a": "b,c"}, "holds a comma"),
        ([], {"a": 1}, "labels are text"),
    ],
)
def test_tags_that_the_header_cannot_carry_are_refused(
    given_tags: list[str], labels: dict[str, str], said: str
) -> None:
    with pytest.raises(tags.BadTagError, match=said.replace("[", r"\[")):
        tags.encode(given_tags, labels)


@pytest.mark.parametrize(
    ("key", "hashed"),
    # From the tests of the Java client (UtilsTest.testMurmur2).
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_keys_hash_as_in_java(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed & 0xFFFFFFFF
    assert partition_for(key, 7) == (hashed & 0x7FFFFFFF) % 7


@given(st.integers(-(2**63), 2**63 - 1))
def test_whole_number_keys_are_what_java_writes(number: int) -> None:
    encoded = encode_key(number)
    assert encoded is not None
    assert len(encoded) == 8
    assert decode_int_key(encoded) == number


def test_keys() -> None:
    assert encode_key("käse") == "käse".encode()
    assert encode_key(b"\xff") == b"\xff"
    assert encode_key(None) is None
    assert encode_key(1) == b"\0\0\0\0\0\0\0\x01"
    for bad in (True, 1.5, ("a",), 2**63, "half a pair: \ud800"):
        with pytest.raises(SerializationError):
            encode_key(bad)  # type: ignore[arg-type]


def test_values_become_bytes() -> None:
    auto = serializer_for("auto")
    assert auto(b"x") == b"x"
    assert auto("ä") == "ä".encode()
    assert auto({"a": [1, None]}) == b'{"a":[1,null]}'
    assert auto(bytearray(b"x")) == b"x"
    assert serializer_for(lambda it: repr(it).encode())(3) == b"3"


@pytest.mark.parametrize(
    ("serializer", "value", "said"),
    [
        ("auto", object(), "object cannot be sent: JSON cannot express it"),
        ("json", float("nan"), "float cannot be sent: JSON cannot express it"),
        ("str", b"x", "serializer='str' takes text"),
        ("str", "\ud800", "UTF-8 cannot express it"),
        ("auto", "\ud800", "UTF-8 cannot express it"),
        ("json", {"a": "\ud800"}, "JSON cannot express it"),
        ("bytes", "x", "serializer='bytes' takes bytes"),
        (lambda _: "text", 1, "gave str, not bytes"),
        (lambda _: 1 / 0, 1, "the serializer raised ZeroDivisionError"),
    ],
)
def test_values_that_cannot_be_sent_say_why(serializer: object, value: object, said: str) -> None:
    with pytest.raises(SerializationError, match=said) as caught:
        serializer_for(serializer)(value)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_unknown_choices_are_named() -> None:
    for call in (
        lambda: serializer_for("xml"),  # type: ignore[arg-type]
        lambda: deserializer_for("xml"),  # type: ignore[arg-type]
        lambda: producer_settings("exactly-once", "latency", None),  # type: ignore[arg-type]
        lambda: producer_settings("at-least-once", "fast", None),  # type: ignore[arg-type]
        lambda: consumer_settings("fast", None),  # type: ignore[arg-type]
        lambda: checked_start("yesterday"),
        lambda: Retry(attempts=0),
    ):
        with pytest.raises(ClientError):
            call()
    checked_start(datetime.now(UTC))


def test_delivery_and_profile_choose_settings_and_config_wins() -> None:
    assert producer_settings("at-most-once", "latency", None)["acks"] == "0"
    least = producer_settings("at-least-once", "throughput", {"linger.ms": 7})
    assert (least["acks"], least["enable.idempotence"], least["linger.ms"]) == ("all", True, 7)
    assert producer_settings("at-least-once", "latency", {"acks": 1})["enable.idempotence"] is False
    assert producer_settings("at-least-once", "latency", None)["partitioner"] == "murmur2_random"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1s→5m", (1, 300)),
        ("1s..5m", (1, 300)),
        ("100ms -> 2s", (0.1, 2)),
        ("30s", (30, 30)),
        ("1.5h..1d", (5400, 86400)),
    ],
)
def test_backoff_is_read(text: str, seconds: tuple[float, float]) -> None:
    assert parse_backoff(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "1s→", "5m→1s", "1s-5m", "-1s", "1s→5m→1h", "soon"])
def test_backoff_that_cannot_be_read_says_what_to_write(text: str) -> None:
    with pytest.raises(BadBackoffError, match="write"):
        parse_backoff(text)


@given(st.integers(1, 10**6), st.integers(0, 10**9), st.integers(1, 300))
def test_waits_grow_from_the_first_to_the_longest(first_ms: int, more_ms: int, failures: int) -> None:
    policy = Retry(attempts=failures + 1, backoff=f"{first_ms}ms..{first_ms + more_ms}ms")
    waits = [policy.wait_seconds(count) for count in range(1, failures + 1)]
    assert waits == sorted(waits)
    assert waits[0] == pytest.approx(first_ms / 1000)
    assert waits[-1] <= (first_ms + more_ms) / 1000 + 1e-9
    # One partition range per wait: equal steps wait equally long, so messages in one become due in order.
    for count in range(1, failures + 1):
        step = policy.step(count)
        assert 0 <= step < policy.steps
        assert policy.wait_seconds(step + 1) == policy.wait_seconds(count)


def test_a_message_keeps_its_history() -> None:
    headers: list[tuple[str, bytes | None]] = [("tags", b"a"), ("penstock-id", b"x-1")]
    for attempt in range(1, 31):
        earlier = (retry_headers.failures(headers), retry_headers.history(headers))
        due_ms = 5000 if attempt == 1 else None
        first = retry_headers.First("orders", 3, 4711, timestamp=99)
        own = retry_headers.without_ours(headers)
        made = retry_headers.with_failure(own, first, f"Boom:\n {attempt}", attempt, due_ms, earlier)
        assert retry_headers.due_ms(_stored(made)) == due_ms
        headers = _stored(made)
        assert retry_headers.failures(headers) == attempt
        assert retry_headers.error(headers) == f"Boom: {attempt}"
        assert retry_headers.origin(headers) == ("orders", 3, 4711)
        assert retry_headers.timestamp(headers) == 99
    told = retry_headers.history(headers)
    assert told[-1] == {"at": 30, "error": "Boom: 30"}
    assert len(told) == 20
    assert retry_headers.due_ms(headers) is None
    assert retry_headers.without_ours(headers) == [("tags", b"a"), ("penstock-id", b"x-1")]


def _stored(headers: list[tuple[str, str | bytes | None]]) -> list[tuple[str, bytes | None]]:
    return [(name, value.encode() if isinstance(value, str) else value) for name, value in headers]


@given(st.lists(st.tuples(st.sampled_from(sorted(retry_headers.OURS)), st.binary() | st.none())))
def test_headers_of_others_never_break_a_consumer(headers: list[tuple[str, bytes | None]]) -> None:
    assert retry_headers.failures(headers) >= 0
    retry_headers.origin(headers)
    assert isinstance(retry_headers.history(headers), list)
    assert isinstance(retry_headers.error(headers), str)
    retry_headers.due_ms(headers)


def test_importing_penstock_loads_no_client_library() -> None:
    code = "import sys, penstock; assert 'confluent_kafka' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_interruption_that_the_binding_lost_is_one_again() -> None:
    """What `poll` raises now and then when it is interrupted."""
    lost = "<method 'poll' of 'cimpl.Consumer' objects> returned NULL without setting an exception"
    with pytest.raises(KeyboardInterrupt), kafka_errors("127.0.0.1:1", "topic"):
        raise SystemError(lost)
    with pytest.raises(SystemError, match="another"), kafka_errors("127.0.0.1:1", "topic"):
        raise SystemError("another one")


def test_a_message_whose_headers_are_not_text_can_be_read() -> None:
    stored = Stored(("t", 0), 7, b"v", b"k", ((b"\xff", b"x"),))  # type: ignore[arg-type]
    assert Message(stored, None).headers == ()  # type: ignore[arg-type]
    assert ConsoleRow.of(stored)[:1] == ("t",)  # type: ignore[arg-type]
