"""The database file of one node's coordination store: what is written to SQLite, and what keeps it through crashes.

Write-ahead logging with synchronous=FULL: a commit is one append and one fsync, where a rollback journal needs three
or four, and a killed process leaves a log that the next open replays or cuts. Exclusive locking keeps a second
process out and spares the shared-memory file, whose mapping would turn an I/O error into a signal.

A full disk is when settings must still change: a shorter retention, an archive's progress, a topic's deletion are what
frees it. So both files get some room at every open that stays theirs, empty pages in one and length in the other; a
write that finds the disk full moves the log into the database, and begins it anew within its length. A clean close
removes the log, so a file beside the database (the ballast) keeps its room until the next open, which may need it.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.coordination.tree import Change, Node
from penstock.core.errors import DiskFailedError, DiskFullError, StorageError
from penstock.core.files import Files, LockedError
from penstock.core.formats import check_version

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


class EmbeddedDatabase:
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
