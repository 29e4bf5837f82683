"""The client's end of a Kafka connection, without the connection: bytes in, responses out.

    frame     int32 size, then that many bytes: a header (headers.py) and a body (generated/)

A broker answers in the order it was asked, so the responses owed are a queue: the header of each response
is read in the version that belongs to the request at its head, and a correlation id that is not the one
expected means the stream cannot be trusted any more. Once it has failed, or the peer is gone, the
connection takes nothing more; `owed` then names the requests whose fate is unknown.

Bytes come in by one of two ways, not by both on one connection: `receive` takes whatever arrived, in any
pieces, and copies it; `buffer` and `received` let the caller read from its socket straight into the place
where the response will stay, which spares a large Fetch two copies.
"""

from collections import deque
from collections.abc import Callable
from struct import Struct as Layout
from typing import Any

from penstock.core import limits
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import PenstockError
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.headers import (
    RequestHeader,
    decode_response_header,
    encode_request_header,
    response_header_version,
)
from penstock.wire.kafka.messages import request_module
from penstock.wire.kafka.primitives import Buffer, DecodeError

_INT16 = Layout(">h")
_INT32 = Layout(">i")
_CORRELATION_IDS = 1 << 31


class ConnectionUnusableError(PenstockError):
    """Nothing more can be sent: the stream broke, or too many responses are owed."""


class Request:
    """What is needed to read the response that a request is owed."""

    __slots__ = ("api_key", "api_version", "correlation_id")

    def __init__(self, api_key: int, api_version: int, correlation_id: int) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id

    def __repr__(self) -> str:
        return f"Request({self.api_key}, version {self.api_version}, id {self.correlation_id})"


class Response:
    """A response's bytes, and the request they answer."""

    __slots__ = ("body", "request")

    def __init__(self, request: Request, body: memoryview) -> None:
        self.request = request
        self.body = body

    def message(self) -> Any:
        """The decoded body; records in it are views of `body`, which owns its bytes."""
        version = self.request.api_version
        # A broker that does not speak the version asked for says so in version 0, which all can read.
        if self.request.api_key == ApiKey.API_VERSIONS and len(self.body) >= 2:
            (error_code,) = _INT16.unpack_from(self.body)
            if error_code == ErrorCode.UNSUPPORTED_VERSION:
                version = 0
        message, _ = request_module(self.request.api_key).decode_response(self.body, 0, version)
        return message


class _Incoming:
    """The frame that is being read: its size first, then the rest in a buffer of that size.

    Large buffers are used again once nobody has a view of them any more: fresh memory of 4 MB is filled with zeros and
    mapped page by page, which costs a reader of large fetches a third of its time.
    """

    __slots__ = ("_end", "_filled", "_frame", "_size", "_spare")

    def __init__(self) -> None:
        self._size = bytearray(_INT32.size)
        self._spare: deque[bytearray] = deque(maxlen=limits.RESPONSE_BUFFERS_KEPT)
        self._expect(self._size, _INT32.size)

    def _expect(self, frame: bytearray, end: int) -> None:
        self._frame = frame
        self._end = end
        self._filled = 0

    def room(self) -> memoryview:
        return memoryview(self._frame)[self._filled : self._end]

    def filled(self, count: int, checked_size: Callable[[Buffer, int], int]) -> memoryview | None:
        """The frame without its size, when it is whole."""
        self._filled += count
        if self._filled < self._end:
            return None
        if self._frame is self._size:
            size = checked_size(self._size, 0)
            self._expect(self._take(size), size)
            return None
        frame, end = self._frame, self._end
        if limits.RESPONSE_BUFFER_KEPT_BYTES_MIN <= len(frame) <= limits.RESPONSE_BUFFER_KEPT_BYTES_MAX:
            self._spare.append(frame)
        self._expect(self._size, _INT32.size)
        return memoryview(frame)[:end].toreadonly()

    def _take(self, size: int) -> bytearray:
        for index, frame in enumerate(self._spare):
            if size <= len(frame) <= 2 * size and _unused(frame):
                del self._spare[index]
                return frame
        return bytearray(size)


def _unused(frame: bytearray) -> bool:
    """A bytearray with views does not change its length: that is how it tells."""
    try:
        frame.append(frame.pop())
    except BufferError:
        return False
    return True


class ClientConnection:
    def __init__(
        self,
        client_id: str | None,
        *,
        response_bytes_max: int = limits.RESPONSE_BYTES_MAX,
        responses_owed_max: int = limits.RESPONSES_OWED_MAX,
    ) -> None:
        self._client_id = client_id
        self._response_bytes_max = response_bytes_max
        self._responses_owed_max = responses_owed_max
        self._next_correlation_id = 0
        self._owed: deque[Request] = deque()
        self._received = bytearray()
        self._incoming = _Incoming()
        self._usable = True
        self.failure: DecodeError | None = None  # what made the stream unreadable

    @property
    def owed(self) -> list[Request]:
        """Requests that wait for their response, oldest first."""
        return list(self._owed)

    @property
    def usable(self) -> bool:
        return self._usable

    def send(self, api_key: int, version: int, message: Any, *, answered: bool = True) -> tuple[int, bytes]:
        """The correlation id and the frame to write. `answered=False` where none will come (acks=0)."""
        body = request_module(api_key).encode_request(message, version)
        return self.send_body(api_key, version, body, answered=answered)

    def send_body(
        self, api_key: int, version: int, body: Buffer, *, answered: bool = True
    ) -> tuple[int, bytes]:
        """As `send`, with a body that is encoded already."""
        correlation_id, head = self.send_head(api_key, version, len(body), answered=answered)
        return correlation_id, head + body

    def send_head(
        self, api_key: int, version: int, body_bytes: int, *, answered: bool = True
    ) -> tuple[int, bytes]:
        """As `send`, for a body of that size which the caller writes behind the head, from where it lies."""
        if not self._usable:
            raise ConnectionUnusableError("the connection is broken or closed")
        if answered and len(self._owed) >= self._responses_owed_max:
            raise ConnectionUnusableError(f"{len(self._owed)} responses are owed: wait for some of them")
        correlation_id = self._next_correlation_id
        header = encode_request_header(
            RequestHeader(
                api_key=api_key, api_version=version, correlation_id=correlation_id, client_id=self._client_id
            )
        )
        self._next_correlation_id = (correlation_id + 1) % _CORRELATION_IDS
        if answered:
            self._owed.append(Request(api_key, version, correlation_id))
        return correlation_id, _INT32.pack(len(header) + body_bytes) + header

    def receive(self, data: Buffer) -> list[Response]:
        """Take what came from the peer; give the responses that are now whole.

        Where the stream turns bad behind some good responses, those are given and `failure` says the rest;
        with nothing to give it is raised.
        """
        if not self._usable:
            return []
        self._received += data
        responses = []
        position = 0
        try:
            while (end := self._frame_end(position)) is not None:
                responses.append(self._open(position + 4, end))
                position = end
        except DecodeError as error:
            self.failure = error
            self.close()
            if not responses:
                raise
            return responses
        del self._received[:position]
        return responses

    def buffer(self) -> memoryview:
        """Where the next bytes from the peer belong; never more than one response's, never empty."""
        return self._incoming.room()

    def received(self, count: int) -> Response | None:
        """So many bytes are in `buffer` now; the response, if they were the last of one."""
        if not self._usable:
            return None
        try:
            frame = self._incoming.filled(count, self._checked_size)
            return None if frame is None else self._response(frame)
        except DecodeError as error:
            self.failure = error
            self.close()
            raise

    def close(self) -> None:
        """The peer is gone, or we are: a response that has not come will not come."""
        self._usable = False
        self._received.clear()

    def _frame_end(self, position: int) -> int | None:
        if len(self._received) - position < 4:
            return None
        end = position + 4 + self._checked_size(self._received, position)
        return end if end <= len(self._received) else None

    def _checked_size(self, buffer: Buffer, position: int) -> int:
        size: int = _INT32.unpack_from(buffer, position)[0]
        if not 4 <= size <= self._response_bytes_max:
            raise DecodeError(f"a response of {size} bytes")
        return size

    def _open(self, start: int, end: int) -> Response:
        with memoryview(self._received) as view, view[start:end] as part:
            return self._response(memoryview(bytes(part)))

    def _response(self, frame: memoryview) -> Response:
        if not self._owed:
            raise DecodeError("a response that nobody asked for")
        request = self._owed[0]
        header_version = response_header_version(request.api_key, request.api_version)
        correlation_id, position = decode_response_header(frame, 0, header_version)
        if correlation_id != request.correlation_id:
            raise DecodeError(f"a response to {correlation_id} where {request!r} is next")
        self._owed.popleft()
        return Response(request, frame[position:])
