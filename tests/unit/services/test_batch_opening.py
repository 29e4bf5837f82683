"""Batches are opened a few at once, large ones one by one: what all of them hold is bounded."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from tests.unit.waiting import until

from penstock.core.errors import ClientGoneError
from penstock.core.limits import BATCHES_OPENED_MAX, LOOKUPS_OPENED_MAX
from penstock.records.compression import WHOLE, OpeningLimit, UnpacksToMore
from penstock.services.batch_opening import SMALL, Openings

SEVERAL = 12


class Work:
    """Notes how many of it run at once under each limit; those of a kind meet before they go on."""

    def __init__(self, *, large: bool) -> None:
        self._large = large
        self._lock = threading.Lock()
        self._meeting = threading.Barrier(BATCHES_OPENED_MAX)
        self._running = {SMALL: 0, WHOLE: 0}
        self.most = {SMALL: 0, WHOLE: 0}

    def __call__(self, limit: OpeningLimit) -> str:
        with self._lock:
            self._running[limit] += 1
            self.most[limit] = max(self.most[limit], self._running[limit])
        if limit is SMALL:
            self._meeting.wait(60)
        with self._lock:
            self._running[limit] -= 1
        if self._large:
            limit.check_count(SMALL.records + 1)
        return "opened"


def opened(work: Work, times: int) -> list[str]:
    async def story() -> list[str]:
        with ThreadPoolExecutor(2 * SEVERAL) as executor:
            openings = Openings(asyncio.get_running_loop(), executor)
            return await asyncio.gather(*[openings.run(work) for _ in range(times)])

    return asyncio.run(story())


def test_a_few_ordinary_batches_are_opened_at_once() -> None:
    work = Work(large=False)
    assert opened(work, SEVERAL) == ["opened"] * SEVERAL
    assert work.most == {SMALL: BATCHES_OPENED_MAX, WHOLE: 0}


def test_large_batches_are_opened_one_by_one() -> None:
    work = Work(large=True)
    assert opened(work, SEVERAL) == ["opened"] * SEVERAL
    assert work.most == {SMALL: BATCHES_OPENED_MAX, WHOLE: 1}


def test_ordinary_batches_do_not_wait_for_a_large_one() -> None:
    hold, held = threading.Event(), threading.Event()

    def large(limit: OpeningLimit) -> str:
        if limit is SMALL:
            raise UnpacksToMore("a bomb")
        held.set()
        hold.wait(60)
        return "large"

    async def story() -> None:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(SEVERAL) as executor:
            openings = Openings(loop, executor)
            bombs = asyncio.gather(*[openings.run(large) for _ in range(SEVERAL)])
            await loop.run_in_executor(executor, held.wait, 60)
            assert await openings.run(lambda _: "small") == "small"
            assert not bombs.done()
            hold.set()
            assert await bombs == ["large"] * SEVERAL

    asyncio.run(story())


def test_who_produces_does_not_wait_for_lookups() -> None:
    hold = threading.Event()
    limits: list[OpeningLimit] = []

    def lookup(limit: OpeningLimit) -> str:
        limits.append(limit)
        hold.wait(60)
        return "found"

    async def story() -> None:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(SEVERAL) as executor:
            openings = Openings(loop, executor)
            lookups = [asyncio.create_task(openings.look_up(lookup)) for _ in range(SEVERAL)]
            while len(limits) < LOOKUPS_OPENED_MAX:  # noqa: ASYNC110
                await asyncio.sleep(0)
            assert await openings.run(lambda limit: "opened") == "opened"
            assert len(limits) == LOOKUPS_OPENED_MAX
            hold.set()
            assert await asyncio.gather(*lookups) == ["found"] * SEVERAL

    asyncio.run(story())


def test_a_large_batch_does_not_wait_for_all_large_lookups() -> None:
    tried, go_on = threading.Event(), threading.Event()
    done: list[str] = []

    def large(name: str, limit: OpeningLimit) -> None:
        if limit is SMALL:
            if name == "produced":
                tried.set()
            raise UnpacksToMore("a bomb")
        go_on.wait(60)
        done.append(name)

    async def story() -> None:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(2 * SEVERAL) as executor:
            openings = Openings(loop, executor)
            lookups = [loop.create_task(openings.look_up(partial(large, "lookup"))) for _ in range(SEVERAL)]
            produced = loop.create_task(openings.run(partial(large, "produced")))
            await loop.run_in_executor(executor, tried.wait, 60)
            go_on.set()
            await asyncio.gather(produced, *lookups)

    asyncio.run(story())
    assert done.index("produced") <= 3


@pytest.mark.parametrize("kind", ["run", "look_up"])
async def test_for_clients_that_are_gone_when_their_turn_comes_nothing_is_opened(kind: str) -> None:
    """Each keeps a request, and anybody may come, ask and go any number of times."""
    loop, may_go_on, opened = asyncio.get_running_loop(), threading.Event(), []
    gone = False

    def work(_: object) -> None:
        opened.append(1)
        assert may_go_on.wait(10)

    with ThreadPoolExecutor(BATCHES_OPENED_MAX) as executor:
        ask = getattr(Openings(loop, executor), kind)
        asked = [loop.create_task(ask(work, lambda: gone)) for _ in range(20)]
        places = BATCHES_OPENED_MAX if kind == "run" else LOOKUPS_OPENED_MAX
        await until(lambda: len(opened) == places)
        gone = True
        may_go_on.set()
        found = await asyncio.gather(*asked, return_exceptions=True)
    assert len(opened) == places
    assert sum(isinstance(outcome, ClientGoneError) for outcome in found) == 20 - places
