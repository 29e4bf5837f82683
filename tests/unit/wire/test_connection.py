"""The client's end of a connection: frames, correlation, and a stream that breaks."""

import pytest

from penstock.core import limits
from penstock.core.error_codes import ErrorCode
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.connection import ClientConnection, ConnectionUnusableError, Response
from penstock.wire.kafka.generated import api_versions, metadata, produce
from penstock.wire.kafka.headers import decode_request_header, encode_response_header
from penstock.wire.kafka.primitives import DecodeError


def framed(correlation_id: int, header_version: int, body: bytes) -> bytes:
    data = encode_response_header(correlation_id, header_version) + body
    return len(data).to_bytes(4, "big") + data


def metadata_frame(correlation_id: int, cluster_id: str) -> bytes:
    response = metadata.MetadataResponse(cluster_id=cluster_id)
    return framed(correlation_id, 1, metadata.encode_response(response, 12))


def ask(connection: ClientConnection) -> int:
    correlation_id, _ = connection.send(ApiKey.METADATA, 12, metadata.MetadataRequest(topics=None))
    return correlation_id


def test_a_request_frame_holds_size_header_and_body() -> None:
    connection = ClientConnection("me")
    request = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="orders")])
    correlation_id, frame = connection.send(ApiKey.METADATA, 12, request)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header, position = decode_request_header(frame, 4)
    assert (header.api_key, header.api_version, header.client_id) == (ApiKey.METADATA, 12, "me")
    assert header.correlation_id == correlation_id
    assert metadata.decode_request(frame, position, 12) == (request, len(frame))


def test_responses_come_out_whole_however_the_bytes_arrive() -> None:
    stream = metadata_frame(0, "a" * 200) + metadata_frame(1, "b")
    for step in (1, 3, 50, len(stream)):
        connection = ClientConnection("me")
        assert [ask(connection), ask(connection)] == [0, 1]
        responses = []
        for start in range(0, len(stream), step):
            responses += connection.receive(stream[start : start + step])
        assert [response.message().cluster_id for response in responses] == ["a" * 200, "b"]
        assert [response.request.correlation_id for response in responses] == [0, 1]
        assert connection.owed == []


def test_a_request_without_an_answer_leaves_nothing_owed() -> None:
    connection = ClientConnection("me")
    connection.send(ApiKey.PRODUCE, 9, produce.ProduceRequest(acks=0), answered=False)
    second = ask(connection)
    assert [request.correlation_id for request in connection.owed] == [second]
    (response,) = connection.receive(metadata_frame(second, "c"))
    assert response.message().cluster_id == "c"


def test_a_refused_api_versions_request_is_read_in_version_0() -> None:
    connection = ClientConnection("me")
    connection.send(ApiKey.API_VERSIONS, 4, api_versions.ApiVersionsRequest())
    body = api_versions.encode_response(
        api_versions.ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION), 0
    )
    (response,) = connection.receive(framed(0, 0, body))
    assert response.message().error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    "stream",
    [
        metadata_frame(7, "not the one expected"),
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x03abc",
        b"\x7f\xff\xff\xff",
        b"HTTP/1.1 400 Bad Request\r\n",
        b"\x00\x00\x00\x04\x00\x00\x00\x00",  # the header lacks its tagged fields
    ],
)
def test_a_stream_that_makes_no_sense_breaks_the_connection(stream: bytes) -> None:
    connection = ClientConnection("me")
    ask(connection)
    with pytest.raises(DecodeError):
        connection.receive(stream)
    assert not connection.usable
    assert len(connection.owed) == 1
    assert connection.receive(metadata_frame(0, "too late")) == []
    with pytest.raises(ConnectionUnusableError):
        ask(connection)


def test_good_responses_before_a_bad_one_are_not_lost() -> None:
    connection = ClientConnection("me")
    ask(connection)
    ask(connection)
    (response,) = connection.receive(metadata_frame(0, "good") + b"\xff\xff\xff\xff")
    assert response.message().cluster_id == "good"
    assert isinstance(connection.failure, DecodeError)
    assert [request.correlation_id for request in connection.owed] == [1]
    assert not connection.usable


def test_a_response_nobody_asked_for_breaks_the_connection() -> None:
    connection = ClientConnection("me")
    with pytest.raises(DecodeError):
        connection.receive(metadata_frame(0, "x"))


def test_a_response_over_the_limit_is_refused_before_it_is_gathered() -> None:
    connection = ClientConnection("me", response_bytes_max=1000)
    ask(connection)
    with pytest.raises(DecodeError):
        connection.receive((1001).to_bytes(4, "big"))


def test_responses_owed_are_bounded() -> None:
    connection = ClientConnection("me", responses_owed_max=2)
    ask(connection)
    ask(connection)
    with pytest.raises(ConnectionUnusableError):
        ask(connection)
    connection.receive(metadata_frame(0, "x"))
    assert ask(connection) == 2


def test_a_closed_connection_takes_nothing_more() -> None:
    connection = ClientConnection("me")
    ask(connection)
    connection.close()
    with pytest.raises(ConnectionUnusableError):
        ask(connection)
    assert len(connection.owed) == 1


def fill(connection: ClientConnection, stream: bytes, step: int) -> list[Response]:
    """Read into the connection's own buffer, `step` bytes at most at a time."""
    responses = []
    while stream:
        with connection.buffer() as room:
            count = min(step, len(room), len(stream))
            room[:count] = stream[:count]
        response = connection.received(count)
        responses += [] if response is None else [response]
        stream = stream[count:]
    return responses


@pytest.mark.parametrize("step", [1, 3, 50, 10_000])
def test_responses_are_read_straight_into_their_place(step: int) -> None:
    connection = ClientConnection("me")
    assert [ask(connection), ask(connection)] == [0, 1]
    first, second = fill(connection, metadata_frame(0, "a" * 200) + metadata_frame(1, "b"), step)
    assert [response.message().cluster_id for response in (first, second)] == ["a" * 200, "b"]
    assert first.body.readonly
    assert connection.owed == []


@pytest.mark.parametrize("stream", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", metadata_frame(7, "x")])
def test_nonsense_in_the_buffer_ends_the_connection(stream: bytes) -> None:
    connection = ClientConnection("me")
    ask(connection)
    with pytest.raises(DecodeError):
        fill(connection, stream, 100)
    assert (connection.usable, connection.failure is not None) == (False, True)
    assert connection.received(1) is None


def test_a_head_announces_the_body_that_follows_it() -> None:
    whole, in_parts = ClientConnection("me"), ClientConnection("me")
    body = b"body of a request"
    number, head = in_parts.send_head(ApiKey.METADATA, 12, len(body))
    assert (number, head + body) == whole.send_body(ApiKey.METADATA, 12, body)
    assert len(in_parts.owed) == 1


def test_a_large_buffer_is_used_again_when_nobody_looks_at_it_any_more() -> None:
    connection = ClientConnection("me")
    size = limits.RESPONSE_BUFFER_KEPT_BYTES_MIN

    def arrive(letter: bytes, length: int = size) -> memoryview:
        (response,) = fill(connection, framed(ask(connection), 1, letter * length), 1 << 20)
        return response.body

    first = arrive(b"a")
    place = first.obj
    second = arrive(b"b", size - 100)
    assert second.obj is not place, "the first answer is still looked at"
    assert first == b"a" * size
    del first
    third = arrive(b"c", size - 100)
    assert third.obj is place
    assert (second, third) == (b"b" * (size - 100), b"c" * (size - 100))
    del third
    assert arrive(b"d", 10).obj is not place, "far too large for a small answer"
