"""One session with ZooKeeper: a replica of the tree in memory that follows the feed, and multis planned against it.

A multi is planned here, by the same code as in the other stores, so it is refused with the same errors and its change
carries whole nodes. Then it is sent as one ZooKeeper multi, guarded by the feed's head (`writing`).

When somebody else was faster, the head is not as expected; nothing happened, and the multi is planned anew from the
newer state. When the connection is lost before the answer, whether it happened is open, and the caller is told so: it
is never repeated here.

Ephemeral nodes are ordinary ones that carry their session. When a session ends, its own node, which ZooKeeper removes
by itself, tells every other session, and each tries to delete what it left behind in one multi; the head lets one of
them win. So the end of a session takes its place in the feed like any other change, and until then the nodes are
there for everybody.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.coordination.feed import ChangeFeed
from penstock.coordination.state import TreeState
from penstock.coordination.tree import (
    Change,
    ConnectionLostError,
    CoordinationError,
    Event,
    FeedGapError,
    Node,
    Operation,
    SessionExpiredError,
    Snapshot,
    Tree,
    check_path,
)
from penstock.coordination.zookeeper.layout import EMPTY_HEAD, Head, Layout, LayoutError
from penstock.coordination.zookeeper.link import Link
from penstock.coordination.zookeeper.loading import Reader
from penstock.coordination.zookeeper.writing import AT_HEAD, AT_SESSION, Writer

logger = logging.getLogger(__name__)

# Reads of the whole tree within one multi: more than one means that somebody writes past the feed.
_RELOADS_MAX = 3
# Before the feed is looked at again after an answer that did not come while the connection stands.
_AGAIN_S = 0.2

# How long a session that is closed waits for ZooKeeper to hear of it.
_FAREWELL_S = 2.0

Plan = Callable[[int], tuple[Event, ...]]


class ZooKeeperTree:
    """Made by `ZooKeeperStore.connect`; see `Tree`."""

    def __init__(self, link: Link, layout: Layout) -> None:
        self._link = link
        self._layout = layout
        self._reader = Reader(link, layout)
        self._writer = Writer(link, layout)
        self._state = TreeState()
        self._feed = ChangeFeed()
        self._head = EMPTY_HEAD
        self._turn = asyncio.Lock()
        self._reading = asyncio.Lock()
        self._news = asyncio.Event()
        self._expired = asyncio.Event()
        self._closed = False
        self._follower: asyncio.Task[None] | None = None
        # Sessions whose nodes were seen, those that live, and whether to look again.
        self._owners: set[int] = set()
        self._alive: set[int] = set()
        self._sessions_changed = True

    async def begin(self) -> None:
        """Announce the session, read the tree, and follow it from there."""
        await self._link.create(self._layout.session(self.session), b"", ephemeral=True)
        await self._load()
        await self._bury_the_dead()
        self._follower = asyncio.get_running_loop().create_task(self._follow(), name="coordination feed")
        # However it ends: nobody hears of changes any more.
        self._follower.add_done_callback(lambda _: self._end())
        self._news.set()

    def link_moved(self) -> None:
        """The connection came, went, or the session is over. With a connection go its watches."""
        if self._link.over:
            self._end()
        self._sessions_moved()

    # -- Tree --

    @property
    def session(self) -> int:
        return self._link.session

    @property
    def closed(self) -> bool:
        return self._closed

    async def get(self, path: str) -> Node | None:
        check_path(path)
        await self._refresh()
        return self._state.get(path)

    async def children(self, path: str) -> tuple[str, ...]:
        check_path(path)
        await self._refresh()
        return self._state.children(path)

    async def snapshot(self, path: str = "/") -> Snapshot:
        check_path(path)
        await self._refresh()
        return self._state.snapshot(path, self._feed.last)

    async def multi(self, operations: Sequence[Operation]) -> Change:
        return await self._commit(
            lambda number: self._state.plan(operations, number, self.session), operations
        )

    async def changes(self, after: int) -> AsyncIterator[Change]:
        if after > self._feed.last:
            await self._refresh()  # a number that another session was given
        async for change in self._feed.after(after, self._check_session):
            yield change

    async def until_expired(self) -> None:
        await self._expired.wait()

    async def close(self) -> None:
        if not self._link.over:
            # Others need not wait for ZooKeeper's notice when we can say it ourselves.
            with suppress(CoordinationError, TimeoutError):
                async with asyncio.timeout(_FAREWELL_S):
                    await self._bury(self.session)
        self._end()
        if self._follower is not None:
            self._follower.cancel()
        await self._link.close()
        self._closed = True

    # -- writing --

    async def _commit(self, plan: Plan, operations: Sequence[Operation] | None = None) -> Change:
        """`operations` are what brings the planned events about; None: deletions."""
        async with self._turn:
            current, reloads = False, 0
            while True:
                self._check_session()
                head = self._head
                refusal: CoordinationError | None = None
                try:
                    events = plan(head.number + 1)
                except CoordinationError as error:
                    refusal, events = error, ()
                if not events:
                    # Nothing to write, so no guard: be sure of the state first.
                    if current:
                        if refusal is not None:
                            raise refusal
                        return Change(head.number, head.number, ())
                    await self._refresh()
                    current = True
                    continue
                change = Change(head.number + 1, head.number, events)
                refused, after = await self._writer.write(head, change, operations)
                if refused is None:
                    self._apply([change], after)
                    return change
                if refused.at == AT_SESSION:
                    self._end()
                elif refused.at == AT_HEAD:
                    await self._refresh()
                elif reloads < _RELOADS_MAX:
                    reloads += 1
                    await self._reload()
                else:
                    raise CoordinationError(f"ZooKeeper refuses what the feed allows: {refused}")

    # -- following --

    async def _follow(self) -> None:
        while not self._expired.is_set():
            await self._news.wait()
            self._news.clear()
            try:
                await self._catch_up()
                await self._bury_the_dead()
            except SessionExpiredError:
                self._end()
            except ConnectionLostError:
                if self._link.connected:
                    await asyncio.sleep(_AGAIN_S)
                    self._news.set()
            except Exception:
                # Deaf is worse than gone: whoever uses this session begins another.
                logger.exception("the coordination feed cannot be followed any more")
                self._end()

    async def _refresh(self) -> None:
        self._check_session()
        await self._catch_up(sync=True)
        self._check_session()

    async def _catch_up(self, *, sync: bool = False) -> None:
        async with self._reading:
            known = self._head
            head = await self._reader.head(self._news.set, sync=sync)
            if head.version < known.version:
                raise LayoutError(f"change {head.number} after {known.number}: ZooKeeper was set back")
            if head.version < self._head.version:
                return  # we have written since it was asked for
            try:
                changes = await self._reader.changes(self._feed.last, head)
            except FeedGapError:
                await self._load()
                return
            self._apply(changes, head)

    def _apply(self, changes: Sequence[Change], head: Head) -> None:
        """In one go: nobody sees the state between two changes, nor a state that is not the head's."""
        for change in changes:
            if change.number <= self._feed.last:
                continue  # ours, taken in when it was answered
            self._state.apply(change.events)
            self._feed.publish(change)
            self._owners.update(
                event.node.owner for event in change.events if event.node and event.node.owner
            )
        if head.number == self._feed.last:
            self._head = head

    async def _reload(self) -> None:
        async with self._reading:
            await self._load()

    async def _load(self) -> None:
        nodes, head = await self._reader.tree()
        if head.number < self._feed.last:
            return  # our own writes have gone further meanwhile
        self._state = TreeState(nodes.items())
        self._owners.update(node.owner for node in nodes.values() if node.owner)
        self._head = head
        if head.number != self._feed.last:
            self._feed.restart(head.number)

    # -- sessions --

    async def _bury_the_dead(self) -> None:
        """Delete what ended sessions have left behind, unless somebody else does."""
        if not self._sessions_changed and self._owners <= self._alive:
            return
        self._sessions_changed = False
        # Named before the living are counted: an owner's own node is always older than what it owns.
        owners = sorted(self._owners)
        try:
            names = await self._link.children(self._layout.sessions, self._sessions_moved)
        except CoordinationError:
            self._sessions_changed = True
            raise
        self._alive = {int(name, 16) for name in names}
        if self.session not in self._alive:
            raise SessionExpiredError(f"session {self.session:016x} is over")
        for owner in owners:
            if owner not in self._alive:
                await self._bury(owner)
                self._owners.discard(owner)

    async def _bury(self, session: int) -> None:
        change = await self._commit(lambda _: self._state.owned_by(session))
        if change.events and session != self.session:
            logger.info(
                "session %016x is over: removed %s", session, ", ".join(e.path for e in change.events)
            )

    def _sessions_moved(self) -> None:
        self._sessions_changed = True
        self._news.set()

    def _check_session(self) -> None:
        if self._expired.is_set() or self._link.over:
            raise SessionExpiredError(f"session {self.session:016x} is over")

    def _end(self) -> None:
        if not self._expired.is_set():
            self._expired.set()
            self._feed.wake()


if TYPE_CHECKING:

    def _is_a_tree(tree: ZooKeeperTree) -> Tree:
        return tree
