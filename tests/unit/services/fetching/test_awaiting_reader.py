"""Anybody in the process may read as Fetch does: here a plain reader of one partition, which awaits what comes next."""

import asyncio
from typing import NamedTuple

import pytest
from tests.integration.raw import make_batch
from tests.unit.frontends.in_memory import Asked, Machine
from tests.unit.waiting import until

from penstock.core.error_codes import ErrorCode
from penstock.replication.limits import Reader
from penstock.services.fetching.consumer import ConsumerFetch
from penstock.services.fetching.found import Found, FoundInTopic
from penstock.services.fetching.service import FetchService

BATCH = make_batch([b"x"])


class Place(NamedTuple):
    partition: int
    offset: int
    max_bytes: int = 1 << 20
    leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1


class Terms(NamedTuple):
    max_wait_ms: int = 1 << 30
    min_bytes: int = 1
    max_bytes: int = 1 << 20


class AwaitingReader:
    """All that it takes."""

    def __init__(self, service: FetchService, topic: bytes) -> None:
        self._service = service
        self._topic = topic
        self._reads = ConsumerFetch(Reader.BROKER, led=True)

    async def found_at(self, offset: int, max_wait_ms: int = 1 << 30) -> Found:
        told: asyncio.Future[list[FoundInTopic]] = asyncio.get_running_loop().create_future()
        wanted = [(self._topic, [Place(0, offset)])]
        terms = Terms(max_wait_ms)
        give_up = self._service.fetch(terms, wanted, self._reads, told.set_result, by_id=False)
        try:
            ((_, (found,)),) = await told
        finally:
            give_up()
        return found


async def reading(asked: Asked) -> AwaitingReader:
    await asked.create("t")
    return AwaitingReader(asked.services.fetch, b"t")


def append(asked: Asked, count: int = 1, *, commit: bool = True) -> None:
    for _ in range(count):
        asked.append("t", bytearray(BATCH), commit=commit)


async def waiting(asked: Asked, reading: "asyncio.Task[Found]") -> None:
    async with asyncio.timeout(10):
        await until(lambda: asked.services.fetch.waiting)
    assert not reading.done()


async def test_it_reads_from_its_place_to_its_limit() -> None:
    async with Machine().broker() as asked:
        reader = await reading(asked)
        append(asked, 3)
        append(asked, commit=False)
        found = await reader.found_at(1)
        assert (found.error, found.size, found.high_watermark) == (0, 2 * len(BATCH), 3)


async def test_it_waits_for_more_and_is_woken() -> None:
    async with Machine().broker() as asked:
        reader = await reading(asked)
        append(asked, 3)
        more = asyncio.create_task(reader.found_at(3))
        await waiting(asked, more)
        append(asked)
        found = await more
        assert (found.error, found.size, found.high_watermark) == (0, len(BATCH), 4)
        assert asked.services.fetch.waiting == 0


async def test_it_waits_no_longer_than_it_wants_to() -> None:
    async with Machine().broker() as asked:
        reader = await reading(asked)
        found = await reader.found_at(0, max_wait_ms=1)
        assert (found.error, found.size) == (0, 0)


async def test_it_is_told_when_another_broker_leads() -> None:
    async with Machine().broker() as asked:
        reader = await reading(asked)
        more = asyncio.create_task(reader.found_at(0))
        await waiting(asked, more)
        partition = asked.partition("t")
        partition.stand_back(7)
        asked.services.table.by_name[b"t"].role_changed(partition)
        partition.wake_readers()
        assert (await more).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await reader.found_at(0)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_one_that_is_ended_leaves_nothing_behind() -> None:
    async with Machine().broker() as asked:
        reader = await reading(asked)
        more = asyncio.create_task(reader.found_at(0))
        await waiting(asked, more)
        more.cancel()
        with pytest.raises(asyncio.CancelledError):
            await more
        assert asked.services.fetch.waiting == 0
        append(asked)
        await asyncio.sleep(0)
        assert not asked.partition("t").limits._waiting
