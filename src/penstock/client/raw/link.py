"""One connection to one broker: a socket, the sans-I/O connection on it, and the versions both sides know.

Requests are sent as they come and answered in that order; whoever sent one holds its ticket and asks for the answer
by it, so a fetch sent ahead does not stand in the way of other requests. While a large request is written, answers
are read: a broker that waits for us to read would otherwise never read what we write.
"""

import select
import socket
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

from penstock import __version__
from penstock.client.raw.errors import BrokerError, ConnectionLostError, UnsupportedError
from penstock.client.raw.options import RawOptions
from penstock.core import limits
from penstock.core.error_codes import ErrorCode
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.connection import ClientConnection, Response
from penstock.wire.kafka.generated.api_versions import ApiVersionsRequest
from penstock.wire.kafka.messages import request_module, version_range
from penstock.wire.kafka.primitives import Buffer, DecodeError

Address = tuple[str, int]
_SOFTWARE = ApiVersionsRequest(client_software_name="penstock", client_software_version=__version__)
# What a fetch's answer may have beyond the bytes asked for, where a first batch is not larger.
_ANSWER_MARGIN_BYTES: Final = 1024 * 1024
# The kernel takes 1024 in one call.
_PARTS_AT_ONCE: Final = 512


class Link:
    def __init__(self, address: Address, options: RawOptions, timeout_s: float | None = None) -> None:
        """Connected, with versions agreed on; ConnectionLostError otherwise."""
        self.address = address
        self._request_timeout_s = options.request_timeout_ms / 1000
        patience_s = options.connect_timeout_ms / 1000
        patience_s = patience_s if timeout_s is None else min(patience_s, timeout_s)
        try:
            self._socket = socket.create_connection(address, max(patience_s, 0.001))
        except OSError as error:
            raise ConnectionLostError(f"cannot connect to {self}: {_words(error)}") from error
        self._set_up(options)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._connection = ClientConnection(
            options.client_id,
            response_bytes_max=max(limits.RESPONSE_BYTES_MAX, options.fetch_bytes + _ANSWER_MARGIN_BYTES),
        )
        self._arrived: dict[int, Response] = {}
        self._forgotten: set[int] = set()
        self._lost: ConnectionLostError | None = None
        self._versions: dict[int, tuple[int, int]] = {}
        try:
            self._versions = self._negotiate()
        except BaseException:
            self.close()
            raise

    def __str__(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"

    def _set_up(self, options: RawOptions) -> None:
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, size in (
            (socket.SO_RCVBUF, options.receive_buffer_bytes),
            (socket.SO_SNDBUF, options.send_buffer_bytes),
        ):
            if size >= 0:
                self._socket.setsockopt(socket.SOL_SOCKET, option, size)

    def _negotiate(self) -> dict[int, tuple[int, int]]:
        version = version_range(ApiKey.API_VERSIONS)[1]
        answer = self.response(self.send(ApiKey.API_VERSIONS, version, _SOFTWARE))
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            # An older broker: it says which versions of this one request it knows, and all know the first.
            known = [row.max_version for row in answer.api_keys if row.api_key == ApiKey.API_VERSIONS]
            version = min(version, *known) if known else 0
            answer = self.response(self.send(ApiKey.API_VERSIONS, version, _SOFTWARE))
        if answer.error_code:
            raise BrokerError(answer.error_code, str(self))
        return {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}

    # -- versions -----------------------------------------------------------------------------------------------

    def serves(self, api_key: ApiKey) -> bool:
        return api_key in self._versions

    def version(self, api_key: ApiKey, *, at_least: int = 0, at_most: int = 0x7FFF) -> int:
        """The highest that both sides know, within what the caller can use."""
        lowest, highest = version_range(api_key)
        broker_lowest, broker_highest = self._versions.get(api_key, (1, 0))
        version = min(highest, broker_highest, at_most)
        if version < max(lowest, broker_lowest, at_least):
            raise UnsupportedError(
                f"the broker at {self} knows {api_key.name} in versions {broker_lowest} to {broker_highest}, "
                f"{max(lowest, at_least)} is needed: use a newer broker"
            )
        return version

    # -- requests -----------------------------------------------------------------------------------------------

    @property
    def usable(self) -> bool:
        return self._lost is None

    def send(self, api_key: ApiKey, version: int, message: Any) -> int:
        """The ticket for the answer."""
        body = request_module(api_key).encode_request(message, version)
        return self.send_parts(api_key, version, (body,))

    def send_parts(
        self, api_key: ApiKey, version: int, parts: Sequence[Buffer], *, answered: bool = True
    ) -> int:
        """The same for a body in pieces, which are sent from where they lie."""
        self._check()
        size_bytes = sum(len(part) for part in parts)
        ticket, head = self._connection.send_head(api_key, version, size_bytes, answered=answered)
        self._write([memoryview(head), *(memoryview(part) for part in parts)])
        return ticket

    def call(self, api_key: ApiKey, version: int, message: Any) -> Any:
        return self.response(self.send(api_key, version, message))

    def response(self, ticket: int, timeout_s: float | None = None) -> Any:
        """Waits for the answer; when it does not come in time the connection is of no more use."""
        patience_s = self._request_timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + patience_s
        while ticket not in self._arrived:
            self._check()
            if not self._read():
                left_ms = max(0.0, deadline - time.monotonic()) * 1000
                if not self._poll.poll(left_ms):
                    raise self._lose(f"no answer in {patience_s:.1f} s")
        return self._decoded(self._arrived.pop(ticket))

    def take(self, ticket: int) -> Any | None:
        """The answer if it is here already; ConnectionLostError if it will never come."""
        while ticket not in self._arrived:
            self._check()
            if not self._read():
                return None
        return self._decoded(self._arrived.pop(ticket))

    def _decoded(self, response: Response) -> Any:
        try:
            return response.message()
        except DecodeError as error:
            raise self._lose(f"it sent nonsense: {error}") from error

    def forget(self, ticket: int) -> None:
        """Nobody wants this answer any more."""
        if self._arrived.pop(ticket, None) is None and self.usable:
            self._forgotten.add(ticket)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        if self._lost is None:
            self._lose("closed")

    def lose(self, why: str) -> ConnectionLostError:
        """Give the connection up: its requests are answered with an error."""
        return self._lose(why)

    # -- bytes --------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._lost is not None:
            raise ConnectionLostError(str(self._lost))

    def _lose(self, why: str) -> ConnectionLostError:
        self._lost = self._lost or ConnectionLostError(f"lost the connection to {self}: {why}")
        self._connection.close()
        self._forgotten.clear()
        self._socket.close()
        return self._lost

    def _read(self) -> bool:
        """Take in what is there, up to one response; False when there is nothing yet."""
        try:
            count = self._socket.recv_into(self._connection.buffer())
            if not count:
                raise self._lose("the broker closed it")
            response = self._connection.received(count)
        except BlockingIOError:
            return False
        except OSError as error:
            raise self._lose(_words(error)) from error
        except DecodeError as error:
            raise self._lose(f"it sent nonsense: {error}") from error
        except BaseException:
            # Interrupted between two steps: where we are in the stream is not known any more.
            self._lose("interrupted while reading")
            raise
        if response is not None:
            ticket = response.request.correlation_id
            if ticket in self._forgotten:
                self._forgotten.remove(ticket)
            else:
                self._arrived[ticket] = response
        return True

    def _write(self, parts: list[memoryview]) -> None:
        """All of it, reading meanwhile."""
        try:
            self._write_all(parts)
        except BaseException:
            # Interrupted, it may be, in the middle of a request: nothing can follow it.
            self._lose("interrupted while writing")
            raise

    def _write_all(self, parts: list[memoryview]) -> None:
        deadline = time.monotonic() + self._request_timeout_s
        while parts:
            try:
                sent = self._socket.sendmsg(parts[:_PARTS_AT_ONCE])
            except BlockingIOError:
                self._await_writable(deadline)
                continue
            except OSError as error:
                raise self._lose(_words(error)) from error
            while parts and sent >= len(parts[0]):
                sent -= len(parts.pop(0))
            if sent:
                parts[0] = parts[0][sent:]

    def _await_writable(self, deadline: float) -> None:
        self._poll.modify(self._socket, select.POLLIN | select.POLLOUT)
        try:
            left_ms = max(0.0, deadline - time.monotonic()) * 1000
            events = self._poll.poll(left_ms)
        finally:
            self._poll.modify(self._socket, select.POLLIN)
        if not events:
            raise self._lose(f"it took no bytes for {self._request_timeout_s:.1f} s")
        if events[0][1] & ~select.POLLOUT:
            self._read()

    @staticmethod
    def await_any(links: Iterable["Link"], timeout_s: float) -> None:
        """Until one of them has something to read, or the time is over."""
        poll = select.poll()
        for link in links:
            if not link.usable:
                return
            poll.register(link.fileno(), select.POLLIN)
        poll.poll(max(0.0, timeout_s) * 1000)


def _words(error: OSError) -> str:
    return error.strerror or str(error)
