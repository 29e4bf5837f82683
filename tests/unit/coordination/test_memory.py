"""The simulated store fails on command, and its clients see what a remote store's clients would see."""

import asyncio

import pytest

from penstock.coordination.memory import Fault, MemoryStore
from penstock.coordination.tree import ConnectionLostError, Create, SessionExpiredError


@pytest.mark.parametrize(("fault", "happened"), [(Fault.REQUEST_LOST, False), (Fault.ANSWER_LOST, True)])
async def test_a_lost_call_may_or_may_not_have_happened(fault, happened):
    tree = await MemoryStore().connect()
    tree.fail_next(fault)
    with pytest.raises(ConnectionLostError):
        await tree.multi([Create("/a", b"")])
    assert (await tree.get("/a") is not None) is happened


async def test_a_crashed_brokers_nodes_stay_until_its_session_times_out():
    store = MemoryStore()
    crashed, other = await store.connect(session_timeout_s=0.01), await store.connect()
    change = await crashed.multi([Create("/broker", b"", ephemeral=True), Create("/kept", b"")])
    crashed.disconnect()
    with pytest.raises(ConnectionLostError):
        await crashed.get("/kept")
    assert await other.get("/broker") is not None
    gone = await anext(other.changes(change.number))
    assert [event.path for event in gone.events] == ["/broker"]
    with pytest.raises(SessionExpiredError):
        await crashed.get("/kept")
    assert await other.get("/kept") is not None


async def test_a_connection_that_returns_in_time_keeps_its_session():
    store = MemoryStore()
    tree = await store.connect(session_timeout_s=60)
    await tree.multi([Create("/broker", b"", ephemeral=True)])
    tree.disconnect()
    tree.reconnect()
    assert await tree.get("/broker") is not None


async def test_a_cut_connection_ends_the_watch_and_a_new_watch_goes_on_where_it_was():
    store = MemoryStore()
    tree, other = await store.connect(), await store.connect()
    watching = asyncio.ensure_future(anext(tree.changes(0)))
    await asyncio.sleep(0)
    tree.disconnect()
    with pytest.raises(ConnectionLostError):
        await watching
    change = await other.multi([Create("/a", b"")])
    tree.reconnect()
    assert await anext(tree.changes(0)) == change


async def test_expiry_on_command():
    store = MemoryStore()
    tree, other = await store.connect(), await store.connect()
    await tree.multi([Create("/broker", b"", ephemeral=True)])
    store.expire(tree.session)
    await tree.until_expired()
    assert await other.get("/broker") is None


async def test_delays_pass_on_the_loops_clock():
    store = MemoryStore()
    asked = []

    def delay_s():
        asked.append(asyncio.get_running_loop().time())
        return 0.0

    tree = await store.connect(delay_s=delay_s)
    await tree.multi([Create("/a", b"")])
    assert len(asked) == 2, "one delay for the request, one for the answer"
