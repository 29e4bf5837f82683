"""What every coordination store promises (coordination/tree.py), run over each implementation."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from penstock.coordination.tree import (
    CHANGES_KEPT_MAX,
    MULTI_BYTES_MAX,
    BadRequestError,
    Check,
    Create,
    Delete,
    FeedGapError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
    Set,
    VersionConflictError,
)


@asynccontextmanager
async def opened(stores):
    store = await stores.open()
    try:
        yield store
    finally:
        await store.close()


async def test_a_node_is_created_set_and_deleted_with_its_numbers(stores):
    async with opened(stores) as store:
        tree = await store.connect()
        created = await tree.multi([Create("/a", b"1")])
        node = await tree.get("/a")
        assert (node.data, node.version, node.created, node.modified) == (
            b"1",
            0,
            created.number,
            created.number,
        )
        changed = await tree.multi([Set("/a", b"2", version=0)])
        node = await tree.get("/a")
        assert (node.data, node.version, node.created, node.modified) == (
            b"2",
            1,
            created.number,
            changed.number,
        )
        assert changed.number > created.number
        await tree.multi([Delete("/a", version=1)])
        assert await tree.get("/a") is None


async def test_a_creation_number_never_comes_twice(stores):
    async with opened(stores) as store:
        tree = await store.connect()
        numbers = []
        for _ in range(3):
            await tree.multi([Create("/a", b"", ephemeral=True)])
            numbers.append((await tree.get("/a")).created)
            await tree.multi([Delete("/a")])
        store = await stores.reopen(store)
        tree = await store.connect()
        await tree.multi([Create("/a", b"", ephemeral=True)])
        numbers.append((await tree.get("/a")).created)
        assert numbers == sorted(set(numbers))
        await store.close()


async def test_names_may_be_any_printable_text(stores):
    async with opened(stores) as store:
        tree = await store.connect()
        for name in ("...", ".a", "a..", "a b", "größe", "-", "%"):
            await tree.multi([Create(f"/{name}", name.encode())])
            assert (await tree.get(f"/{name}")).data == name.encode()


async def test_children_are_listed_by_name(stores):
    async with opened(stores) as store:
        tree = await store.connect()
        await tree.multi([Create("/a", b""), Create("/a/y", b""), Create("/a/x", b""), Create("/ab", b"")])
        assert await tree.children("/a") == ("x", "y")
        assert await tree.children("/") == ("a", "ab")
        assert await tree.children("/ab") == ()
        with pytest.raises(NoNodeError):
            await tree.children("/none")


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        (Create("/a", b""), NodeExistsError),
        (Create("/none/b", b""), NoNodeError),
        (Set("/none", b""), NoNodeError),
        (Set("/a", b"", version=7), VersionConflictError),
        (Delete("/none"), NoNodeError),
        (Delete("/a", version=7), VersionConflictError),
        (Delete("/p"), NotEmptyError),
        (Check("/none"), NoNodeError),
        (Check("/a", version=7), VersionConflictError),
        (Create("/e/child", b""), BadRequestError),
        (Create("relative", b""), BadRequestError),
        (Create("/a/", b""), BadRequestError),
        (Create("/a//b", b""), BadRequestError),
        (Create("/..", b""), BadRequestError),
        (Create("/a\0", b""), BadRequestError),
        (Create("/a/./b", b""), BadRequestError),
        (Create("/\ud800", b""), BadRequestError),
        (Create("/" + "x" * 2000, b""), BadRequestError),
        (Create("/", b""), BadRequestError),
        (Delete("/"), BadRequestError),
        (Create("/big", bytes(MULTI_BYTES_MAX)), BadRequestError),
    ],
)
async def test_a_refused_multi_changes_nothing(stores, operation, error):
    async with opened(stores) as store:
        tree = await store.connect()
        await tree.multi(
            [Create("/a", b"1"), Create("/p", b""), Create("/p/c", b""), Create("/e", b"", ephemeral=True)]
        )
        before = await tree.snapshot()
        with pytest.raises(error):
            await tree.multi([Set("/a", b"2"), Create("/new", b""), operation])
        assert await tree.snapshot() == before


async def test_later_operations_see_what_earlier_ones_did(stores):
    async with opened(stores) as store:
        tree = await store.connect()
        await tree.multi(
            [Create("/a", b""), Create("/a/b", b""), Set("/a/b", b"1", version=0), Check("/a/b", 1)]
        )
        first = await tree.get("/a")
        change = await tree.multi([Delete("/a/b"), Delete("/a"), Create("/a", b"again"), Create("/a/c", b"")])
        again = await tree.get("/a")
        assert (again.data, again.version, again.created) == (b"again", 0, change.number)
        assert again.created > first.created
        assert await tree.children("/a") == ("c",)


async def test_a_multi_of_checks_is_no_change(stores):
    async with opened(stores) as store:
        tree = await store.connect()
        made = await tree.multi([Create("/a", b"")])
        checked = await tree.multi([Check("/a", version=0)])
        assert (checked.number, checked.events) == (made.number, ())
        fleeting = await tree.multi([Create("/b", b""), Delete("/b")])
        assert (fleeting.number, fleeting.events) == (made.number, ())


async def test_of_two_writers_with_the_same_version_one_wins(stores):
    async with opened(stores) as store:
        tree, other = await store.connect(), await store.connect()
        await tree.multi([Create("/a", b"")])
        outcomes = await asyncio.gather(
            tree.multi([Set("/a", b"one", version=0)]),
            other.multi([Set("/a", b"two", version=0)]),
            return_exceptions=True,
        )
        lost = [outcome for outcome in outcomes if isinstance(outcome, VersionConflictError)]
        assert len(lost) == 1
        assert (await tree.get("/a")).version == 1


async def test_a_snapshot_is_the_subtree_in_path_order(stores):
    async with opened(stores) as store:
        tree = await store.connect()
        await tree.multi([Create("/b", b""), Create("/a", b"x"), Create("/a/2", b""), Create("/a/1", b"y")])
        change = await tree.multi([Create("/c", b"")])
        snapshot = await tree.snapshot("/a")
        assert list(snapshot.nodes) == ["/a", "/a/1", "/a/2"]
        assert snapshot.nodes["/a/1"].data == b"y"
        assert snapshot.number == change.number
        assert set((await tree.snapshot()).nodes) == {"/", "/a", "/a/1", "/a/2", "/b", "/c"}
        with pytest.raises(NoNodeError):
            await tree.snapshot("/none")


async def test_changes_come_in_order_with_whole_nodes_and_their_predecessor(stores):
    async with opened(stores) as store:
        writer, watcher = await store.connect(), await store.connect()
        start = (await watcher.snapshot()).number
        made = [
            await writer.multi([Create("/a", b"1"), Create("/a/b", b"")]),
            await writer.multi([Set("/a", b"2"), Delete("/a/b")]),
        ]
        feed = watcher.changes(start)
        seen = [await anext(feed), await anext(feed)]
        assert seen == made
        assert [change.previous for change in seen] == [start, made[0].number]
        assert [(event.path, event.node and event.node.data) for event in seen[1].events] == [
            ("/a", b"2"),
            ("/a/b", None),
        ]
        waiting = asyncio.ensure_future(anext(feed))
        third = await writer.multi([Create("/c", b"")])
        assert await waiting == third


async def test_a_watcher_that_asks_for_what_is_gone_or_never_was_is_told(stores):
    async with opened(stores) as store:
        tree = await store.connect()
        start = (await tree.snapshot()).number
        await tree.multi([Create("/a", b"")])
        for _ in range(CHANGES_KEPT_MAX):
            last = await tree.multi([Set("/a", b"")])
        with pytest.raises(FeedGapError):
            await anext(tree.changes(start))
        with pytest.raises(FeedGapError):
            await anext(tree.changes(last.number + 1))
        assert (await anext(tree.changes(last.number - 1))).number == last.number


async def test_applying_the_feed_to_a_snapshot_gives_the_tree(stores):
    async with opened(stores) as store:
        tree = await store.connect()
        await tree.multi([Create("/a", b"1"), Create("/a/b", b"2")])
        snapshot = await tree.snapshot()
        await tree.multi([Delete("/a/b"), Set("/a", b"3")])
        last = await tree.multi([Create("/a/c", b"4"), Create("/d", b"", ephemeral=True)])
        nodes, number = dict(snapshot.nodes), snapshot.number
        async for change in tree.changes(number):
            assert change.previous == number
            number = change.number
            for event in change.events:
                if event.node is None:
                    del nodes[event.path]
                else:
                    nodes[event.path] = event.node
            if number == last.number:
                break
        assert nodes == dict((await tree.snapshot()).nodes)


async def test_ephemeral_nodes_vanish_with_their_session_and_others_are_told(stores):
    async with opened(stores) as store:
        short, other = await store.connect(), await store.connect()
        change = await short.multi([Create("/e1", b"", ephemeral=True), Create("/stays", b"")])
        assert (await other.get("/e1")).owner == short.session
        assert (await other.get("/stays")).owner == 0
        await short.close()
        await short.until_expired()
        gone = await anext(other.changes(change.number))
        assert [(event.path, event.node) for event in gone.events] == [("/e1", None)]
        assert await other.children("/") == ("stays",)


async def test_a_closed_session_can_do_nothing_more(stores):
    async with opened(stores) as store:
        tree, other = await store.connect(), await store.connect()
        watching = asyncio.ensure_future(anext(tree.changes(0)))
        await asyncio.sleep(0)
        await tree.close()
        await tree.close()
        with pytest.raises(SessionExpiredError):
            await watching
        for call in (tree.get("/"), tree.children("/"), tree.snapshot(), tree.multi([Create("/a", b"")])):
            with pytest.raises(SessionExpiredError):
                await call
        assert await other.get("/a") is None


async def test_lasting_nodes_survive_a_restart_and_ephemeral_ones_do_not(stores):
    async with opened(stores) as store:
        tree = await store.connect()
        await tree.multi([Create("/a", b"1"), Create("/a/b", b"\0\xff"), Create("/e", b"", ephemeral=True)])
        await tree.multi([Set("/a", b"2")])
        # A lasting node whose path an ephemeral one took must not come back.
        await tree.multi([Create("/turned", b"lasting")])
        await tree.multi([Delete("/turned"), Create("/turned", b"fleeting", ephemeral=True)])
        before = {path: node for path, node in (await tree.snapshot()).nodes.items() if not node.owner}
        number = (await tree.snapshot()).number
        store = await stores.reopen(store)
        tree = await store.connect()
        after = await tree.snapshot()
        assert dict(after.nodes) == before
        assert after.number >= number
        await store.close()


async def test_a_cancelled_writer_leaves_the_tree_whole(stores):
    async with opened(stores) as store:
        tree = await store.connect()
        await tree.multi([Create("/a", b"")])
        start = (await tree.snapshot()).number
        writing = asyncio.ensure_future(tree.multi([Set("/a", b"cancelled")]))
        await asyncio.sleep(0)
        writing.cancel()
        after = await tree.multi([Create("/b", b"")])
        # Whether or not the cancelled write happened, everybody must agree on it.
        node = await tree.get("/a")
        assert (node.data, node.version) in {(b"", 0), (b"cancelled", 1)}
        assert after.number - start == node.version + 1
        store = await stores.reopen(store)
        tree = await store.connect()
        assert await tree.get("/a") == node
        await store.close()
