"""ZooKeeper's own side of the store: many writers, bounds of the feed and of a multi, chroot, passwords, eviction."""

import asyncio
import random
from contextlib import asynccontextmanager

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.serialization import Transaction

from penstock.coordination.tree import (
    MULTI_BYTES_MAX,
    OPERATION_BYTES,
    Create,
    Delete,
    SessionExpiredError,
    Set,
    VersionConflictError,
)
from penstock.coordination.zookeeper import (
    AccessDeniedError,
    Address,
    AddressError,
    ZooKeeperStore,
    layout,
    link,
    writing,
)

SESSION_TIMEOUT_S = 30.0
WRITERS = 4
INCREMENTS = 25


@asynccontextmanager
async def connected(address, count=1, **options):
    store = ZooKeeperStore(address, **{"session_timeout_s": SESSION_TIMEOUT_S, **options})
    try:
        yield [await store.connect() for _ in range(count)]
    finally:
        await store.close()


@asynccontextmanager
async def bare(address):
    """ZooKeeper as it is, without us."""
    client = KazooClient(address.hosts)
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, client.start)
    try:
        yield client
    finally:
        await loop.run_in_executor(None, client.stop)
        client.close()


async def _increment(tree, name, rng):
    """Add one to the shared counter, many times, and something of our own each time."""
    for number in range(INCREMENTS):
        while True:
            node = await tree.get("/counter")
            own = Create(f"/{name}-{number}", b"", ephemeral=rng.random() < 0.3)
            try:
                await tree.multi([Set("/counter", b"%d" % (int(node.data) + 1), node.version), own])
                break
            except VersionConflictError:
                continue
        if rng.random() < 0.5:
            await tree.multi([Delete(f"/{name}-{number}")])


async def _watch(tree, start):
    seen = []
    async for change in tree.changes(start):
        seen.append(change)
        if any(event.path == "/done" for event in change.events):
            return seen
    raise AssertionError


@pytest.mark.parametrize("seed", range(3))
async def test_many_writers_lose_nothing_and_every_watcher_sees_the_same(zookeeper_stores, seed):
    async with connected(zookeeper_stores.address, WRITERS + 2) as trees:
        *writers, early, _ = trees
        start = await early.multi([Create("/counter", b"0")])
        watching = [asyncio.ensure_future(_watch(tree, start.number)) for tree in trees]
        await asyncio.gather(
            *(
                _increment(tree, name, random.Random(f"{seed}-{name}"))
                for name, tree in enumerate(writers, start=1)
            )
        )
        # The ends of sessions take their place among the others.
        await asyncio.gather(*(tree.close() for tree in writers[:2]))
        await early.multi([Create("/done", b"")])
        first, *others = await asyncio.gather(*watching[2:])
        assert all(seen == first for seen in others)
        number, nodes = start.number, {"/counter": b"0"}
        for change in first:
            assert (change.previous, change.number) == (number, number + 1)
            number = change.number
            for event in change.events:
                if event.node is None:
                    del nodes[event.path]
                else:
                    nodes[event.path] = event.node.data
        assert nodes.pop("/counter") == b"%d" % (WRITERS * INCREMENTS)
        snapshot = await early.snapshot()
        left = {path for path in snapshot.nodes if path not in {"/", "/counter"}}
        assert set(nodes) == left
        assert all(
            node.owner not in {tree.session for tree in writers[:2]} for node in snapshot.nodes.values()
        )
        for ended in watching[:2]:
            with pytest.raises(SessionExpiredError):
                await ended


async def test_the_feed_stays_within_its_bounds(zookeeper_stores, monkeypatch):
    monkeypatch.setattr(writing, "CHANGES_KEPT_MAX", 20)
    monkeypatch.setattr(writing, "FEED_BYTES_MAX", 50_000)
    address = zookeeper_stores.address
    async with connected(address, 2) as (tree, other), bare(address) as client:

        def kept():
            names = client.get_children(f"{address.chroot}/feed")
            lengths = [len(client.get(f"{address.chroot}/feed/{name}")[0]) for name in names]
            return sorted(map(int, names)), sum(lengths)

        await tree.multi([Create("/a", b"")])
        for number in range(30):
            last = await (tree if number % 2 else other).multi([Set("/a", b"x" * 10)])
        numbers, _ = await asyncio.to_thread(kept)
        assert numbers == list(range(last.number - 19, last.number + 1))
        for _ in range(12):
            last = await tree.multi([Set("/a", b"x" * 10_000)])
        numbers, size_bytes = await asyncio.to_thread(kept)
        assert size_bytes <= 50_000
        assert numbers == list(range(last.number - len(numbers) + 1, last.number + 1))
        assert len(numbers) >= 4


@pytest.mark.parametrize(
    "sizes",
    [
        [MULTI_BYTES_MAX - OPERATION_BYTES - 10],
        [0] * ((MULTI_BYTES_MAX - 100_000) // (OPERATION_BYTES + 10)),
    ],
    ids=["one large", "many small"],
)
async def test_the_largest_multi_fits_into_a_request(zookeeper_stores, sizes):
    """With the longest chroot, and with access lists."""
    chroot = zookeeper_stores.address.chroot
    address = Address(
        zookeeper_stores.address.hosts, f"{chroot}/{'x' * (layout.CHROOT_CHARS_MAX - 1 - len(chroot))}"
    )
    async with connected(address, credential="penstock:secret") as (tree,):
        made = [Create(f"/{number:09d}"[:10], bytes(size)) for number, size in enumerate(sizes)]
        change = await tree.multi(made)
        assert len(change.events) == len(made)
        assert len(await tree.children("/")) == len(made)


async def test_the_size_of_a_request_is_not_underestimated(zookeeper_stores):
    async with connected(zookeeper_stores.address) as (tree,):
        sent = []
        operations = [Create("/größe", b"123"), Set("/größe", b"1"), Create("/b", b""), Delete("/b")]
        request = tree._link._client.transaction()
        for operation in operations:
            tree._link._add(request, operation)
            sent.append(len(Transaction(request.operations).serialize()))
            assert 0 <= layout.request_bytes(operations[: len(sent)]) - 8 - sent[-1] <= 16 * len(sent)


async def test_chroots_are_worlds_of_their_own(zookeeper_stores):
    address = zookeeper_stores.address
    other = Address(address.hosts, address.chroot + "-other/below/that")
    async with connected(address) as (first,), connected(other) as (second,), bare(address) as client:
        await first.multi([Create("/a", b"1")])
        await second.multi([Create("/a", b"2")])
        assert (await first.get("/a")).data == b"1"
        assert (await second.get("/a")).data == b"2"
        assert sorted(await asyncio.to_thread(client.get_children, other.chroot)) == [
            "feed",
            "sessions",
            "tree",
            "version",
        ]


@pytest.mark.parametrize("wrong", ["penstock:guessed", "somebody:secret", None])
async def test_only_who_knows_the_password_gets_in(zookeeper_stores, wrong):
    address = zookeeper_stores.address
    async with connected(address, credential="penstock:secret") as (tree,):
        await tree.multi([Create("/a", b"")])
        store = ZooKeeperStore(address, session_timeout_s=SESSION_TIMEOUT_S, credential=wrong)
        with pytest.raises(AccessDeniedError, match=r"does not let us in: .*penstock\.zookeeper\.digest"):
            await store.connect()
        await store.close()
        async with connected(address, credential="penstock:secret") as (again,):
            await again.multi([Set("/a", b"1")])
        assert (await tree.get("/a")).data == b"1"


async def test_a_session_that_an_operator_removes_can_write_nothing_more(zookeeper_stores):
    address = zookeeper_stores.address
    async with connected(address, 2) as (tree, other), bare(address) as client:
        made = await tree.multi([Create("/mine", b"", ephemeral=True)])
        await asyncio.to_thread(client.delete, f"{address.chroot}/sessions/{tree.session:016x}")
        await tree.until_expired()
        with pytest.raises(SessionExpiredError):
            await tree.multi([Create("/late", b"")])
        assert [event.path for event in (await anext(other.changes(made.number))).events] == ["/mine"]


async def test_it_is_refused_even_when_it_has_not_noticed(zookeeper_stores):
    address = zookeeper_stores.address
    async with connected(address, 2) as (tree, other), bare(address) as client:
        tree._follower.cancel()
        await asyncio.to_thread(client.delete, f"{address.chroot}/sessions/{tree.session:016x}")
        with pytest.raises(SessionExpiredError):
            await tree.multi([Create("/late", b"")])
        assert await other.get("/late") is None


async def test_what_somebody_wrote_past_the_feed_does_not_stop_us(zookeeper_stores):
    address = zookeeper_stores.address
    async with connected(address) as (tree,), bare(address) as client:
        await tree.multi([Create("/a", b"1")])
        data, _ = await asyncio.to_thread(client.get, f"{address.chroot}/tree/a")
        await asyncio.to_thread(client.set, f"{address.chroot}/tree/a", data)
        with pytest.raises(VersionConflictError):
            await tree.multi([Set("/a", b"2", version=0)])
        await tree.multi([Set("/a", b"2", version=1)])
        assert (await tree.get("/a")).data == b"2"


def test_addresses():
    def parsed(text):
        address = Address.parse(text)
        return address.hosts, address.chroot

    assert parsed("localhost") == ("localhost:2181", "")
    assert parsed("a:1, b:2/x/y/") == ("a:1,b:2", "/x/y")
    assert parsed("[::1]:3/") == ("[::1]:3", "")
    assert parsed("[::1]") == ("[::1]:2181", "")
    for wrong in ("", "a:b", ":1", "a:1,", "::1:3", "a:99999", "a:1//x", "a:1/../x", "a:1/" + "x" * 100):
        with pytest.raises(AddressError):
            Address.parse(wrong)


def test_a_watch_that_is_asked_for_again_is_the_same():
    def watch():
        pass

    assert len({link._Watcher(print, watch), link._Watcher(print, watch), link._Watcher(print, print)}) == 2
