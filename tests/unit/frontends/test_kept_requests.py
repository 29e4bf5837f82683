"""Large requests that are not done: bounded, and nobody takes all the room there is."""

import asyncio

import pytest

from penstock.core.errors import ProtocolError
from penstock.frontends.kafka.kept_requests import KeptRequests


async def worked_on(done: asyncio.Event) -> str:
    await done.wait()
    return "answer"


async def test_who_has_most_is_turned_away_and_others_are_not() -> None:
    kept = KeptRequests(limit_bytes=10)
    for _ in range(5):
        kept.admit("greedy", 2)
    with pytest.raises(ProtocolError):
        kept.admit("greedy", 2)
    kept.admit("other", 4)
    with pytest.raises(ProtocolError):
        kept.admit("other", 8)
    kept.admit("other", 4)
    with pytest.raises(ProtocolError):
        kept.admit("third", 3)
    assert kept.used_bytes == 18


async def test_they_count_until_their_work_ends_however_it_does() -> None:
    kept, done = KeptRequests(limit_bytes=10), asyncio.Event()
    kept.admit("a", 4)
    kept.admit("a", 4)
    first = asyncio.ensure_future(kept.until_done("a", 4, worked_on(done)))
    second = asyncio.ensure_future(kept.until_done("a", 4, worked_on(done)))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait([second])
    assert kept.used_bytes == 4
    done.set()
    assert await first == "answer"
    assert kept.used_bytes == 0
    for _ in range(2):
        kept.admit("a", 5)
