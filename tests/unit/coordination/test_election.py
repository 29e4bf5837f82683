"""One controller at a time, over every coordination store: a paused one that wakes up can write nothing."""

import asyncio
import random
from contextlib import asynccontextmanager

import pytest

from penstock.coordination.election import CONTROLLER, CONTROLLER_EPOCH, Election, FencedError, Incumbent
from penstock.coordination.memory import Fault, MemoryStore
from penstock.coordination.metadata import MetadataStore, NewTopic
from penstock.coordination.nodes import PartitionState
from penstock.coordination.tree import (
    MULTI_BYTES_MAX,
    ConnectionLostError,
    Create,
    Delete,
    NodeExistsError,
    SessionExpiredError,
    Set,
)

ALONE = PartitionState((1,), (1,), 1)


@asynccontextmanager
async def opened(stores):
    store = await stores.open()
    try:
        yield store
    finally:
        await store.close()


async def test_the_first_candidate_wins_and_the_next_waits_until_it_is_gone(stores):
    async with opened(stores) as store:
        one, two = await store.connect(), await store.connect()
        first = await Election(one, b"1").win()
        assert first.epoch == 1
        waiting = asyncio.ensure_future(Election(two, b"2").win())
        assert await Election(two, b"2").incumbent() == Incumbent(b"1", 1)
        await one.multi([Create("/something-else", b"")])
        assert not waiting.done()
        await one.close()
        second = await waiting
        assert second.epoch == 2
        assert await Election(two, b"2").incumbent() == Incumbent(b"2", 2)
        with pytest.raises(SessionExpiredError):
            await first.multi([Create("/late", b"")])


async def test_of_many_candidates_one_wins_and_each_has_an_epoch_of_its_own(stores):
    async with opened(stores) as store:
        trees = [await store.connect() for _ in range(4)]
        standing = {asyncio.ensure_future(Election(tree, b"").win()): tree for tree in trees}
        epochs = []
        while standing:
            done, _ = await asyncio.wait(standing, return_when=asyncio.FIRST_COMPLETED)
            (winner,) = done
            mandate = winner.result()
            epochs.append(mandate.epoch)
            await mandate.multi([Create(f"/by-{mandate.epoch}", b"")])
            await standing.pop(winner).close()
        assert epochs == [1, 2, 3, 4]


async def test_a_controller_that_was_replaced_can_write_nothing(stores):
    """As one that was paused: its session seems to live, but another was elected meanwhile."""
    async with opened(stores) as store:
        paused, other = await store.connect(), await store.connect()
        old = await Election(paused, b"old").win()
        await old.multi([Create("/state", b"old")])
        # Its node is gone while its own session is not: harder than an expired session, which every store refuses.
        await other.multi([Delete(CONTROLLER)])
        new = await Election(other, b"new").win()
        await new.multi([Set("/state", b"new")])
        for late in ([Set("/state", b"late")], [Create("/late", b"")], [Delete("/state")], []):
            with pytest.raises(FencedError):
                await old.multi(late)
        with pytest.raises(FencedError):
            await old.resign()
        metadata = MetadataStore(old, random.Random(1))
        with pytest.raises(FencedError):
            await metadata.load()
        assert (await other.get("/state")).data == b"new"
        assert await Election(other, b"").incumbent() == Incumbent(b"new", 2)
        await old.until_lost()


async def test_a_controller_writes_metadata_under_its_guard(stores):
    async with opened(stores) as store:
        tree = await store.connect()
        mandate = await Election(tree, b"").win()
        metadata = MetadataStore(mandate, random.Random(1))
        await metadata.load()
        # In several parts, each as large as it may be: the guard must still fit.
        await metadata.create_topics([NewTopic("wide", [ALONE] * 8_000)])
        assert len(metadata.image.topics["wide"].partitions) == 8_000
        assert len((await tree.snapshot("/topics")).nodes) == 2
        assert MULTI_BYTES_MAX < 8_000 * 100


async def test_a_conflict_that_is_not_about_the_office_is_passed_on(stores):
    async with opened(stores) as store:
        mandate = await Election(await store.connect(), b"").win()
        await mandate.multi([Create("/a", b"")])
        with pytest.raises(NodeExistsError):
            await mandate.multi([Create("/a", b"")])


async def test_a_controller_that_resigns_is_followed_at_once_by_another_epoch(stores):
    async with opened(stores) as store:
        one, two = await store.connect(), await store.connect()
        first = await Election(one, b"1").win()
        lost = asyncio.ensure_future(first.until_lost())
        waiting = asyncio.ensure_future(Election(two, b"2").win())
        await first.resign()
        second = await waiting
        await lost
        assert (first.epoch, second.epoch) == (1, 2)
        with pytest.raises(FencedError):
            await first.multi([Create("/late", b"")])


async def test_a_victory_whose_answer_was_lost_counts():
    tree = await MemoryStore().connect()
    multi = tree.multi

    async def lose_the_answer(operations):
        if any(operation.path == CONTROLLER for operation in operations):
            tree.fail_next(Fault.ANSWER_LOST)
        return await multi(operations)

    tree.multi = lose_the_answer
    with pytest.raises(ConnectionLostError):
        await Election(tree, b"1").win()
    tree.multi = multi
    mandate = await Election(tree, b"1").win()
    assert mandate.epoch == 1
    await mandate.multi([Create("/a", b"")])
    assert (await tree.get(CONTROLLER_EPOCH)).version == 1
