"""A connection to another broker: introduced once, for one round trip, and again under a new registration."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import cast

import pytest

from penstock.coordination.image import ClusterImage
from penstock.core.session import Session
from penstock.replication.introduction import BrokerAuthenticator, Identity
from penstock.replication.peer import NotSentError, Peer, PeerError
from penstock.wire.kafka.headers import decode_request_header
from penstock.wire.kafka.messages import request_module
from penstock.wire.peers.keys import PeerApi
from penstock.wire.peers.relay_positions import RelayPositionsRequest, RelayPositionsResponse
from penstock.wire.peers.routes import WireRoute

CHALLENGE, INTRODUCTION, ASKED = (
    PeerApi.BROKER_CHALLENGE,
    PeerApi.BROKER_INTRODUCTION,
    PeerApi.RELAY_POSITIONS,
)
REQUEST = RelayPositionsRequest(WireRoute(0, bytes(16), 0, bytes(16), 1))


class Other:
    """The broker that is asked: it lets in who proves itself, and answers questions with whom it took for whom."""

    def __init__(self, secret: bytes = b"secret") -> None:
        image = ClusterImage()
        image.secret, image.cluster_id = secret, "cluster"
        self.door = BrokerAuthenticator(2, image, Random(1), "LISTENER")
        self.rounds: list[list[int]] = []  # what came before it had answered anything of it

    @asynccontextmanager
    async def asked_by(self, identity: Identity) -> AsyncIterator[Peer]:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Connection(self), "127.0.0.1", 0)
        peer = Peer(2, *server.sockets[0].getsockname()[:2], identity, "test")
        try:
            yield peer
        finally:
            peer.close()
            server.close()


class Connection(asyncio.Protocol):
    def __init__(self, other: Other) -> None:
        self._other = other
        self._session = Session("LISTENER", "127.0.0.1")
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._data += data
        # Whatever else is on its way shall be there before anything is answered.
        asyncio.get_running_loop().call_later(0.02, self._answer)

    def _answer(self) -> None:
        keys = []
        while len(self._data) >= 4 and len(self._data) >= (size := 4 + int.from_bytes(self._data[:4], "big")):
            frame, self._data = self._data[4:size], self._data[size:]
            header, position = decode_request_header(frame)
            keys.append(header.api_key)
            codec = request_module(header.api_key)
            request, _ = codec.decode_request(frame, position, 0)
            if header.api_key == CHALLENGE:
                answer: object = self._other.door.challenge(self._session)
            elif header.api_key == INTRODUCTION:
                answer = self._other.door.introduce(self._session, request)
            else:
                answer = RelayPositionsResponse(
                    positions=((self._session.broker, self._session.broker_epoch),)
                )
            body = codec.encode_response(answer, 0)
            head = (len(body) + 4).to_bytes(4, "big") + header.correlation_id.to_bytes(4, "big")
            self._transport.write(head + body)
        if keys:
            self._other.rounds.append(keys)


class Me(Identity):
    def __init__(self) -> None:
        image = ClusterImage()
        image.secret, image.cluster_id = b"secret", "cluster"
        self.epoch = 57
        super().__init__(1, image, lambda: self.epoch)


async def test_an_introduction_costs_one_round_trip_once() -> None:
    other = Other()
    async with other.asked_by(Me()) as peer:
        for _ in range(2):
            answer = await peer.ask(ASKED, 0, REQUEST, 10.0)
            assert answer.positions == ((1, 57),)
    assert other.rounds == [[CHALLENGE], [INTRODUCTION, ASKED], [ASKED]]


async def test_who_registers_anew_introduces_itself_again() -> None:
    other, me = Other(), Me()
    async with other.asked_by(me) as peer:
        await peer.ask(ASKED, 0, REQUEST, 10.0)
        me.epoch = 58
        assert (await peer.ask(ASKED, 0, REQUEST, 10.0)).positions == ((1, 58),)
    assert other.rounds[2:] == [[CHALLENGE], [INTRODUCTION, ASKED]]


async def test_an_introduction_that_is_refused_is_an_error_and_begins_anew() -> None:
    other = Other(secret=b"another")
    async with other.asked_by(Me()) as peer:
        for _ in range(2):
            with pytest.raises(PeerError, match="does not take this broker for one"):
                await peer.ask(ASKED, 0, REQUEST, 10.0)
    assert other.rounds == 2 * [[CHALLENGE], [INTRODUCTION, ASKED]]


async def test_what_was_not_sent_because_nobody_may_introduce_itself_there_was_not_sent() -> None:
    other = Other()
    other.door._listener = "ANOTHER"
    async with other.asked_by(Me()) as peer:
        with pytest.raises(NotSentError):
            await peer.ask(ASKED, 0, REQUEST, 10.0)
    assert other.rounds == [[CHALLENGE]]
