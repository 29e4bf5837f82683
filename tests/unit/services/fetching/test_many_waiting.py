"""Fetches that wait, many of them or with large sessions: what they hold is counted, and nobody waits for them all."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.raw import make_batch
from tests.unit.frontends.in_memory import Asked, Machine

from penstock.core.limits import (
    FETCH_HELD_BYTES_MIN,
    FETCH_HELD_PARTITION_BYTES,
    FETCH_PARTITIONS_AT_ONCE,
    FETCHES_WOKEN_AT_ONCE,
    TURN_ITEMS_MAX,
)
from penstock.core.session import Session
from penstock.frontends.kafka.fetch_sessions import FetchSession
from penstock.frontends.kafka.hot_fetch import FetchOutcome
from penstock.services.fetching import long_fetch
from penstock.services.fetching.found import FoundInTopic
from penstock.wire.kafka.fetch import FetchPartition, FetchRequest

if TYPE_CHECKING:
    from penstock.services.fetching.request import Fetch

VERSION = 12
MANY = 10 * FETCHES_WOKEN_AT_ONCE
FOR_EVER_MS = 1 << 30
TURNS_MAX = 20_000


def a_request(partitions: int = 1, *, session: tuple[int, int] = (0, -1), replica: int = -1) -> FetchRequest:
    wanted = [FetchPartition(number, -1, 0, -1, -1, 1 << 20) for number in range(partitions)]
    topics = [(b"orders", wanted)] if wanted else []
    return FetchRequest(replica, -1, FOR_EVER_MS, 1, 1 << 20, 0, *session, topics, [], b"")


class Waiting:
    """Many that wait for the same partition."""

    def __init__(self, asked: Asked) -> None:
        self.answers = 0
        self.fetches: list[Fetch] = []
        for _ in range(MANY):
            give_up: Any = asked.fetch(a_request(), VERSION, self._answered)
            self.fetches.append(give_up.__self__)

    def _answered(self, topics: list[FoundInTopic], session: FetchSession | None) -> None:
        self.answers += 1

    async def until_answered(self) -> int:
        """The most of them that were in one turn."""
        most = before = 0
        for _ in range(TURNS_MAX):
            most, before = max(most, self.answers - before), self.answers
            if before == MANY:
                return most
            await asyncio.sleep(0)
        pytest.fail("some are never answered")


async def test_those_whose_time_ends_together_are_answered_in_turns() -> None:
    async with Machine().broker() as asked:
        await asked.create("orders")
        waiting = Waiting(asked)
        for fetch in waiting.fetches:
            fetch._expired()
        assert await waiting.until_answered() <= FETCHES_WOKEN_AT_ONCE
        assert asked.services.fetch.waiting == 0


async def test_those_that_are_woken_together_are_answered_in_turns() -> None:
    async with Machine().broker() as asked:
        await asked.create("orders")
        waiting = Waiting(asked)
        asked.append("orders", bytearray(make_batch([b"x"])))
        assert await waiting.until_answered() <= FETCHES_WOKEN_AT_ONCE


async def test_those_whose_clients_leave_together_leave_their_partitions_later() -> None:
    async with Machine().broker() as asked:
        await asked.create("orders")
        waiting = Waiting(asked)
        limits = asked.partition("orders").limits
        for fetch in waiting.fetches:
            fetch.give_up()
        assert asked.services.fetch.waiting == 0
        assert sum(map(len, limits._waiting.values())) == MANY
        asked.append("orders", bytearray(make_batch([b"x"])))
        for _ in range(TURNS_MAX):
            if not limits._waiting:
                break
            await asyncio.sleep(0)
        assert not limits._waiting
        assert waiting.answers == 0


class Asker:
    def __init__(self) -> None:
        self.session = Session("PLAINTEXT")
        self.held_bytes: list[int] = []
        self.is_aborted = False

    def defer(self, abandoned: object = None, held_bytes: int = 0) -> Any:
        self.held_bytes.append(held_bytes)

    def run(self, work: object, held_bytes: int = 0) -> None: ...

    def abort(self) -> None:
        self.is_aborted = True


@pytest.mark.parametrize("partitions", [2, 200])
async def test_one_that_waits_counts_by_its_session(partitions: int) -> None:
    async with Machine().broker() as asked:
        await asked.create("orders", partitions=partitions)
        fetches, asker = asked.broker.fetches, Asker()
        session = fetches.sessions.find(a_request(partitions, session=(0, 0)), 0.0, by_id=False)
        assert session is not None
        request = a_request(0, session=(session.id, 1))
        outcome = FetchOutcome(asker, fetches, 1, VERSION)  # type: ignore[arg-type]
        give_up = fetches.fetch(request, VERSION, outcome)
        outcome.result(give_up, 40, session.id)
        give_up()
    assert asker.held_bytes == [max(FETCH_HELD_BYTES_MIN, partitions * FETCH_HELD_PARTITION_BYTES)]


async def test_an_answer_that_cannot_be_encoded_ends_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Those behind it in the row would never go."""
    async with Machine().broker() as asked:
        asker = Asker()
        outcome = FetchOutcome(asker, asked.broker.fetches, 1, VERSION)  # type: ignore[arg-type]
        encoded: asyncio.Future[list[object]] = asyncio.get_running_loop().create_future()
        encoded.set_exception(ValueError("planted"))
        outcome._send_encoded(None, 0, encoded)  # type: ignore[arg-type]
    assert asker.is_aborted
    assert "cannot be encoded" in caplog.text


@pytest.mark.parametrize(("replica", "portion"), [(-1, TURN_ITEMS_MAX), (2, FETCH_PARTITIONS_AT_ONCE)])
async def test_followers_are_answered_in_fewer_turns(replica: int, portion: int) -> None:
    async with Machine().broker() as asked:
        request = a_request(3000, replica=replica)
        answered: list[int] = []
        kept: list[list[FoundInTopic]] = []
        steps = asked.services.fetch.in_turns

        def counted(work: Any) -> None:
            steps(iter(answered.append(1) for _ in work))

        asked.services.fetch.in_turns = counted  # type: ignore[method-assign, assignment]
        asked.fetch(request, VERSION, lambda topics, _: kept.append(topics))
        for _ in range(TURNS_MAX):
            if kept:
                break
            await asyncio.sleep(0)
    assert len(kept[0][0][1]) == 3000
    assert len(answered) == 2 * 3000 / portion, "once to look, once to answer"
    assert long_fetch.is_long(request.topics)
