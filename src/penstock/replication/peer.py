"""Requests from this broker to another one: a connection that is made when it is needed, one request at a time.

Each connection begins with an introduction (`introduction`), and has another one when this broker has registered anew.
"""

import asyncio
from collections import deque
from typing import Any, cast

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import PenstockError
from penstock.replication.introduction import Identity
from penstock.wire.kafka.connection import ClientConnection
from penstock.wire.peers.broker_challenge import ChallengeRequest
from penstock.wire.peers.keys import PeerApi

_VERSION = 0


class PeerError(PenstockError):
    """The other broker cannot be reached, or did not answer: what became of the request is not known."""


class NotSentError(PeerError):
    """The request never left this broker, so it was not carried out: it may be asked again."""


class _Wire(asyncio.Protocol):
    """One connection; its responses resolve `_answers` in their order, its end all that are left."""

    def __init__(self, client_id: str) -> None:
        self._connection = ClientConnection(client_id)
        self._transport: asyncio.Transport | None = None
        self._answers: deque[asyncio.Future[Any]] = deque()
        self.usable = True
        self.introduced_epoch: int | None = None  # as which registration of this broker it is known there

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance

    def data_received(self, data: bytes) -> None:
        try:
            for response in self._connection.receive(data):
                message = response.message()
                answer = self._answers.popleft()
                if not answer.done():
                    answer.set_result(message)
        except PenstockError as error:
            self._fail(error)
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        self._fail(exc or ConnectionResetError("the connection was closed"))

    def _fail(self, error: Exception) -> None:
        answers, self._answers = self._answers, deque()
        for answer in answers:
            if not answer.done():
                answer.set_exception(error)
                answer.exception()  # whoever asked for several may wait for the first alone

    def send(self, api_key: int, version: int, request: Any) -> asyncio.Future[Any]:
        assert self._transport is not None
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._transport.write(self._connection.send(api_key, version, request)[1])
        self._answers.append(answer)
        return answer

    def close(self) -> None:
        self.usable = False
        if self._transport is not None:
            self._transport.abort()


class Peer:
    def __init__(self, broker: int, host: str, port: int, identity: Identity, purpose: str) -> None:
        self.address = (host, port)
        self._broker = broker
        self._identity = identity
        self._client_id = f"penstock-broker-{identity.node}-{purpose}"  # for the other's logs alone
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
                    introduced = await self._introduce(wire)
                    if loop.time() >= deadline:
                        raise TimeoutError
                    sent = True
                    answer = wire.send(api_key, version, request)
                    if introduced is not None:
                        _check(await introduced)
                    return await answer
                except BaseException:
                    self.close()  # an answer that nobody waits for must not be taken for the next one's
                    raise
        except Exception as error:
            # Also what is no address (OverflowError, UnicodeError): another broker's fault is not this one's end.
            host, port = self.address
            kind = PeerError if sent else NotSentError
            raise kind(f"{host}:{port} did not answer: {error!r}") from error

    async def _introduce(self, wire: _Wire) -> asyncio.Future[Any] | None:
        """Say who we are, if that is not known there; what is answered comes before the answer to the request."""
        epoch = self._identity.broker_epoch()
        if wire.introduced_epoch == epoch:
            return None
        challenge = await wire.send(PeerApi.BROKER_CHALLENGE, _VERSION, ChallengeRequest())
        _check(challenge)
        wire.introduced_epoch = epoch
        introduction = self._identity.introduction(self._broker, epoch, challenge.nonce)
        return wire.send(PeerApi.BROKER_INTRODUCTION, _VERSION, introduction)

    async def _connected(self) -> _Wire:
        if self._wire is None or not self._wire.usable:
            loop = asyncio.get_running_loop()
            _, self._wire = await loop.create_connection(lambda: _Wire(self._client_id), *self.address)
        return self._wire

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None


def _check(answer: Any) -> None:
    if answer.error_code != ErrorCode.NONE:
        raise PeerError(f"it does not take this broker for one: {ErrorCode(answer.error_code).name}")
