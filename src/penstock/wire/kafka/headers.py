"""Request and response headers.

    request   int16 api key, int16 api version, int32 correlation id        version 0
              + nullable string client id (int16 length, also in version 2)  version 1
              + tagged fields                                                version 2
    response  int32 correlation id                                           version 0
              + tagged fields                                                version 1

Flexible message versions go with request header 2 and response header 1, all others with 1 and 0. Two
exceptions: the ApiVersions response always has header 0, because a client that does not know yet which
versions the broker speaks must be able to read it; ControlledShutdown version 0 had request header 0, the
only one without a client id.
"""

from struct import Struct as Layout

from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.index import APIS
from penstock.wire.kafka.primitives import (
    MALFORMED,
    UNENCODABLE,
    Buffer,
    DecodeError,
    EncodeError,
    Struct,
    read_nullable_string,
    skip_tags,
    write_nullable_string,
)

_REQUEST = Layout(">hhi")
_CORRELATION_ID = Layout(">i")
_NO_TAGS = b"\x00"


class RequestHeader(Struct):
    __slots__ = ("api_key", "api_version", "client_id", "correlation_id")

    def __init__(
        self, *, api_key: int, api_version: int, correlation_id: int, client_id: str | None = None
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id


def is_flexible(api_key: int, api_version: int) -> bool:
    """Whether this version has tagged fields; False for an API nobody knows."""
    row = APIS.get(api_key)
    return row is not None and api_version >= row[3]


def request_header_version(api_key: int, api_version: int) -> int:
    if is_flexible(api_key, api_version):
        return 2
    return 0 if api_key == ApiKey.CONTROLLED_SHUTDOWN and api_version == 0 else 1


def response_header_version(api_key: int, api_version: int) -> int:
    if api_key == ApiKey.API_VERSIONS:
        return 0
    return 1 if is_flexible(api_key, api_version) else 0


def decode_request_header(buffer: Buffer, position: int = 0) -> tuple[RequestHeader, int]:
    """The header at `position` and where the body begins.

    An API or version nobody knows is read as far as all headers agree; the caller answers or refuses it.
    """
    try:
        api_key, api_version, correlation_id = _REQUEST.unpack_from(buffer, position)
        position += 8
        client_id = None
        version = request_header_version(api_key, api_version)
        if version >= 1:
            client_id, position = read_nullable_string(buffer, position)
        if version >= 2:
            position = skip_tags(buffer, position)
    except MALFORMED as error:
        raise DecodeError(f"request header: {error}") from error
    header = RequestHeader(
        api_key=api_key, api_version=api_version, correlation_id=correlation_id, client_id=client_id
    )
    return header, position


def encode_request_header(header: RequestHeader) -> bytes:
    version = request_header_version(header.api_key, header.api_version)
    try:
        out = bytearray(_REQUEST.pack(header.api_key, header.api_version, header.correlation_id))
        if version >= 1:
            write_nullable_string(out, header.client_id)
    except UNENCODABLE as error:
        raise EncodeError(f"request header: {error}") from error
    if version >= 2:
        out += _NO_TAGS
    return bytes(out)


def decode_response_header(buffer: Buffer, position: int, header_version: int) -> tuple[int, int]:
    """The correlation id and where the body begins."""
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(buffer, position)
        position += 4
        if header_version >= 1:
            position = skip_tags(buffer, position)
    except MALFORMED as error:
        raise DecodeError(f"response header: {error}") from error
    return correlation_id, position


def encode_response_header(correlation_id: int, header_version: int) -> bytes:
    try:
        header = _CORRELATION_ID.pack(correlation_id)
    except UNENCODABLE as error:
        raise EncodeError(f"response header: {error}") from error
    return header + _NO_TAGS if header_version >= 1 else header
