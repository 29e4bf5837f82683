"""The long form: three ZooKeeper servers, killed one after the other (leader and follower in turn) under writers."""

import asyncio
import socket
import subprocess
from contextlib import asynccontextmanager

import pytest

from penstock.coordination.tree import ConnectionLostError, Create, Set, VersionConflictError
from penstock.coordination.zookeeper import Address, ZooKeeperStore
from penstock.coordination.zookeeper.server_process import HOST, ZooKeeperProcess, free_port

ROUNDS = 4
# Not longer: an attempt to connect to a server that is not ready yet takes a third of it.
SESSION_TIMEOUT_S = 6.0
WRITERS = 3
ACKNOWLEDGED_PER_ROUND = 100


class Member(ZooKeeperProcess):
    """One server of an ensemble: started without waiting, since it serves only with a majority."""

    def __init__(self, directory, number, ensemble):
        super().__init__(directory, port=free_port(), tick_ms=200, durable=False)
        self._number = number
        self._ensemble = ensemble

    def launch(self):
        command = self.command()
        config = self.data_dir / "zoo.cfg"
        config.write_text(config.read_text() + "initLimit=50\nsyncLimit=20\n" + self._ensemble)
        (self.data_dir / "data").mkdir(exist_ok=True)
        (self.data_dir / "data" / "myid").write_text(str(self._number))
        command[command.index("org.apache.zookeeper.server.ZooKeeperServerMain")] = (
            "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        )
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def mode(self):
        """`leader`, `follower`, or nothing while it does not serve."""
        try:
            with socket.create_connection((HOST, self.port), timeout=1.0) as connection:
                connection.sendall(b"srvr")
                said = connection.makefile().read()
        except OSError:
            return ""
        return next((mode for mode in ("leader", "follower") if f"Mode: {mode}" in said), "")


@asynccontextmanager
async def ensemble(directory):
    ports = [(free_port(), free_port()) for _ in range(3)]
    text = "".join(
        f"server.{n}={HOST}:{quorum_port}:{election_port}\n"
        for n, (quorum_port, election_port) in enumerate(ports, start=1)
    )
    members = [Member(directory / str(number), number, text) for number in (1, 2, 3)]
    try:
        for member in members:
            member.launch()
        await _all_serve(members)
        yield members
    finally:
        for member in members:
            member.kill()


async def _until(condition):
    while not await asyncio.to_thread(condition):  # noqa: ASYNC110 - another process makes it true
        await asyncio.sleep(0.05)


async def _all_serve(members):
    await _until(lambda: all(member.mode() for member in members))


async def _patiently(call):
    while True:
        try:
            return await call()
        except ConnectionLostError:
            await asyncio.sleep(0.05)


class Story:
    def __init__(self):
        self.acknowledged = set()
        self.open = set()
        self.ended = False

    async def until(self, count):
        await _until(lambda: len(self.acknowledged) >= count)

    async def write(self, tree, name):
        number = 0
        while not self.ended:
            number += 1
            path = f"/own/{name}-{number}"
            try:
                counter = await tree.get("/counter")
                raised = Set("/counter", b"%d" % (int(counter.data) + 1), counter.version)
                self.open.add(path)
                await tree.multi([raised, Create(path, b"")])
                self.acknowledged.add(path)
            except VersionConflictError:
                self.open.discard(path)
            except ConnectionLostError:
                await asyncio.sleep(0.05)


@pytest.mark.soak
async def test_no_change_is_lost_doubled_or_reordered_while_servers_die(tmp_path):
    async with ensemble(tmp_path) as members:
        hosts = ",".join(member.connect for member in members)
        store = ZooKeeperStore(Address.parse(f"{hosts}/penstock"), session_timeout_s=SESSION_TIMEOUT_S)
        trees = [await _patiently(store.connect) for _ in range(WRITERS + 1)]
        start = await trees[0].multi([Create("/counter", b"0"), Create("/own", b"")])
        story = Story()
        seen = [[] for _ in trees]

        async def watch(tree, changes):
            async for change in tree.changes(start.number):
                changes.append(change)

        watching = [
            asyncio.ensure_future(watch(tree, changes)) for tree, changes in zip(trees, seen, strict=True)
        ]
        writing = [
            asyncio.ensure_future(story.write(tree, name)) for name, tree in enumerate(trees[:WRITERS])
        ]
        for number in range(1, ROUNDS + 1):
            await story.until(number * ACKNOWLEDGED_PER_ROUND)
            doomed = "leader" if number % 2 else "follower"
            victim = next(member for member in members if member.mode() == doomed)
            await asyncio.to_thread(victim.kill)
            # The other two go on without it.
            await story.until(number * ACKNOWLEDGED_PER_ROUND + ACKNOWLEDGED_PER_ROUND // 2)
            victim.launch()
            await _all_serve(members)
        story.ended = True
        await asyncio.gather(*writing)
        snapshots = [await _patiently(tree.snapshot) for tree in trees]
        assert all(snapshot == snapshots[0] for snapshot in snapshots)
        last = snapshots[0]
        await _until(lambda: all(changes and changes[-1].number >= last.number for changes in seen))
        there = {path for path in last.nodes if path.startswith("/own/")}
        assert story.acknowledged <= there <= story.acknowledged | story.open
        assert int(last.nodes["/counter"].data) == len(there)
        assert all(changes == seen[0] for changes in seen)
        assert [change.number for change in seen[0]] == list(range(start.number + 1, last.number + 1))
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
        await store.close()
