"""The coordination store of a single node: SQLite under the same contract as ZooKeeper.

The whole tree is held in memory, where multis are planned and reads answered; SQLite makes it durable
(`embedded_database`). Statements run in one worker thread, so the event loop never waits for the disk, and one multi at
a time.

Ephemeral nodes are never written: they end with the process anyway. Change numbers are, whatever the multi did, so
that no creation number (a broker's epoch) comes twice.

After an I/O error it is open whether the last multi happened. The next one opens the file again first, which tells.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.coordination.embedded_database import EmbeddedDatabase
from penstock.coordination.feed import ChangeFeed
from penstock.coordination.state import TreeState
from penstock.coordination.tree import Change, Event, Node, Operation, SessionExpiredError, Snapshot, Tree
from penstock.core.errors import DiskFailedError, DiskFullError
from penstock.core.files import Files
from penstock.core.os_files import OsFiles

logger = logging.getLogger(__name__)


class EmbeddedStore:
    """Open with `open`; every consumer in the process has its own session from `connect`."""

    def __init__(
        self, database: EmbeddedDatabase, executor: ThreadPoolExecutor, state: TreeState, number: int
    ) -> None:
        self._database = database
        self._executor = executor
        self._state = state
        self._feed = ChangeFeed(number)
        self._turn = asyncio.Lock()
        self._write: asyncio.Future[None] | None = None
        # Only opening the file again can tell whether it reached the disk.
        self._in_doubt: Change | None = None
        self._sessions: dict[int, EmbeddedTree] = {}
        self._session_last = 0
        self._closed = False

    @classmethod
    async def open(cls, path: Path, files: Files | None = None) -> "EmbeddedStore":
        """Creates the file when it is missing; `LockedError` when another process has it open.

        `NewerFormatError` when a newer release made it.
        """
        executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="coordination")
        database = EmbeddedDatabase(path, files or OsFiles())
        try:
            nodes, number = await asyncio.get_running_loop().run_in_executor(executor, database.open)
        except BaseException:
            executor.shutdown(wait=False)
            raise
        return cls(database, executor, TreeState(nodes), number)

    async def connect(self) -> "EmbeddedTree":
        self._session_last += 1
        tree = EmbeddedTree(self, self._session_last)
        self._sessions[tree.session] = tree
        return tree

    async def close(self) -> None:
        """End every session and close the file; their ephemeral nodes were never in it. Works after a failure too."""
        if self._closed:
            return
        self._closed = True
        for tree in self._sessions.values():
            tree.mark_expired()
        self._sessions.clear()
        self._feed.wake()
        async with self._turn:
            await self._previous_write()
            try:
                await asyncio.get_running_loop().run_in_executor(self._executor, self._database.close)
            finally:
                self._executor.shutdown(wait=False)

    # -- for EmbeddedTree --

    @property
    def state(self) -> TreeState:
        return self._state

    @property
    def feed(self) -> ChangeFeed:
        return self._feed

    async def multi(self, operations: Sequence[Operation], session: int) -> Change:
        return await self._commit(lambda number: self._state.plan(operations, number, session))

    async def end(self, session: int) -> None:
        tree = self._sessions.pop(session, None)
        if tree is None:
            return
        tree.mark_expired()
        self._feed.wake()
        await self._commit(lambda _: self._state.owned_by(session))

    async def _commit(self, plan: Callable[[int], tuple[Event, ...]]) -> Change:
        async with self._turn:
            await self._previous_write()
            if self._in_doubt is not None:
                await self._open_again(self._in_doubt)
            previous = self._feed.last
            events = plan(previous + 1)
            if not events:
                return Change(previous, previous, ())
            change = Change(previous + 1, previous, events)
            loop = asyncio.get_running_loop()
            self._write = loop.run_in_executor(self._executor, self._database.write, change)
            # By callback, not after the await: a caller that is cancelled meanwhile must not leave memory behind
            # what the disk has.
            self._write.add_done_callback(lambda write: self._written(write, change))
            await asyncio.shield(self._write)
            return change

    def _written(self, write: "asyncio.Future[None]", change: Change) -> None:
        self._write = None
        failure = write.exception()
        if failure is None:
            self._happened(change)
        elif not isinstance(failure, DiskFullError):
            self._in_doubt = change

    def _happened(self, change: Change) -> None:
        self._state.apply(change.events)
        self._feed.publish(change)

    async def _open_again(self, in_doubt: Change) -> None:
        loop = asyncio.get_running_loop()
        number = await loop.run_in_executor(self._executor, self._database.open_again)
        if number not in (in_doubt.previous, in_doubt.number):
            raise DiskFailedError(f"{self._database.path} is at change {number}, not at {in_doubt.previous}")
        self._in_doubt = None
        if number == in_doubt.number:
            self._happened(in_doubt)
        logger.warning("%s was opened again after an I/O error", self._database.path)

    async def _previous_write(self) -> None:
        """A cancelled caller gives up its turn while its write is still under way: let it finish first."""
        while self._write is not None:
            await asyncio.wait({self._write})


class EmbeddedTree:
    """One session with the store; see `Tree`."""

    def __init__(self, store: EmbeddedStore, session: int) -> None:
        self._store = store
        self._session = session
        self._expired = asyncio.Event()

    @property
    def session(self) -> int:
        return self._session

    def mark_expired(self) -> None:
        self._expired.set()

    async def get(self, path: str) -> Node | None:
        self._check_session()
        return self._store.state.get(path)

    async def children(self, path: str) -> tuple[str, ...]:
        self._check_session()
        return self._store.state.children(path)

    async def snapshot(self, path: str = "/") -> Snapshot:
        self._check_session()
        return self._store.state.snapshot(path, self._store.feed.last)

    async def multi(self, operations: Sequence[Operation]) -> Change:
        self._check_session()
        return await self._store.multi(operations, self._session)

    def changes(self, after: int) -> AsyncIterator[Change]:
        return self._store.feed.after(after, self._check_session)

    async def until_expired(self) -> None:
        await self._expired.wait()

    async def close(self) -> None:
        await self._store.end(self._session)

    def _check_session(self) -> None:
        if self._expired.is_set():
            raise SessionExpiredError(f"session {self._session} is over")


if TYPE_CHECKING:

    def _is_a_tree(tree: EmbeddedTree) -> Tree:
        return tree
