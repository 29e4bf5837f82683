"""What is special to ZooKeeper: lost connections and answers, ended sessions, a server that dies and comes back."""

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager

import pytest
from tests.unit.coordination.gate import gate

from penstock.coordination.tree import (
    ConnectionLostError,
    Create,
    FeedGapError,
    SessionExpiredError,
    Set,
)
from penstock.coordination.zookeeper import Address, ZooKeeperStore, handler, writing
from penstock.coordination.zookeeper.server_process import zookeeper as running_zookeeper

# One that tests wait for, and one that must not end however busy the machine is.
SHORT_SESSION_S = 2.0
LONG_SESSION_S = 300.0  # longer than any machine takes

CLIENT = """
import asyncio, sys
from penstock.coordination.tree import ConnectionLostError, Create, SessionExpiredError
from penstock.coordination.zookeeper import Address, ZooKeeperStore

async def main():
    store = ZooKeeperStore(Address.parse(sys.argv[1]), session_timeout_s=float(sys.argv[2]))
    tree = await store.connect()
    await tree.multi([Create("/mine", b"", ephemeral=True)])
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    while True:
        try:
            await tree.multi([Create("/late", b"")])
            print("written", flush=True)
        except SessionExpiredError:
            break
        except ConnectionLostError:
            await asyncio.sleep(0.05)
    await tree.until_expired()
    for call in (tree.get("/"), tree.children("/"), tree.snapshot(), tree.multi([Create("/late", b"")])):
        try:
            await call
            print("answered", flush=True)
        except SessionExpiredError:
            pass
    print("expired", flush=True)
    await store.close()

asyncio.run(main())
"""


@asynccontextmanager
async def connected(stores, count=1, **options):
    store = await stores.open(**options)
    try:
        yield [await store.connect() for _ in range(count)]
    finally:
        await store.close()


@asynccontextmanager
async def behind_a_gate(stores, **options):
    """A session that reaches the server only through a gate, and the gate."""
    hosts, _, port = stores.address.hosts.rpartition(":")
    async with gate(int(port)) as proxy:
        store = ZooKeeperStore(
            Address(f"{hosts}:{proxy.port}", stores.address.chroot),
            **{"session_timeout_s": LONG_SESSION_S, **options},
        )
        try:
            yield await store.connect(), proxy
        finally:
            await store.close()


async def reconnected(tree):
    while True:
        try:
            return await tree.snapshot()
        except ConnectionLostError:
            await asyncio.sleep(0.02)


async def until(tree, number, path):
    """The next change behind `number` that concerns the path."""
    async for change in tree.changes(number):
        for event in change.events:
            if event.path == path:
                return change
    raise AssertionError


async def test_a_process_that_sleeps_longer_than_its_session_wakes_up_without_it(zookeeper_stores):
    async with connected(zookeeper_stores) as (watcher,):
        start = (await watcher.snapshot()).number
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-c", CLIENT, str(zookeeper_stores.address), str(SHORT_SESSION_S)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert await process.stdout.readline() == b"ready\n"
        made = await until(watcher, start, "/mine")
        os.kill(process.pid, signal.SIGSTOP)
        gone = await until(watcher, made.number, "/mine")
        assert [(event.path, event.node) for event in gone.events] == [("/mine", None)]
        os.kill(process.pid, signal.SIGCONT)
        said, _ = await process.communicate(b"write\n")
        assert said == b"expired\n"
        assert await watcher.get("/late") is None


async def test_a_lost_answer_leaves_it_open_and_is_not_repeated(zookeeper_stores):
    async with (
        connected(zookeeper_stores) as (other,),
        behind_a_gate(zookeeper_stores) as (tree, doors),
    ):
        made = await tree.multi([Create("/a", b"0"), Create("/mine", b"", ephemeral=True)])
        doors.hold_answers()
        writing = asyncio.ensure_future(tree.multi([Set("/a", b"1")]))
        happened = await until(other, made.number, "/a")
        doors.cut()
        with pytest.raises(ConnectionLostError):
            await writing
        # The session is the same as before, and nothing was done twice.
        snapshot = await reconnected(tree)
        assert snapshot.nodes["/mine"].owner == tree.session
        assert (snapshot.nodes["/a"].data, snapshot.nodes["/a"].version) == (b"1", 1)
        assert snapshot.number == happened.number
        assert await anext(tree.changes(made.number)) == happened


async def test_a_lost_request_leaves_it_open_too_and_did_not_happen(zookeeper_stores):
    async with behind_a_gate(zookeeper_stores) as (tree, doors):
        made = await tree.multi([Create("/a", b"0")])
        doors.hold_requests()
        writing = asyncio.ensure_future(tree.multi([Set("/a", b"1")]))
        await doors.holds.wait()
        doors.cut()
        with pytest.raises(ConnectionLostError):
            await writing
        assert (await reconnected(tree)).number == made.number
        assert (await tree.multi([Set("/a", b"2", version=0)])).previous == made.number


async def test_a_session_cut_off_for_too_long_is_over_for_good(zookeeper_stores):
    async with (
        connected(zookeeper_stores) as (other,),
        behind_a_gate(zookeeper_stores, session_timeout_s=SHORT_SESSION_S) as (tree, doors),
    ):
        made = await tree.multi([Create("/mine", b"", ephemeral=True)])
        watching = asyncio.ensure_future(anext(tree.changes(made.number)))
        doors.cut(refuse=True)
        while True:
            try:
                await tree.get("/mine")
            except ConnectionLostError:
                break
        gone = await until(other, made.number, "/mine")
        # Cut off, it cannot know yet.
        with pytest.raises(ConnectionLostError):
            await tree.multi([Create("/late", b"")])
        doors.admit()
        await tree.until_expired()
        with pytest.raises(SessionExpiredError):
            await watching
        for call in (tree.get("/"), tree.children("/"), tree.snapshot(), tree.multi([Create("/late", b"")])):
            with pytest.raises(SessionExpiredError):
                await call
        assert (await other.snapshot()).number == gone.number


async def test_a_watcher_that_fell_behind_the_feed_is_told_and_has_the_tree(zookeeper_stores, monkeypatch):
    monkeypatch.setattr(writing, "CHANGES_KEPT_MAX", 8)
    async with (
        connected(zookeeper_stores) as (writer,),
        behind_a_gate(zookeeper_stores) as (tree, doors),
    ):
        start = await writer.multi([Create("/a", b"")])
        assert (await tree.get("/a")).data == b""
        watching = asyncio.ensure_future(anext(tree.changes(start.number)))
        doors.cut(refuse=True)
        for number in range(20):
            last = await writer.multi([Set("/a", b"%d" % number), Create(f"/{number}", b"")])
        doors.admit()
        with pytest.raises(FeedGapError):
            await watching
        assert await reconnected(tree) == await writer.snapshot()
        await writer.multi([Set("/a", b"more")])
        assert (await anext(tree.changes(last.number))).events[0].node.data == b"more"


async def test_one_that_lags_within_the_feed_misses_nothing(zookeeper_stores):
    async with (
        connected(zookeeper_stores) as (writer,),
        behind_a_gate(zookeeper_stores) as (tree, doors),
    ):
        start = await writer.multi([Create("/a", b"")])
        await tree.snapshot()
        doors.cut(refuse=True)
        made = [await writer.multi([Set("/a", b"%d" % number)]) for number in range(100)]
        doors.admit()
        feed = tree.changes(start.number)
        assert [await anext(feed) for _ in made] == made


async def test_a_server_that_accepts_and_never_answers_is_asked_again(zookeeper_stores, monkeypatch):
    monkeypatch.setattr(handler, "SILENCE_S_MAX", 0.2)
    async with behind_a_gate(zookeeper_stores) as (tree, proxy):
        session = tree.session
        proxy.ignore_next()
        proxy.cut()
        await proxy.holds.wait()
        with pytest.raises(ConnectionLostError):
            await tree.snapshot()
        await reconnected(tree)
        assert tree.session == session


async def test_the_server_is_killed_and_comes_back():
    with running_zookeeper() as server:
        store = ZooKeeperStore(Address.parse(f"{server.connect}/penstock"), session_timeout_s=LONG_SESSION_S)
        writer, watcher = await store.connect(), await store.connect()
        start = await writer.multi([Create("/a", b""), Create("/mine", b"", ephemeral=True)])
        made = [await writer.multi([Set("/a", b"%d" % number)]) for number in range(10)]
        server.kill()
        while True:
            try:
                await writer.get("/a")
            except ConnectionLostError:
                break
        # Whoever asks is told at once; nobody waits for a server that may never come back.
        for call in (
            writer.get("/a"),
            writer.children("/"),
            writer.snapshot(),
            writer.multi([Set("/a", b"")]),
        ):
            with pytest.raises(ConnectionLostError):
                await call
        await asyncio.get_running_loop().run_in_executor(None, server.start)
        snapshot = await reconnected(writer)
        assert snapshot.nodes["/mine"].owner == writer.session
        made.append(await writer.multi([Set("/a", b"after")]))
        feed = watcher.changes(start.number)
        assert [await anext(feed) for _ in made] == made
        server.stop()
        await store.close()


async def test_nobody_answers():
    store = ZooKeeperStore(Address.parse("127.0.0.1:1"), connection_timeout_s=0.2)
    with pytest.raises(ConnectionLostError, match=r"127\.0\.0\.1:1 does not answer"):
        await store.connect()
