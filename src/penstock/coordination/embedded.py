"""The coordination store of a single node: SQLite under the same contract as ZooKeeper.

The whole tree is held in memory, where multis are planned and reads answered; SQLite makes it durable. Statements
run in one worker thread, so the event loop never waits for the disk, and one multi at a time.

Write-ahead logging with synchronous=FULL: a commit is one append and one fsync, where a rollback journal needs three
or four, and a killed process leaves a log that the next open replays or cuts. Exclusive locking keeps a second
process out and spares the shared-memory file, whose mapping would turn an I/O error into a signal.

Ephemeral nodes are never written: they end with the process anyway. Change numbers are, whatever the multi did, so
that no creation number (a broker's epoch) comes twice.

A full disk is when settings must still change: a shorter retention, an archive's progress, a topic's deletion are what
frees it. So both files get some room at every open that stays theirs, empty pages in one and length in the other; a
write that finds the disk full moves the log into the database, and begins it anew within its length. A clean close
removes the log, so a file beside the database (the ballast) keeps its room until the next open, which may need it.

After an I/O error it is open whether the last multi happened. The next one opens the file again first, which tells.
"""

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.coordination.feed import ChangeFeed
from penstock.coordination.state import TreeState
from penstock.coordination.tree import Change, Event, Node, Operation, SessionExpiredError, Snapshot, Tree
from penstock.core.errors import DiskFailedError, DiskFullError, StorageError
from penstock.core.files import Files, LockedError
from penstock.core.formats import check_version
from penstock.core.os_files import OsFiles

logger = logging.getLogger(__name__)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS nodes (
    path TEXT PRIMARY KEY, data BLOB NOT NULL, version INTEGER NOT NULL,
    created INTEGER NOT NULL, modified INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counter (only INTEGER PRIMARY KEY CHECK (only = 1), number INTEGER NOT NULL);
INSERT OR IGNORE INTO counter VALUES (1, 0);
CREATE TABLE IF NOT EXISTS reserve (room BLOB NOT NULL);
"""

_VERSION = 1  # of the tables: SQLite's `user_version`; 0 is a new file, or one of before they had a version

# Room for what frees a full disk; more than a few such changes at a time do not come.
RESERVE_BYTES = 256 * 1024
# Room for the log of an open: the reserve goes through it.
BALLAST_BYTES = 4 * RESERVE_BYTES


class EmbeddedStore:
    """Open with `open`; every consumer in the process has its own session from `connect`."""

    def __init__(
        self, database: "_Database", executor: ThreadPoolExecutor, state: TreeState, number: int
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
        database = _Database(path, files or OsFiles())
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


class _Database:
    """Everything that touches SQLite; every method runs in the worker thread."""

    def __init__(self, path: Path, files: Files) -> None:
        self.path = path
        self._files = files
        self._ballast = path.with_name(path.name + ".ballast")
        self._connection: sqlite3.Connection | None = None

    def open(self) -> tuple[list[tuple[str, Node]], int]:
        """DiskFullError: also without the ballast there is no room for its log."""
        try:
            return self._open()
        except DiskFullError:
            self._files.unlink(self._ballast)
            return self._open()

    def _take_ballast(self) -> None:
        with suppress(StorageError):  # as far as there is room
            ballast = self._files.open(self._ballast, create=True)
            try:
                if ballast.size() < BALLAST_BYTES:
                    ballast.pwrite(bytes(BALLAST_BYTES), 0)
            finally:
                ballast.close()

    def _open(self) -> tuple[list[tuple[str, Node]], int]:
        with self._errors_mapped():
            connection = sqlite3.connect(self.path, timeout=0, isolation_level=None)
            try:
                connection.execute("PRAGMA locking_mode=EXCLUSIVE")
                (version,) = connection.execute("PRAGMA user_version").fetchone()
                check_version(self.path, version, _VERSION)
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=NORMAL")
                connection.executescript(_SCHEMA)
                if not _reserve(connection):
                    self._files.unlink(self._ballast)
                    _reserve(connection)
                connection.execute("PRAGMA synchronous=FULL")
                try:
                    if version < _VERSION:
                        connection.execute(f"PRAGMA user_version={_VERSION}")
                    _settle(connection)
                except sqlite3.Error as error:
                    if not _is_full(error):
                        raise  # but on a full disk the broker must start, too
                rows = connection.execute(
                    "SELECT path, data, version, created, modified FROM nodes"
                ).fetchall()
                (number,) = connection.execute("SELECT number FROM counter").fetchone()
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return [(path, Node(*fields)) for path, *fields in rows], number

    def open_again(self) -> int:
        """The number of the last change that is there, durably: after an error of which nobody knows what it undid."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()
        _, number = self.open()
        with self._errors_mapped():
            _settle(self._connected())
        return number

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            raise DiskFailedError(f"{self.path} is closed")
        return self._connection

    def write(self, change: Change) -> None:
        connection = self._connected()
        # An ephemeral node may have taken the path of a lasting one, whose row then has to go.
        gone = [(event.path,) for event in change.events if event.node is None or event.node.owner]
        put = [
            (event.path, event.node.data, event.node.version, event.node.created, event.node.modified)
            for event in change.events
            if event.node is not None and not event.node.owner
        ]
        statements = (
            ("DELETE FROM nodes WHERE path = ?", gone),
            ("INSERT OR REPLACE INTO nodes VALUES (?, ?, ?, ?, ?)", put),
            ("UPDATE counter SET number = ?", [(change.number,)]),
        )
        with self._errors_mapped():
            try:
                self._transact(statements)
            except sqlite3.Error as error:
                if not _is_full(error):
                    raise
                connection.execute(_BEGIN_LOG_ANEW)
                self._transact(statements)

    def _transact(self, statements: Sequence[tuple[str, Sequence[tuple[object, ...]]]]) -> None:
        connection = self._connected()
        try:
            connection.execute("BEGIN IMMEDIATE")
            for statement, rows in statements:
                connection.executemany(statement, rows)
            connection.execute("COMMIT")
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def close(self) -> None:
        if self._connection is not None:
            with self._errors_mapped():
                self._connection.close()
            self._connection = None
            self._take_ballast()

    @contextmanager
    def _errors_mapped(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", None)
            if _is_full(error):
                raise DiskFullError(f"{self.path}: {error}") from error
            if code == sqlite3.SQLITE_BUSY:
                raise LockedError(f"{self.path} is held by another process") from error
            raise DiskFailedError(f"{self.path}: {error}") from error


# Pages go to their places in the database, which exist; the log keeps its length and is written from its beginning.
_BEGIN_LOG_ANEW = "PRAGMA wal_checkpoint(RESTART)"


def _reserve(connection: sqlite3.Connection) -> bool:
    """Write something large and delete it; False when there is no room.

    Two commits: in one, SQLite would see that none of it needs writing.

    Under synchronous=NORMAL, which syncs when pages move to the database but not at a commit: nothing is promised yet.
    """
    try:
        (pages_before,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute("DELETE FROM reserve")
        connection.execute("INSERT INTO reserve VALUES (zeroblob(?))", (RESERVE_BYTES,))
        connection.execute("DELETE FROM reserve")
        if connection.execute("PRAGMA page_count").fetchone() != (pages_before,):
            connection.execute(_BEGIN_LOG_ANEW)  # the database has grown so far in the log alone
    except sqlite3.Error as error:
        if not _is_full(error):
            raise
        return False
    return True


def _settle(connection: sqlite3.Connection) -> None:
    """What is found here stays, whatever becomes of the power: logs are opened, moved and set aside by it.

    Whoever had the file before may have been killed in the midst of a sync, so that only the page cache has its last
    change; or the sync failed, and the kernel does not try again. So what the log has is written once more, to the
    database. And then the log's beginning, by any write: on the disk, the old log may lack what the database has from
    it, and would hide that.
    """
    connection.execute(_BEGIN_LOG_ANEW)
    connection.execute("INSERT INTO reserve VALUES (x'')")


def _is_full(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL


if TYPE_CHECKING:

    def _is_a_tree(tree: EmbeddedTree) -> Tree:
        return tree
