"""What is special to the SQLite store: `kill -9`, a second opener, a full and a failing disk."""

import asyncio
import shutil
import sqlite3
import subprocess
import sys

import pytest

from penstock.coordination import embedded_database
from penstock.coordination.embedded import EmbeddedStore
from penstock.coordination.embedded_database import RESERVE_BYTES
from penstock.coordination.tree import Create, NodeExistsError, Set
from penstock.core.errors import DiskFailedError, DiskFullError
from penstock.core.files import LockedError

ROUNDS = 3
NODES_PER_MULTI = 20

# Each multi creates one group of nodes and sets the counter; what was acknowledged is printed.
WRITER = """
import asyncio, sys
from pathlib import Path
from penstock.coordination.embedded import EmbeddedStore
from penstock.coordination.tree import Create, Set

async def main():
    store = await EmbeddedStore.open(Path(sys.argv[1]))
    tree = await store.connect()
    if await tree.get("/counter") is None:
        await tree.multi([Create("/counter", b"0")])
    await tree.multi([Create("/alive", b"", ephemeral=True)])
    number = int((await tree.get("/counter")).data)
    while True:
        number += 1
        made = [Create(f"/{number}", b"")] + [Create(f"/{number}/{i}", b"x" * 200) for i in range(NODES)]
        await tree.multi([*made, Set("/counter", b"%d" % number)])
        print(number, flush=True)

asyncio.run(main())
""".replace("NODES", str(NODES_PER_MULTI))


def _acknowledged_before_kill(path):
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        lines = [writer.stdout.readline() for _ in range(25)]
        writer.kill()
        lines += writer.stdout.readlines()
    return int(next(line for line in reversed(lines) if line.endswith("\n")))


async def _check_whole(path, acknowledged):
    store = await EmbeddedStore.open(path)
    tree = await store.connect()
    counter = int((await tree.get("/counter")).data)
    # One more than was seen may have been committed before its line was printed.
    assert acknowledged <= counter <= acknowledged + 1
    for number in range(1, counter + 1):
        assert len(await tree.children(f"/{number}")) == NODES_PER_MULTI
    assert await tree.get(f"/{counter + 1}") is None
    assert await tree.get("/alive") is None
    await store.close()


def test_kill_9_loses_nothing_acknowledged_and_leaves_nothing_half(tmp_path):
    path = tmp_path / "coordination.db"
    for _ in range(ROUNDS):
        asyncio.run(_check_whole(path, _acknowledged_before_kill(path)))


async def test_a_second_opener_is_turned_away(tmp_path):
    path = tmp_path / "coordination.db"
    store = await EmbeddedStore.open(path)
    with pytest.raises(LockedError):
        await EmbeddedStore.open(path)
    await store.close()
    await (await EmbeddedStore.open(path)).close()


async def test_a_file_that_is_no_database_is_named(tmp_path):
    path = tmp_path / "coordination.db"
    path.write_bytes(b"not a database, but long enough to be read as the header of one" * 40)
    with pytest.raises(DiskFailedError, match=r"coordination\.db"):
        await EmbeddedStore.open(path)


async def test_a_full_disk_refuses_the_write_and_heals(tmp_path):
    store = await EmbeddedStore.open(tmp_path / "coordination.db")
    tree = await store.connect()
    await tree.multi([Create("/a", b"1")])

    async def pragma(text):
        ask = lambda: store._database._connection.execute(f"PRAGMA {text}").fetchone()[0]  # noqa: E731
        return await asyncio.get_running_loop().run_in_executor(store._executor, ask)

    await pragma(f"max_page_count={await pragma('page_count')}")
    with pytest.raises(DiskFullError):
        await tree.multi([Set("/a", b"2"), Create("/big", bytes(450_000))])
    assert (await tree.get("/a")).data == b"1"
    assert await tree.get("/big") is None
    await pragma("max_page_count=1000000")
    await tree.multi([Set("/a", b"2", version=0), Create("/big", bytes(450_000))])
    assert (await tree.get("/a")).data == b"2"
    await store.close()


class FullOnce:
    """A connection whose next transaction finds the disk full."""

    def __init__(self, connection):
        self._connection = connection
        self._full = True

    def __getattr__(self, name):
        return getattr(self._connection, name)

    def executemany(self, statement, rows):
        if self._full:
            self._full = False
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        return self._connection.executemany(statement, rows)


@pytest.mark.parametrize("written_before", [0, 30])
async def test_a_full_disk_takes_small_changes_in_room_that_is_kept_for_them(tmp_path, written_before):
    for _ in range(2):  # the second time without a log left over from the first
        store = await EmbeddedStore.open(tmp_path / "coordination.db")
        tree = await store.connect()
        for _ in range(written_before):
            name = f"/{(await tree.snapshot()).number}"
            await tree.multi([Create(name, bytes(3000))])
        sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
        assert min(sizes.values()) >= RESERVE_BYTES
        store._database._connection = FullOnce(store._database._connection)
        name = f"/{(await tree.snapshot()).number}"
        await tree.multi([Create(name, bytes(50_000))])
        assert {path.name: path.stat().st_size for path in tmp_path.iterdir()} == sizes
        store._database._connection = store._database._connection._connection
        await store.close()
    store = await EmbeddedStore.open(tmp_path / "coordination.db")
    assert (await (await store.connect()).get(name)).data == bytes(50_000)
    await store.close()


@pytest.mark.parametrize("written", [False, True])
async def test_after_an_io_error_the_next_change_finds_out_what_became_of_the_last(
    tmp_path, monkeypatch, written
):
    store = await EmbeddedStore.open(tmp_path / "coordination.db")
    tree = await store.connect()
    first = await tree.multi([Create("/a", b"1"), Create("/alive", b"", ephemeral=True)])
    honest = store._database.write

    def fail(change):
        if written:
            honest(change)
        raise DiskFailedError("input/output error")

    monkeypatch.setattr(store._database, "write", fail)
    with pytest.raises(DiskFailedError):
        await tree.multi([Set("/a", b"2")])
    assert (await tree.get("/a")).data == b"1"
    monkeypatch.undo()
    await tree.multi([Set("/a", b"3", version=int(written))])
    assert (await tree.get("/a")).version == 1 + written
    assert await tree.get("/alive") is not None
    seen = [await anext(tree.changes(first.number + at)) for at in range(1 + written)]
    assert [update.events[0].node.data for update in seen] == ([b"2", b"3"] if written else [b"3"])
    await store.close()
    store = await EmbeddedStore.open(tmp_path / "coordination.db")
    assert (await (await store.connect()).get("/a")).data == b"3"
    await store.close()


async def test_what_a_failed_sync_left_in_memory_only_is_there_after_a_power_cut_once_it_counts(
    tmp_path, monkeypatch
):
    store = await EmbeddedStore.open(tmp_path / "coordination.db")
    tree = await store.connect()
    await tree.multi([Create("/a", b"1")])
    log, left = tmp_path / "coordination.db-wal", tmp_path / "left.db"
    left_log = tmp_path / "left.db-wal"
    durable, honest = log.read_bytes(), store._database.write

    def fail(change):
        honest(change)
        raise DiskFailedError("input/output error")

    monkeypatch.setattr(store._database, "write", fail)
    with pytest.raises(DiskFailedError):
        await tree.multi([Create("/b", b"2")])
    monkeypatch.undo()
    # As if the disk refused the sync, and then what closing the file writes: the log keeps all of it, in memory.
    shutil.copy(tmp_path / "coordination.db", left)
    shutil.copy(log, left_log)
    unsynced = left_log.read_bytes()
    store._database.path = left
    with pytest.raises(NodeExistsError):  # so it happened, and others build on it
        await tree.multi([Create("/b", b"2")])

    # The power goes: where nobody wrote since, the log is as it was before that sync.
    now, was = left_log.read_bytes(), durable.ljust(len(unsynced), b"\0")
    cut = [old if old != lost == new else new for new, lost, old in zip(now, unsynced, was, strict=False)]
    (tmp_path / "after.db-wal").write_bytes(bytes(cut) + now[len(cut) :])
    shutil.copy(left, tmp_path / "after.db")
    await store.close()
    store = await EmbeddedStore.open(tmp_path / "after.db")
    assert (await (await store.connect()).get("/b")).data == b"2"
    await store.close()


async def test_what_a_killed_process_left_in_memory_only_is_durable_before_anybody_goes_by_it(tmp_path):
    """A start sets aside the files of a topic that is not there any more: its deletion must not be undone then."""
    store = await EmbeddedStore.open(tmp_path / "coordination.db")
    tree = await store.connect()
    await tree.multi([Create("/a", b"1")])
    # Killed before the sync: all of this is in the log, and that perhaps in memory only.
    for suffix in ("", "-wal"):
        shutil.copy(tmp_path / f"coordination.db{suffix}", tmp_path / f"left.db{suffix}")
    await store.close()
    store = await EmbeddedStore.open(tmp_path / "left.db")
    shutil.copy(tmp_path / "left.db", tmp_path / "after.db")  # the log is gone with the power
    await store.close()
    store = await EmbeddedStore.open(tmp_path / "after.db")
    assert (await (await store.connect()).get("/a")).data == b"1"
    await store.close()


async def test_while_the_file_cannot_be_opened_again_nothing_is_promised(tmp_path, monkeypatch):
    store = await EmbeddedStore.open(tmp_path / "coordination.db")
    tree = await store.connect()
    await tree.multi([Create("/a", b"1")])

    def fail(*_, **__):
        raise DiskFailedError("input/output error")

    monkeypatch.setattr(store._database, "write", fail)
    monkeypatch.setattr(store._database, "open", fail)
    for _ in range(3):
        with pytest.raises(DiskFailedError):
            await tree.multi([Set("/a", b"2")])
    monkeypatch.undo()
    await tree.multi([Set("/a", b"2", version=0)])
    assert (await tree.get("/a")).data == b"2"
    await store.close()


@pytest.mark.parametrize("reached", [False, True])
async def test_after_an_io_error_the_file_is_opened_again_and_tells_what_it_has(
    tmp_path, monkeypatch, reached
):
    store = await EmbeddedStore.open(tmp_path / "coordination.db")
    tree = await store.connect()
    await tree.multi([Create("/a", b"1")])
    write = store._database.write

    def fail(change):
        if reached:
            write(change)
        raise DiskFailedError("input/output error")

    def stays_away():
        raise DiskFailedError("read-only file system")

    monkeypatch.setattr(store._database, "write", fail)
    monkeypatch.setattr(store._database, "open_again", stays_away)
    for _ in range(2):  # nothing is promised as long as it cannot be looked at
        with pytest.raises(DiskFailedError):
            await tree.multi([Set("/a", b"2")])
    assert (await tree.get("/a")).data == b"1"
    monkeypatch.undo()
    await tree.multi([Create("/b", b"3")])
    assert (await tree.get("/a")).data == (b"2" if reached else b"1")
    await store.close()
    store = await EmbeddedStore.open(tmp_path / "coordination.db")
    again = await store.connect()
    assert (await again.get("/a")).data == (b"2" if reached else b"1")
    assert (await again.get("/b")).data == b"3"
    await store.close()


async def test_a_clean_close_leaves_room_for_the_next_open_on_a_full_disk(tmp_path, monkeypatch):
    path = tmp_path / "coordination.db"
    ballast = tmp_path / "coordination.db.ballast"
    await (await EmbeddedStore.open(path)).close()
    assert ballast.stat().st_size == embedded_database.BALLAST_BYTES
    reserve = embedded_database._reserve
    # As on a disk that has just this much room left.
    monkeypatch.setattr(
        embedded_database, "_reserve", lambda connection: not ballast.exists() and reserve(connection)
    )
    store = await EmbeddedStore.open(path)
    assert not ballast.exists()
    await (await store.connect()).multi([Create("/a", b"1")])
    await store.close()
    assert ballast.exists()
