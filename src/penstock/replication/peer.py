"""Requests from this broker to another one: a connection that is made when it is needed, one request at a time."""

import asyncio
from typing import Any, cast

from penstock.core.errors import PenstockError
from penstock.wire.kafka.connection import ClientConnection

# How brokers name themselves to each other.
CLIENT_ID_PREFIX = "penstock-broker-"


class PeerError(PenstockError):
    """The other broker cannot be reached, or did not answer: what became of the request is not known."""


class NotSentError(PeerError):
    """The request never left this broker, so it was not carried out: it may be asked again."""


class _Wire(asyncio.Protocol):
    """One connection; its next response, or its end, resolves `answer`."""

    def __init__(self, client_id: str) -> None:
        self._connection = ClientConnection(client_id)
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Any] | None = None
        self.usable = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance

    def data_received(self, data: bytes) -> None:
        try:
            for response in self._connection.receive(data):
                self._resolve(response.message())
        except PenstockError as error:
            self._fail(error)
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        self._fail(exc or ConnectionResetError("the connection was closed"))

    def _resolve(self, message: Any) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(message)

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    async def ask(self, api_key: int, version: int, request: Any) -> Any:
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(self._connection.send(api_key, version, request)[1])
        return await self._answer

    def close(self) -> None:
        self.usable = False
        if self._transport is not None:
            self._transport.abort()


class Peer:
    def __init__(self, host: str, port: int, client_id: str) -> None:
        self.address = (host, port)
        self._client_id = client_id
        self._wire: _Wire | None = None
        self._turn = asyncio.Lock()

    async def ask(self, api_key: int, version: int, request: Any, timeout_s: float) -> Any:
        """The decoded answer; PeerError leaves open whether the request was carried out, NotSentError does not.

        The time counts from here, also while others have their turn; nothing is sent once it is over.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        sent = False
        try:
            async with asyncio.timeout_at(deadline), self._turn:
                try:
                    wire = await self._connected()
                    if loop.time() >= deadline:
                        raise TimeoutError
                    sent = True
                    return await wire.ask(api_key, version, request)
                except BaseException:
                    self.close()  # an answer that nobody waits for must not be taken for the next one's
                    raise
        except Exception as error:
            # Also what is no address (OverflowError, UnicodeError): another broker's fault is not this one's end.
            host, port = self.address
            kind = PeerError if sent else NotSentError
            raise kind(f"{host}:{port} did not answer: {error!r}") from error

    async def _connected(self) -> _Wire:
        if self._wire is None or not self._wire.usable:
            loop = asyncio.get_running_loop()
            _, self._wire = await loop.create_connection(lambda: _Wire(self._client_id), *self.address)
        return self._wire

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None
