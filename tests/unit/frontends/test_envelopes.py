"""A request that another broker passes on: handled as the client's own, once, and answered in an envelope."""

from struct import pack
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.frontends.in_memory import Asked, Machine

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ProtocolError
from penstock.core.session import Principal, Session
from penstock.frontends.kafka import envelopes
from penstock.frontends.kafka.dispatcher import KafkaDispatcher
from penstock.frontends.kafka.envelopes import opened
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import describe_quorum, metadata
from penstock.wire.peers import envelope
from penstock.wire.peers.keys import PeerApi

QUORUM = describe_quorum.encode_request(describe_quorum.DescribeQuorumRequest(), 1)


def wrapped(api_key: int = ApiKey.DESCRIBE_QUORUM, version: int = 1, body: bytes = QUORUM) -> bytes:
    request = envelope.EnvelopeRequest("User", "alice", "app", "10.0.0.9", "CLIENTS", api_key, version, body)
    return envelope.encode_request(request, 0)


def of_broker(broker: int) -> Session:
    session = Session("PLAINTEXT", "10.0.0.1")
    session.broker = broker
    return session


async def test_handlers_see_the_client_and_not_the_broker_between() -> None:
    async with Machine().broker():
        api, call, body = opened(wrapped(), 0, 0, of_broker(2))
        caller = call.session
        assert (caller.principal, caller.peer, caller.listener) == (
            Principal("User", "alice"),
            "10.0.0.9",
            "CLIENTS",
        )
        assert (call.client_id, caller.client_id, call.version, body) == ("app", "app", 1, QUORUM)
        assert (caller.broker, caller.forwarded_by) == (-1, 2)
        assert api.key == ApiKey.DESCRIBE_QUORUM


@pytest.mark.parametrize(
    ("key", "version"),
    [(ApiKey.METADATA, 1), (ApiKey.DESCRIBE_QUORUM, 99), (PeerApi.RETIREMENT, 0), (999, 0)],
)
async def test_only_what_is_forwarded_comes_in_envelopes(key: int, version: int) -> None:
    body = metadata.encode_request(metadata.MetadataRequest(topics=[]), 1)
    async with Machine().broker():
        with pytest.raises(ProtocolError, match="in an envelope"):
            opened(wrapped(key, version, body), 0, 0, of_broker(2))


class Connection:
    """That of a broker, or of who is none; keeps what is answered."""

    def __init__(self, broker: int) -> None:
        self.session = of_broker(broker)
        self.peer = self.session.peer
        self.work: Any = None

    def has_left(self) -> bool:
        return False

    def run(self, work: Any, held_bytes: int = 0) -> None:
        self.work = work


async def dispatched(asked: Asked, broker: int) -> envelope.EnvelopeResponse:
    connection = Connection(broker)
    hot = cast(Any, SimpleNamespace(write_held=None))
    frame = pack(">hhih", PeerApi.ENVELOPE, 0, 7, -1) + wrapped()
    parts = KafkaDispatcher(asked.services, hot, asked.broker.in_thread).dispatch(
        connection, memoryview(frame)
    )
    (answer,) = await connection.work if parts is None else parts
    assert answer[:8] == pack(">ii", len(answer) - 4, 7)
    return envelope.decode_response(answer, 8, 0)[0]


async def test_it_is_answered_in_an_envelope() -> None:
    async with Machine().broker() as asked:
        answer = await dispatched(asked, 2)
        assert answer.error_code == ErrorCode.NONE
        quorum, _ = describe_quorum.decode_response(answer.body, 0, 1)
        assert quorum.error_code == ErrorCode.NONE


async def test_who_is_not_the_controller_says_so_and_passes_nothing_on() -> None:
    async with Machine().broker() as asked:
        asked.services.controller_client.controller = None
        assert await dispatched(asked, 2) == envelopes.NOT_CONTROLLER


async def test_clients_have_no_envelopes() -> None:
    async with Machine().broker() as asked:
        with pytest.raises(ProtocolError, match="ENVELOPE version 0: it is not served"):
            await dispatched(asked, -1)
