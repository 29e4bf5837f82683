"""Asking another broker: whatever is wrong with it, the one that asks goes on."""

import asyncio
from collections.abc import Coroutine
from typing import Never

import pytest

from penstock.replication.peer import Peer, PeerError
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
