"""One controller at a time, over every coordination store: a paused one that wakes up can write nothing."""

import asyncio
import random
from contextlib import asynccontextmanager

import pytest

from penstock.coordination.election import stand
from penstock.coordination.memory import Fault, MemoryStore
from penstock.coordination.metadata import MetadataStore, NewTopic
from penstock.coordination.nodes import CONTROLLER, CONTROLLER_EPOCH, PartitionState, decode_controller
from penstock.coordination.tree import (
    MULTI_BYTES_MAX,
    ConflictError,
    ConnectionLostError,
    Create,
    Delete,
    SessionExpiredError,
    Set,
)

ALONE = PartitionState((1,), (1,), 1)


async def ground(tree):
    metadata = MetadataStore(tree, random.Random(1))
    await metadata.load()
    return metadata


@asynccontextmanager
async def opened(stores):
    store = await stores.open()
    try:
        await ground(await store.connect())
        yield store
    finally:
        await store.close()


async def incumbent(tree):
    node = await tree.get(CONTROLLER)
    return None if node is None else decode_controller(CONTROLLER, node)


async def until_vacant(tree):
    """As a controller's own look at the feed: it stands again when the place is empty."""
    snapshot = await tree.snapshot()
    if CONTROLLER in snapshot.nodes:
        async for change in tree.changes(snapshot.number):
            if any(event.path == CONTROLLER and event.node is None for event in change.events):
                return


async def win(tree, broker):
    while (guard := await stand(tree, broker)) is None:
        await until_vacant(tree)
    return guard


async def test_the_first_candidate_wins_and_the_next_waits_until_it_is_gone(stores):
    async with opened(stores) as store:
        tree, other = await store.connect(), await store.connect()
        first = await win(tree, 1)
        assert await stand(other, 2) is None
        waiting = asyncio.ensure_future(win(other, 2))
        assert await incumbent(other) == 1
        await tree.multi([Create("/something-else", b"")])
        assert not waiting.done()
        await tree.close()
        second = await waiting
        assert second.version == first.version + 1
        assert await incumbent(other) == 2
        with pytest.raises(SessionExpiredError):
            await tree.multi([first, Create("/late", b"")])


async def test_of_many_candidates_one_wins_and_each_has_an_epoch_of_its_own(stores):
    async with opened(stores) as store:
        trees = [await store.connect() for _ in range(4)]
        standing = {asyncio.ensure_future(win(tree, number)): tree for number, tree in enumerate(trees)}
        epochs = []
        while standing:
            done, _ = await asyncio.wait(standing, return_when=asyncio.FIRST_COMPLETED)
            (winner,) = done
            guard, tree = winner.result(), standing.pop(winner)
            epochs.append(guard.version)
            await tree.multi([guard, Create(f"/by-{guard.version}", b"")])
            await tree.close()
        assert epochs == [1, 2, 3, 4]


async def test_a_controller_that_was_replaced_can_write_nothing(stores):
    """As one that was paused: its session seems to live, but another was elected meanwhile."""
    async with opened(stores) as store:
        paused, other = await store.connect(), await store.connect()
        old = await win(paused, 1)
        await paused.multi([old, Create("/state", b"old")])
        # Its node is gone while its own session is not: harder than an expired session, which every store refuses.
        await other.multi([Delete(CONTROLLER)])
        new = await win(other, 2)
        await other.multi([new, Set("/state", b"new")])
        metadata = await ground(paused)
        metadata.guard = lambda: (old,)
        for late in ([Set("/state", b"late")], [Create("/late", b"")], [Delete("/state")], []):
            with pytest.raises(ConflictError) as caught:
                await paused.multi([old, *late])
            assert caught.value.path == CONTROLLER_EPOCH
        with pytest.raises(ConflictError):
            await metadata.create_topics([NewTopic("late", [ALONE])])
        assert metadata.image.topics == {}
        assert (await other.get("/state")).data == b"new"
        assert await incumbent(other) == 2


async def test_a_new_session_of_the_same_broker_takes_the_place_of_the_old_and_fences_it(stores):
    """A process killed and started again at once: its old session is not over yet, but it is itself."""
    async with opened(stores) as store:
        before, after = await store.connect(), await store.connect()
        old = await win(before, 1)
        new = await stand(after, 1)
        assert new.version == old.version + 1
        with pytest.raises(ConflictError):
            await before.multi([old, Create("/late", b"")])
        await before.close()  # whose end takes nothing of the new one along
        assert await incumbent(after) == 1
        await after.multi([new, Create("/now", b"")])


async def test_a_controller_writes_metadata_under_its_guard(stores):
    async with opened(stores) as store:
        tree = await store.connect()
        guard = await win(tree, 1)
        metadata = await ground(tree)
        metadata.guard = lambda: (guard,)
        # In several parts, each as large as it may be: the guard must still fit.
        await metadata.create_topics([NewTopic("wide", [ALONE] * 8_000)])
        assert len(metadata.image.topics["wide"].partitions) == 8_000
        assert len((await tree.snapshot("/topics")).nodes) == 2
        assert MULTI_BYTES_MAX < 8_000 * 100


async def test_a_victory_whose_answer_was_lost_counts():
    tree = await MemoryStore().connect()
    await ground(tree)
    multi = tree.multi

    async def lose_the_answer(operations):
        if any(operation.path == CONTROLLER for operation in operations):
            tree.fail_next(Fault.ANSWER_LOST)
        return await multi(operations)

    tree.multi = lose_the_answer
    with pytest.raises(ConnectionLostError):
        await stand(tree, 1)
    tree.multi = multi
    guard = await stand(tree, 1)
    assert guard.version == 1
    await tree.multi([guard, Create("/a", b"")])
    assert (await tree.get(CONTROLLER_EPOCH)).version == 1
