"""A broker as a process: uvloop, real files, a coordination store, and signals that stop it cleanly."""

import asyncio
import logging
import random
import signal
import sys
from asyncio import FIRST_COMPLETED
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from penstock.config.broker import BrokerConfig
from penstock.coordination.embedded import EmbeddedStore
from penstock.coordination.tree import (
    ConnectionLostError,
    CoordinationError,
    SessionExpiredError,
    Tree,
)
from penstock.core import descriptors
from penstock.core.clock import SystemClock
from penstock.core.distribution import install
from penstock.core.errors import PenstockError
from penstock.core.os_files import OsFiles
from penstock.core.tasks import Tasks
from penstock.server.allocator import Allocator, Malloc
from penstock.server.broker import Broker
from penstock.server.collector import Collector
from penstock.server.console import Console
from penstock.server.seams import Seams
from penstock.server.worker import Workers
from penstock.storage.data_format import METADATA_FILE

if TYPE_CHECKING:
    from penstock.coordination.zookeeper import ZooKeeperStore

    Store = EmbeddedStore | ZooKeeperStore

logger = logging.getLogger(__name__)

# Threads for work that blocks: each waits for the disk most of its time, so more than cores is right.
_WORKER_THREADS = 8
# How long a thread that computes keeps the loop waiting, each time the loop has let go of the interpreter.
_SWITCH_SECONDS = 0.0002
# How long ZooKeeper may be silent before a start that waits for it says so, and how long one that failed rests.
_SILENCE_SECONDS = 3.0
_RETRY_SECONDS = 0.5


class BrokenError(PenstockError):
    """A broker that could not go on: whoever runs it must see that it did not stop as it was told to."""


def run(config: BrokerConfig, ready: Callable[[Broker], None]) -> None:
    """Run a broker until SIGTERM or SIGINT; `ready` is called once it serves. BrokenError when it ends by itself."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    uvloop.run(_serve(config, ready))


async def _serve(config: BrokerConfig, ready: Callable[[Broker], None]) -> None:
    data_dir = Path(config.log_dirs[0])
    descriptors.raise_limit()
    files = OsFiles()
    files.make_dirs(data_dir)
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    with (
        ThreadPoolExecutor(_WORKER_THREADS, thread_name_prefix="disk") as executor,
        Workers() as workers,
    ):
        store = await _open_store(config, data_dir, files)
        try:
            seams = Seams(
                files, SystemClock(), random.SystemRandom(), executor, workers.threads, workers.round_of
            )
            broker = await _started(config, seams, store, stopped)
            if broker is None:
                return
            collector, console = Collector(), Console(broker)
            memory = Tasks(loop, _not_given_back)
            collector.begin()
            malloc = Malloc()
            malloc.set_options()
            if malloc.is_known:

                async def in_thread(work: Callable[[], None]) -> None:
                    await loop.run_in_executor(executor, work)

                memory.start(Allocator(malloc, in_thread).run, "allocator")
            try:
                if config.penstock_console_port >= 0:
                    broker.console_port = await console.start(
                        config.penstock_console_host or config.listeners[0].address.host,
                        config.penstock_console_port,
                    )
                ready(broker)
                await _first_of(stopped, broker.broken)
            finally:
                await console.close()
                await broker.stop()
                await memory.close()
                collector.end()
            if broker.broken.is_set():
                raise BrokenError(f"the broker stopped by itself: {broker.broken_by}")
        finally:
            await store.close()


async def _started(
    config: BrokerConfig, seams: Seams, store: "Store", stopped: asyncio.Event
) -> Broker | None:
    """A broker that serves, however long ZooKeeper is silent; None when it was told to stop before."""
    while True:
        try:
            tree = await _session(config, store, stopped)
            if tree is None:
                return None
            return await _begin(config, seams, store, tree)
        except (ConnectionLostError, SessionExpiredError) as error:
            if config.zookeeper_connection_timeout_ms is not None:
                raise
            logger.warning("the broker cannot start yet, and tries again: %s", error)
            await asyncio.sleep(_RETRY_SECONDS)


async def _session(config: BrokerConfig, store: "Store", stopped: asyncio.Event) -> Tree | None:
    connecting: asyncio.Future[Tree] = asyncio.ensure_future(store.connect())
    stop = asyncio.ensure_future(stopped.wait())
    try:
        while True:
            await asyncio.wait((connecting, stop), timeout=_SILENCE_SECONDS, return_when=FIRST_COMPLETED)
            if connecting.done():
                return await connecting
            if stop.done():
                return None
            logger.warning("waiting for ZooKeeper at %s, which does not answer", config.zookeeper_connect)
    finally:
        stop.cancel()
        connecting.cancel()
        await asyncio.wait([connecting])


async def _begin(config: BrokerConfig, seams: Seams, store: "Store", tree: Tree) -> Broker:
    connect = None if isinstance(store, EmbeddedStore) else store.connect
    broker = Broker(config, seams, tree, connect=connect)
    try:
        await broker.start()
    except BaseException:
        await broker.abandon()
        raise
    return broker


def _not_given_back(task: str, error: BaseException) -> None:
    logger.error("memory is not given back to the system any more: %s ended", task, exc_info=error)


async def _first_of(*events: asyncio.Event) -> None:
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    await asyncio.wait(waiting, return_when=FIRST_COMPLETED)
    for task in waiting:
        task.cancel()


async def _open_store(config: BrokerConfig, data_dir: Path, files: OsFiles) -> "Store":
    """ZooKeeper where one is named; otherwise this node is a cluster of its own."""
    if config.zookeeper_connect is None:
        return await EmbeddedStore.open(data_dir / METADATA_FILE, files)
    try:
        from penstock.coordination.zookeeper import Address, ZooKeeperStore  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise CoordinationError(f"zookeeper.connect needs {error.name}: {install('cluster')}") from error
    timeout_ms = config.zookeeper_connection_timeout_ms
    return ZooKeeperStore(
        Address.parse(config.zookeeper_connect),
        session_timeout_s=config.zookeeper_session_timeout_ms / 1000,
        connection_timeout_s=None if timeout_ms is None else timeout_ms / 1000,
        credential=config.penstock_zookeeper_digest,
    )
