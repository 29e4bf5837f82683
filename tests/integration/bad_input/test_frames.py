"""Bytes that are no request, or not quite: closed where Apache Kafka closes, answered where it answers."""

import socket
from random import Random
from struct import pack, pack_into

import pytest
from tests.integration.bad_input.conftest import MEMORY_SLACK_BYTES, Victim
from tests.integration.raw import (
    RawClient,
    anonymous_bytes,
    end_offset,
    make_batch,
    open_descriptors,
    outcome,
    produce_request,
    wait_until,
)
from tests.property.kafka_values import Case

from penstock.core.error_codes import ErrorCode
from penstock.core.limits import PLAIN_REQUEST_BYTES_MAX
from penstock.frontends.kafka.apis import load_handlers
from penstock.frontends.kafka.registry import REGISTRY, TRANSACTION_APIS
from penstock.testing import BrokerProcess
from penstock.wire.kafka import fetch as fetch_codec
from penstock.wire.kafka import produce as produce_codec
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import api_versions, create_topics, metadata
from penstock.wire.kafka.generated.index import APIS

REQUEST_BYTES_MAX = 104857600
NO_TOPICS = b"\0\0\0\0"


def framed(body: bytes) -> bytes:
    return pack(">i", len(body)) + body


def header(api_key: int, version: int, client_id: bytes = b"\x00\x03raw") -> bytes:
    return pack(">hhi", api_key, version, 7) + client_id


def served() -> list[tuple[int, int]]:
    """Every (API, version) that this broker answers clients."""
    load_handlers()
    for_clients = [api for api in REGISTRY.values() if not api.internal and api.key not in TRANSACTION_APIS]
    found = [(api.key, v) for api in for_clients for v in range(api.min_version, api.max_version + 1)]
    hot = {ApiKey.PRODUCE: produce_codec, ApiKey.FETCH: fetch_codec}
    found += [(k, v) for k, codec in hot.items() for v in range(codec.MIN_VERSION, codec.MAX_VERSION + 1)]
    return sorted(set(found))


CLOSED = {
    "garbage": Random(1).randbytes(5000),
    "text": b"\x00\x00\x00\x20" + b"hello, is this where I get mail?",
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": bytes.fromhex("16030100c8010000c40303") + bytes(190),
    "empty frame": framed(b""),
    "frame of 3": framed(b"abc"),
    "header cut": framed(header(3, 1)[:9]),
    "negative length": b"\xff\xff\xff\xff" + bytes(100),
    "lowest length": b"\x80\x00\x00\x00" + bytes(100),
    "one byte too large": pack(">i", REQUEST_BYTES_MAX + 1) + bytes(100),
    "largest length": pack(">i", 0x7FFFFFFF) + bytes(100),
    "client id beyond the frame": framed(header(3, 1, b"\x7f\xffraw") + NO_TOPICS),
    "header tags cut": framed(header(3, 12)),
    "body cut": framed(header(3, 1) + b"\0\0"),
    "count beyond the bytes": framed(header(3, 1) + pack(">i", 0x7FFFFFFF)),
    "negative string length": framed(header(3, 1) + pack(">ih", 1, -1)),
    "varint without end": framed(header(3, 12) + b"\0" + b"\x80" * 6),
    "five bytes that ask for 34 GB": framed(header(3, 12) + b"\0" + b"\xff\xff\xff\xff\x0f"),
    "unknown API": framed(header(999, 0)),
    "negative API": framed(header(-1, 0)),
    "API of controllers": framed(header(52, 0)),
    "version too new": framed(header(3, 99)),
    "version negative": framed(header(3, -1)),
    "Produce too old": framed(header(0, 2) + bytes(20)),
    "Fetch too old": framed(header(1, 3) + bytes(30)),
    "ListOffsets too old": framed(header(2, 0) + bytes(30)),
    "null client software name": framed(header(18, 3) + b"\0" + b"\0\x02a\0"),
}


@pytest.mark.parametrize("data", CLOSED.values(), ids=CLOSED.keys())
def test_what_is_no_request_closes_the_connection_unanswered(victim: Victim, data: bytes) -> None:
    assert outcome(victim.port, data) == "closed"


ANSWERED = {
    "null client id": framed(header(3, 1, b"\xff\xff") + NO_TOPICS),
    "client id length of -2": framed(header(3, 1, b"\xff\xfe") + NO_TOPICS),
    "client id that is no text": framed(header(3, 1, b"\x00\x02\xff\xfe") + NO_TOPICS),
    "bytes behind the request": framed(header(3, 1) + NO_TOPICS + b"and more"),
    "array count below null": framed(header(3, 1) + pack(">i", -2)),
    "boolean of 2": framed(header(3, 4) + NO_TOPICS + b"\x02"),
    "unknown tag in the header": framed(header(3, 12) + b"\x01\x63\x02ab" + b"\x01\0\0\0"),
    "unknown tag in the body": framed(header(3, 12) + b"\0" + b"\x01\0\0" + b"\x01\x63\x02ab"),
    "tags repeated, falling": framed(header(3, 12) + b"\0" + b"\x01\0\0" + b"\x03\x63\0\x62\0\x62\x01a"),
    "topic that is no text": framed(header(3, 1) + pack(">ih", 1, 2) + b"\xff\xfe"),
}


@pytest.mark.parametrize("data", ANSWERED.values(), ids=ANSWERED.keys())
def test_what_is_odd_but_readable_is_answered(victim: Victim, data: bytes) -> None:
    assert outcome(victim.port, data) == "answered"


def test_text_that_is_no_utf8_is_read_with_replacement_characters(victim: Victim) -> None:
    with RawClient(victim.port) as client:
        client.send_bytes(client.body_frame(ApiKey.METADATA, 1, pack(">ih", 1, 2) + b"\xff\xfe"))
        found = client.receive().topics
    assert [(topic.name, topic.error_code) for topic in found] == [
        ("\ufffd\ufffd", ErrorCode.INVALID_TOPIC_EXCEPTION)
    ]


@pytest.mark.parametrize("name", [b"\xff\xfe", b"a\xc3"])
def test_produce_to_a_name_that_is_no_utf8_names_it_with_replacement_characters(
    victim: Victim, name: bytes
) -> None:
    request = produce_request("??", [(0, make_batch([b"x"]))])
    with RawClient(victim.port) as client:
        client.send_bytes(client.frame(ApiKey.PRODUCE, 9, request).replace(b"??", name))
        answer = client.receive().responses[0]
    assert answer.name == name.decode(errors="replace")
    assert answer.partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", [99, 5, -1])
def test_api_versions_too_new_names_the_versions_to_try(victim: Victim, version: int) -> None:
    with RawClient(victim.port) as client:
        client.send_bytes(framed(header(18, version) + b"\0\x02a\x02b\0"))
        size = int.from_bytes(client.socket.recv(4), "big")
        answer, _ = api_versions.decode_response(client.socket.recv(size, socket.MSG_WAITALL), 4, 0)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [(api.api_key, api.min_version, api.max_version) for api in answer.api_keys] == [(18, 0, 4)]
        again = api_versions.ApiVersionsRequest(client_software_name="a", client_software_version="b")
        assert client.call(ApiKey.API_VERSIONS, 4, again).error_code == ErrorCode.NONE


@pytest.mark.parametrize("name", ["", "-", "a b", "a-", "ż"])
def test_a_malformed_software_name_is_refused_and_the_connection_lives_on(victim: Victim, name: str) -> None:
    with RawClient(victim.port) as client:
        asked = api_versions.ApiVersionsRequest(client_software_name=name, client_software_version="1.0")
        answer = client.call(ApiKey.API_VERSIONS, 4, asked)
        assert (answer.error_code, answer.api_keys) == (ErrorCode.INVALID_REQUEST, [])
        assert client.call(ApiKey.METADATA, 1, metadata.MetadataRequest(topics=[])).topics == []


def test_unknown_tags_inside_a_request_are_skipped_and_it_takes_effect(victim: Victim) -> None:
    """In every struct of the request: the topic, its config, the request itself."""
    tags = b"\x02\x63\x03abc\x7f\x00"
    body = (
        b"\x02\x07tagged" + pack(">ih", 1, 1) + b"\x01"  # one topic, no manual assignment
        b"\x02\x0dretention.ms\x06-1000" + tags + tags  # one config, its tags, the topic's
        + pack(">i?", 30_000, True) + tags
    )  # fmt: skip
    with RawClient(victim.port) as client:
        client.send_bytes(client.body_frame(ApiKey.CREATE_TOPICS, 7, body))
        answer: create_topics.CreatableTopicResult = client.receive().topics[0]
    assert (answer.name, answer.error_code) == ("tagged", ErrorCode.INVALID_CONFIG)
    assert answer.error_message is not None
    assert "retention.ms" in answer.error_message


@pytest.mark.parametrize(("api_key", "version"), served(), ids=lambda v: str(int(v)))
def test_counts_beyond_the_bytes_in_every_request(api_key: int, version: int, running: BrokerProcess) -> None:
    """A huge count or length at every place of a request, and nothing behind it."""
    before = anonymous_bytes(running.pid)
    case = Case(APIS[api_key][0], "request", version)
    body = case.encode(case.sample(Random(str(case))))
    huge = b"\xff\xff\xff\xff\x07" if version >= case.module.FLEXIBLE_SINCE else b"\x7f\xff\xff\xff"
    closed = 0
    for position in range(len(body)):
        with RawClient(running.port) as client:
            client.send_bytes(client.body_frame(api_key, version, body[:position] + huge))
            # Where it falls on a number that may be as large as that and is the last one, it is answered; also
            # where its end says that the last string is null.
            closed += client.is_closed()
    assert closed >= len(body) - 7
    assert anonymous_bytes(running.pid) - before < MEMORY_SLACK_BYTES


@pytest.mark.parametrize("bytes_sent", [1, 3, 4, 11, 40])
def test_a_truncated_frame_stores_nothing_and_holds_nobody_up(victim: Victim, bytes_sent: int) -> None:
    with RawClient(victim.port) as silent, RawClient(victim.port) as leaving:
        whole = silent.frame(ApiKey.PRODUCE, 9, produce_request(victim.topic, [(0, make_batch([b"x"]))]))
        for client in (silent, leaving):
            client.send_bytes(whole[:bytes_sent])
        leaving.socket.shutdown(socket.SHUT_WR)
        assert leaving.is_closed()
        with RawClient(victim.port) as other:
            assert end_offset(other, victim.topic) == 0
        silent.send_bytes(whole[bytes_sent:-1])  # all but one byte, and then nothing more
        silent.socket.shutdown(socket.SHUT_WR)
        assert silent.is_closed()


def test_the_largest_frame_allowed_may_be_announced(victim: Victim) -> None:
    """104857600 is not too large: the broker waits for the bytes, without putting their room aside."""
    with RawClient(victim.port) as client:
        client.send_bytes(pack(">i", REQUEST_BYTES_MAX) + header(3, 1) + bytes(1000))
        client.socket.setblocking(False)
        victim.neighbour.wait_for_rounds(5)
        with pytest.raises(BlockingIOError):
            client.socket.recv(1)


@pytest.mark.parametrize("api_key", [ApiKey.METADATA, ApiKey.FETCH, ApiKey.DELETE_TOPICS])
def test_millions_of_names_in_one_request_are_not_even_counted(victim: Victim, api_key: int) -> None:
    """Every byte is honest, and each costs a hundred when taken apart: only Produce may be that large."""
    count = PLAIN_REQUEST_BYTES_MAX // 2
    body = (bytes(25) if api_key == ApiKey.FETCH else b"") + pack(">i", count) + bytes(2 * count)
    assert (
        outcome(victim.port, framed(header(api_key, 11 if api_key == ApiKey.FETCH else 3) + body)) == "closed"
    )


def test_a_wrong_length_prefix_in_the_middle_of_a_stream_answers_what_came_before(victim: Victim) -> None:
    with RawClient(victim.port) as client:
        good = client.frame(ApiKey.METADATA, 1, metadata.MetadataRequest(topics=[]))
        bad = bytearray(client.frame(ApiKey.METADATA, 1, metadata.MetadataRequest(topics=[])))
        pack_into(">i", bad, 0, -5)
        client.send_bytes(good + bytes(bad))
        assert client.receive().topics == []
        assert client.is_closed()


def test_connections_given_up_leave_nothing_open(victim: Victim) -> None:
    before = open_descriptors(victim.process.pid)
    for data in CLOSED.values():
        outcome(victim.port, data)
    wait_until(lambda: open_descriptors(victim.process.pid) <= before, "descriptors are closed")
