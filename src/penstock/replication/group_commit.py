"""Group commit: waiting producers of a partition share one fdatasync, in a thread.

Batching needs no timer: while the disk works, new batches gather, and the next sync covers them all.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial

from penstock.core.errors import ApiError, StorageError
from penstock.replication.partition import Partition
from penstock.storage.checkpoint import SyncJob


class GroupCommit:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, executor: Executor | None, on_failure: Callable[[str], None]
    ):
        self._loop = loop
        self._executor = executor
        self._on_failure = on_failure
        self.running = 0  # jobs in threads
        self._idle: asyncio.Future[None] | None = None
        self._waiting: dict[Partition, list[asyncio.Future[None]]] = {}  # for the end of a sync

    def request(self, partition: Partition) -> None:
        """Sync what the partition has written, after whatever else arrived in this turn of the loop."""
        if not partition.sync_running:
            partition.sync_running = True
            self._loop.call_soon(self._start, partition)

    def _start(self, partition: Partition) -> None:
        log = partition.log
        try:
            job = log.sync_job(checkpoint=log.needs_checkpoint)
        except ApiError as error:  # what was held back could not be written
            partition.sync_running = False
            partition.sync_failed(str(error))
            self._wake(partition)
            return
        self.running += 1
        future = self._loop.run_in_executor(self._executor, job.run)
        future.add_done_callback(partial(self._done, partition, job))

    def _done(self, partition: Partition, job: SyncJob, future: "asyncio.Future[None]") -> None:
        self.running -= 1
        partition.sync_running = False
        self._finish(partition, job, future)
        self._wake(partition)
        if not self.running and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    async def covered(self, partition: Partition) -> None:
        """Wait until everything that is written now is durable, or the log has failed."""
        log, target = partition.log, partition.log.end_offset
        while log.synced_end.offset < target and not log.failed and partition.log is log:
            self.request(partition)
            await self._ended(partition)

    async def quiet(self, partition: Partition) -> None:
        """Wait until no sync of it is under way."""
        while partition.sync_running:
            await self._ended(partition)

    async def _ended(self, partition: Partition) -> None:
        done: asyncio.Future[None] = self._loop.create_future()
        self._waiting.setdefault(partition, []).append(done)
        await done

    def _wake(self, partition: Partition) -> None:
        for done in self._waiting.pop(partition, ()):
            if not done.done():
                done.set_result(None)

    async def idle(self) -> None:
        """Wait until no sync is under way, for the shutdown."""
        while self.running:
            self._idle = self._loop.create_future()
            await self._idle

    def _finish(self, partition: Partition, job: SyncJob, future: "asyncio.Future[None]") -> None:
        if future.cancelled():
            return
        error = future.exception()
        if isinstance(error, StorageError):
            partition.sync_failed(str(error))
            self._on_failure(str(error))
            return
        if error is not None:
            raise error
        partition.synced(job)
        if partition.log.unsynced_bytes and partition.sync_before_ack and not partition.sync_running:
            self.request(partition)
