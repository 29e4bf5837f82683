"""Headers: which version goes with which message, and what is in them."""

import pytest

from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.index import APIS
from penstock.wire.kafka.headers import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
    request_header_version,
    response_header_version,
)
from penstock.wire.kafka.primitives import DecodeError, EncodeError


def header(api_key: int, api_version: int, client_id: str | None = "me") -> RequestHeader:
    return RequestHeader(api_key=api_key, api_version=api_version, correlation_id=77, client_id=client_id)


@pytest.mark.parametrize(
    ("api_key", "api_version", "request_version", "response_version"),
    [
        (ApiKey.METADATA, 8, 1, 0),
        (ApiKey.METADATA, 9, 2, 1),
        (ApiKey.SASL_HANDSHAKE, 1, 1, 0),
        (ApiKey.API_VERSIONS, 2, 1, 0),
        (ApiKey.API_VERSIONS, 3, 2, 0),
        (ApiKey.CONTROLLED_SHUTDOWN, 0, 0, 0),
        (ApiKey.CONTROLLED_SHUTDOWN, 1, 1, 0),
        (999, 3, 1, 0),
    ],
)
def test_header_version_follows_the_message(
    api_key: int, api_version: int, request_version: int, response_version: int
) -> None:
    assert request_header_version(api_key, api_version) == request_version
    assert response_header_version(api_key, api_version) == response_version


@pytest.mark.parametrize("client_id", ["me", "", None, "żółw"])
@pytest.mark.parametrize("api_version", [8, 9])
def test_request_header_survives_the_wire(api_version: int, client_id: str | None) -> None:
    sent = header(ApiKey.METADATA, api_version, client_id)
    data = encode_request_header(sent)
    assert decode_request_header(b"xyz" + data + b"body", 3) == (sent, 3 + len(data))


def test_client_id_keeps_its_old_form_in_flexible_headers() -> None:
    assert encode_request_header(header(3, 9)) == b"\0\x03\0\x09\0\0\0\x4d" + b"\0\x02me" + b"\0"


def test_header_without_a_client_id_field() -> None:
    data = encode_request_header(header(ApiKey.CONTROLLED_SHUTDOWN, 0))
    assert len(data) == 8
    assert decode_request_header(data)[0].client_id is None


def test_unknown_tagged_fields_are_skipped() -> None:
    data = encode_request_header(header(3, 9))[:-1] + b"\x01\x05\x03abc" + b"body"
    assert data[decode_request_header(data)[1] :] == b"body"
    data = b"\0\0\0\x4d" + b"\x02\x05\x00\x06\x01z" + b"body"
    assert decode_response_header(data, 0, 1) == (77, len(data) - 4)


@pytest.mark.parametrize("api_version", [8, 9])
def test_every_truncation_of_a_request_header_is_refused(api_version: int) -> None:
    data = encode_request_header(header(3, api_version))
    for end in range(len(data)):
        with pytest.raises(DecodeError):
            decode_request_header(data[:end])


@pytest.mark.parametrize("header_version", [0, 1])
def test_response_header_survives_the_wire(header_version: int) -> None:
    data = encode_response_header(-5, header_version)
    assert len(data) == 4 + header_version
    assert decode_response_header(data, 0, header_version) == (-5, len(data))
    with pytest.raises(DecodeError):
        decode_response_header(data[:-1], 0, header_version)


def test_numbers_out_of_range_are_refused() -> None:
    with pytest.raises(EncodeError):
        encode_request_header(header(1 << 15, 0))
    with pytest.raises(EncodeError):
        encode_request_header(header(3, 9, client_id="x" * 40_000))
    with pytest.raises(EncodeError):
        encode_response_header(1 << 31, 0)


def test_every_api_has_a_key_of_its_name() -> None:
    assert {key: row[0].upper() for key, row in APIS.items()} == {
        key.value: key.name for key in ApiKey if key.value in APIS
    }
    assert {key.value for key in ApiKey} - APIS.keys() == {4, 5, 6, 7}
