"""Asking another broker: whatever is wrong with it, the one that asks goes on."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Never

import pytest

from penstock.replication.peer import NotSentError, Peer, PeerError
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.fetch import FetchRequest

VERSION = 17


def ask(host: str, port: int) -> Coroutine[None, None, object]:
    return Peer(host, port, client_id="test").ask(ApiKey.FETCH, VERSION, FetchRequest(), 5.0)


@pytest.mark.parametrize(
    ("host", "port"), [("127.0.0.1", 99999), ("a" * 70 + ".example", 9092), ("a..b", 9092), ("127.0.0.1", -1)]
)
def test_what_is_no_address_is_a_broker_that_does_not_answer(host: str, port: int) -> None:
    with pytest.raises(PeerError, match="did not answer"):
        asyncio.run(ask(host, port))


class Silent(Peer):
    async def _connected(self) -> Never:
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")


def test_a_cancelled_question_stays_cancelled() -> None:
    async def cancelled() -> None:
        peer = Silent("127.0.0.1", 1, client_id="test")
        asking = peer.ask(ApiKey.FETCH, VERSION, FetchRequest(), 60.0)
        question = asyncio.get_running_loop().create_task(asking)
        await asyncio.sleep(0)
        question.cancel()
        with pytest.raises(asyncio.CancelledError):
            await question

    asyncio.run(cancelled())


class Wire:
    """A connection that is there, and free; what is sent over it is never answered."""

    def __init__(self) -> None:
        self.sent: list[int] = []

    async def ask(self, api_key: int, version: int, request: Any) -> Never:
        self.sent.append(api_key)
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")


class Connected(Peer):
    def __init__(self) -> None:
        super().__init__("127.0.0.1", 1, client_id="test")
        self.wire = Wire()

    async def _connected(self) -> Any:
        return self.wire


def test_nothing_is_sent_when_its_time_is_over() -> None:
    peer = Connected()
    with pytest.raises(NotSentError):
        asyncio.run(peer.ask(ApiKey.FETCH, VERSION, FetchRequest(), 0.0))
    assert not peer.wire.sent


def test_what_was_sent_is_told_from_what_was_not() -> None:
    async def told() -> None:
        peer = Connected()
        first = asyncio.create_task(peer.ask(ApiKey.FETCH, VERSION, FetchRequest(), 0.2))
        await asyncio.sleep(0)  # it has its turn
        with pytest.raises(NotSentError):  # its time is over before its turn comes
            await peer.ask(ApiKey.PRODUCE, VERSION, FetchRequest(), 0.1)
        with pytest.raises(PeerError) as failure:
            await first
        assert not isinstance(failure.value, NotSentError)
        assert peer.wire.sent == [ApiKey.FETCH]

    asyncio.run(told())
