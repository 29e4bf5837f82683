"""A fetch of so many partitions that it looks at some of them in a turn of the loop, while everything may change."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from tests.integration.raw import make_batch
from tests.unit.frontends.in_memory import Asked, Machine

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.limits import SLICE_BYTES_MIN
from penstock.frontends.kafka import fetch_sessions
from penstock.frontends.kafka.fetch_sessions import FetchSession, remembered
from penstock.services.fetching import long_fetch
from penstock.services.fetching.found import Found, FoundInTopic
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.fetch import FetchPartition, FetchRequest
from penstock.wire.kafka.generated.delete_topics import DeleteTopicsRequest, DeleteTopicState

VERSION = 12
PARTITIONS = 6
FOR_EVER_MS = 1 << 30
MEGABYTE = 1 << 20
# Turns of the loop after which something happens: from before the first look until it waits.
TURNS = range(4 * PARTITIONS)
TURNS_MAX = 20_000  # more than anything here takes


@pytest.fixture(autouse=True)
def one_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_fetch, "FETCH_PARTITIONS_AT_ONCE", 3)
    monkeypatch.setattr(long_fetch, "TURN_ITEMS_MAX", 1)


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(TURNS_MAX):
        if condition():
            return
        await asyncio.sleep(0)
    pytest.fail("it never comes to that")


class Fetched:
    """A fetch under way."""

    def __init__(self, asked: Asked, request: FetchRequest) -> None:
        self._service = asked.services.fetch
        self._done: asyncio.Future[list[FoundInTopic]] = asyncio.get_running_loop().create_future()
        self.session: FetchSession | None = None
        self.give_up: Callable[[], None] = asked.fetch(request, VERSION, self._answered)

    def _answered(self, topics: list[FoundInTopic], session: FetchSession | None) -> None:
        self.session = session
        self._done.set_result(topics)

    @property
    def is_done(self) -> bool:
        return self._done.done()

    async def answers(self) -> dict[tuple[bytes, int], Found]:
        await until(self._done.done)
        topics = self._done.result()
        assert len(dict(topics)) == len(topics), "a topic is answered in one piece"
        return {(topic, answer.partition): answer for topic, answers in topics for answer in answers}


def a_request(
    *topics: bytes,
    wait_ms: int = FOR_EVER_MS,
    min_bytes: int = 1,
    session: tuple[int, int] = (0, -1),
    start: int = 0,
) -> FetchRequest:
    wanted = [
        (topic, [FetchPartition(number, -1, start, -1, -1, MEGABYTE) for number in range(PARTITIONS)])
        for topic in topics
    ]
    return FetchRequest(-1, -1, wait_ms, min_bytes, MEGABYTE, 0, *session, wanted, [], b"")


@asynccontextmanager
async def a_broker() -> AsyncIterator[Asked]:
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    async with Machine().broker() as asked:
        for name in ("orders", "other"):
            await asked.create(name, partitions=PARTITIONS)
        yield asked
    assert failures == []


def append(asked: Asked, number: int, value: bytes = b"x") -> None:
    asked.append("orders", bytearray(make_batch([value])), number)


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def idle(asked: Asked) -> None:
    """Until nobody waits for anything any more."""
    partitions = [
        asked.partition(topic, number) for topic in ("orders", "other") for number in range(PARTITIONS)
    ]
    await until(lambda: not any(partition.limits._waiting for partition in partitions))
    assert asked.services.fetch.waiting == 0
    assert asked.broker.data_dir.files.descriptors.lent == 0


async def test_it_says_what_a_short_one_says_and_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_broker() as asked:
        for number in (0, 3, 5):
            append(asked, number)
        request = a_request(b"orders", b"nobody", b"other", wait_ms=0)
        long = Fetched(asked, request)
        await turns(PARTITIONS)
        assert not long.is_done
        monkeypatch.setattr(long_fetch, "FETCH_PARTITIONS_AT_ONCE", 1000)
        short = Fetched(asked, request)
        assert short.is_done
        assert await long.answers() == await short.answers()
        await idle(asked)


@pytest.mark.parametrize("number", [0, PARTITIONS - 1])
@pytest.mark.parametrize("turn", TURNS)
async def test_no_record_is_missed_whenever_it_comes(turn: int, number: int) -> None:
    async with a_broker() as asked:
        fetched = Fetched(asked, a_request(b"orders"))
        await turns(turn)
        append(asked, number)
        answers = await fetched.answers()
        assert [key for key, answer in answers.items() if answer.size] == [(b"orders", number)]
        await idle(asked)


@pytest.mark.parametrize("turn", TURNS)
async def test_enough_is_enough_however_it_comes_together(turn: int) -> None:
    async with a_broker() as asked:
        size = len(make_batch([b"x"]))
        fetched = Fetched(asked, a_request(b"orders", min_bytes=3 * size))
        await turns(turn)
        for number in (PARTITIONS - 1, 0, 1):
            assert not fetched.is_done
            append(asked, number)
            await turns(PARTITIONS)
        assert sum(answer.size for answer in (await fetched.answers()).values()) == 3 * size
        await idle(asked)


@pytest.mark.parametrize("turn", TURNS)
async def test_a_topic_that_is_deleted_meanwhile_is_told(turn: int) -> None:
    async with a_broker() as asked:
        fetched = Fetched(asked, a_request(b"orders", b"other"))
        await turns(turn)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="other")], timeout_ms=1000)
        await asked.ask(ApiKey.DELETE_TOPICS, request, 6)
        await asked.broker.hosting.reconcile()
        answers = await fetched.answers()
        gone = {answer.error for (topic, _), answer in answers.items() if topic == b"other"}
        assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION in gone
        assert not any(answer.error for (topic, _), answer in answers.items() if topic == b"orders")


@pytest.mark.parametrize("turn", TURNS)
async def test_it_waits_for_a_partition_that_was_made_again_under_the_same_name(turn: int) -> None:
    async with a_broker() as asked:
        fetched = Fetched(asked, a_request(b"orders"))
        await turns(turn)
        gone, new = asked.partition("orders", 1), asked.partition("other", 1)
        asked.services.table.by_name[b"orders"].led[1] = new
        gone.wake_readers()
        await turns(8 * PARTITIONS)
        assert not fetched.is_done
        asked.append("other", bytearray(make_batch([b"x"])), 1)
        answers = await fetched.answers()
        assert [key for key, answer in answers.items() if answer.size] == [(b"orders", 1)]
        await idle(asked)


@pytest.mark.parametrize("min_bytes", [1, MEGABYTE])
@pytest.mark.parametrize("turn", TURNS)
async def test_nothing_is_left_of_one_that_is_given_up(turn: int, min_bytes: int) -> None:
    async with a_broker() as asked:
        append(asked, 1, bytes(SLICE_BYTES_MIN))
        fetched = Fetched(asked, a_request(b"orders", min_bytes=min_bytes))
        await turns(turn)
        was_done = fetched.is_done
        fetched.give_up()
        await idle(asked)
        await turns(2 * PARTITIONS)
        assert fetched.is_done is was_done


async def test_it_is_answered_once_and_holds_no_file_before_or_after() -> None:
    async with a_broker() as asked:
        append(asked, 1, bytes(SLICE_BYTES_MIN))
        fetched = Fetched(asked, a_request(b"orders", min_bytes=2 * SLICE_BYTES_MIN))
        await turns(5 * PARTITIONS)
        assert asked.services.fetch.waiting == 1
        assert asked.broker.data_dir.files.descriptors.lent == 0
        append(asked, 2, bytes(SLICE_BYTES_MIN))
        while not fetched.is_done:
            append(asked, 3)
            await asyncio.sleep(0)
        await idle(asked)
        await turns(5 * PARTITIONS)


async def test_it_waits_no_longer_than_it_was_asked_to() -> None:
    async with a_broker() as asked:
        answers = await Fetched(asked, a_request(b"orders", wait_ms=1)).answers()
        assert len(answers) == PARTITIONS
        assert not any(answer.size or answer.error for answer in answers.values())
        await idle(asked)


async def test_two_requests_of_one_session_beside_each_other_leave_it_whole() -> None:
    async with a_broker() as asked:
        first = Fetched(asked, a_request(b"orders", b"other", wait_ms=0, session=(0, 0)))
        assert len(await first.answers()) == 2 * PARTITIONS
        assert first.session is not None
        key = first.session.id
        append(asked, 2)
        second = Fetched(asked, a_request(wait_ms=0, session=(key, 1)))
        await turns(PARTITIONS + 1)
        forgetting = a_request(wait_ms=0, session=(key, 2))._replace(
            forgotten=[(b"other", list(range(PARTITIONS)))]
        )
        third = Fetched(asked, forgetting)
        assert (b"orders", 2) in await second.answers()
        assert set(await third.answers()) <= {(b"orders", number) for number in range(PARTITIONS)}
        assert set(first.session.partitions) == {(b"orders", number) for number in range(PARTITIONS)}
        append(asked, 4)
        last = Fetched(asked, a_request(wait_ms=0, session=(key, 3)))
        assert set(await last.answers()) == {(b"orders", 2), (b"orders", 4)}  # the first was never read on


async def test_a_session_is_not_changed_by_more_than_can_be_taken_in_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch_sessions, "FETCH_SESSION_CHANGES_MAX", PARTITIONS)
    async with a_broker() as asked:
        sessions, now = asked.broker.fetches.sessions, 0.0

        def found(request: FetchRequest) -> FetchSession | None:
            return sessions.find(request, now, by_id=False, remembered=remembered(request))

        session = found(a_request(b"orders", b"other", session=(0, 0)))
        assert session is not None
        assert len(session.partitions) == 2 * PARTITIONS
        assert found(a_request(b"orders", session=(session.id, 1))) is session
        with pytest.raises(ApiError) as refused:
            found(a_request(b"orders", b"other", session=(session.id, 2)))
        assert refused.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert len(sessions) == 0
        session = found(a_request(b"orders", b"other", session=(session.id, 0)))
        assert session is not None
        for epoch, more in enumerate((0, 1), start=1):
            forgotten = [(b"nobody", list(range(PARTITIONS - 1))), *[(b"other", [1])] * (1 + more)]
            request = a_request(session=(session.id, epoch))._replace(forgotten=forgotten)
            if not more:
                assert found(request) is session
            else:
                with pytest.raises(ApiError):
                    found(request)
        assert len(sessions) == 0
