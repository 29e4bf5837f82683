"""Group commit: waiting producers of a partition share one fdatasync, in a thread.

Batching needs no timer: while the disk works, new batches gather, and the next sync covers them all.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial

from penstock.core.errors import ApiError, ShortageError, StorageError, TooManyFilesError
from penstock.replication.partition import Partition
from penstock.storage.checkpoint import SyncJob

log = logging.getLogger(__name__)

# How long a sync waits that found no descriptor.
_AGAIN_SECONDS = 0.1


class GroupCommit:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, executor: Executor | None, on_failure: Callable[[str], None]
    ):
        self._loop = loop
        self._executor = executor
        self._on_failure = on_failure
        self.running = 0  # jobs in threads
        self._idle: asyncio.Future[None] | None = None
        self._again: dict[Partition, asyncio.TimerHandle] = {}  # those that found no descriptor
        self._waiting: dict[Partition, list[asyncio.Future[None]]] = {}  # for the end of a sync

    def request(self, partition: Partition) -> None:
        """Sync what the partition has written, after whatever else arrived in this turn of the loop."""
        if not partition.sync_running:
            partition.sync_running = True
            self._loop.call_soon(self._start, partition)

    def _start(self, partition: Partition) -> None:
        self._again.pop(partition, None)
        if partition.lease.ended:  # `sync_running` stays: nobody asks again
            self._wake(partition)
            return
        if partition.log.failed:  # nor does a checkpoint of it, while it is opened again
            partition.sync_running = False
            partition.sync_failed("the log is offline after an I/O error")
            self._wake(partition)
            return
        try:
            job = partition.log.sync_job(checkpoint=partition.log.needs_checkpoint)
        except ApiError as error:  # what was held back could not be written
            partition.sync_running = False
            partition.sync_failed(str(error))
            self._wake(partition)
            return
        self.running += 1
        future = partition.lease.take(self._loop.run_in_executor(self._executor, job.run))
        future.add_done_callback(partial(self._done, partition, job))

    def _done(self, partition: Partition, job: SyncJob, future: "asyncio.Future[None]") -> None:
        self.running -= 1
        partition.sync_running = False
        try:
            self._finish(partition, job, future)
        finally:
            self._wake(partition)
            if not self.running and self._idle is not None and not self._idle.done():
                self._idle.set_result(None)

    async def covered(self, partition: Partition) -> None:
        """Wait until everything that is written now is durable, or the log has failed."""
        one, target = partition.log, partition.log.end_offset
        while one.synced_end.offset < target and partition.log is one:
            if one.failed or partition.lease.ended:
                return
            self.request(partition)
            await self._ended(partition)

    async def quiet(self, partition: Partition) -> None:
        """Wait until nothing works on its files: no sync, and nobody else who has the lease."""
        while (syncs := partition.sync_running and not partition.lease.ended) or not partition.lease.is_free:
            if syncs:
                await self._ended(partition)
            else:
                await partition.lease.free()

    async def _ended(self, partition: Partition) -> None:
        done: asyncio.Future[None] = self._loop.create_future()
        self._waiting.setdefault(partition, []).append(done)
        await done

    def _wake(self, partition: Partition) -> None:
        for done in self._waiting.pop(partition, ()):
            if not done.done():
                done.set_result(None)

    async def idle(self) -> None:
        """Wait until no sync is under way, and begin none again, for the shutdown."""
        while self.running:
            self._idle = self._loop.create_future()
            await self._idle
        for timer in self._again.values():
            timer.cancel()

    def _finish(self, partition: Partition, job: SyncJob, future: "asyncio.Future[None]") -> None:
        if future.cancelled():
            return
        error = future.exception()
        if isinstance(error, TooManyFilesError):  # nothing is in doubt: whoever waits, waits a little longer
            partition.log.sync_undone(job)
            self._try_again(partition)
            return
        if error is not None:
            partition.sync_failed(str(error))
            if isinstance(error, StorageError):
                self._on_failure(str(error))
            else:  # not the disk: its files are not what they should be, and other logs' may well be
                log.error("%s-%d cannot be synced", partition.topic, partition.index, exc_info=error)
            return
        try:
            partition.synced(job)
        except ShortageError as short:  # where readers may see up to now could not be read
            log.warning("%s-%d is synced, and no more: %s", partition.topic, partition.index, short)
            self._try_again(partition)
            return
        except StorageError as failed:
            partition.sync_failed(str(failed))
            return
        if partition.log.unsynced_bytes and partition.sync_before_ack and not partition.sync_running:
            self.request(partition)

    def _try_again(self, partition: Partition) -> None:
        partition.sync_running = True  # nobody asks before
        self._again[partition] = self._loop.call_later(_AGAIN_SECONDS, self._start, partition)
