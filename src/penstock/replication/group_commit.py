"""Group commit: waiting producers of a partition share one fdatasync, in a thread.

Batching needs no timer: while the disk works, new batches gather, and the next sync covers them all.

What nobody waits for (`flush.ms`, checkpoints of thousands of partitions) is synced few at a time, so that those who
wait find a thread.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial

from penstock.core.errors import ApiError, ShortageError, StorageError, TooManyFilesError
from penstock.core.lease import Hold, Work
from penstock.core.limits import SYNCS_UNHURRIED_MAX
from penstock.replication.partition import Partition
from penstock.storage.checkpoint import SyncJob

logger = logging.getLogger(__name__)

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
        self._again: dict[Partition, asyncio.TimerHandle] = {}  # who found no descriptor
        self._put_off: dict[Partition, None] = {}  # until those are done who cut the log
        self._unhurried: dict[Partition, None] = {}  # that nobody waits for: in turn
        self._unhurried_now: set[Partition] = set()

    def request(self, partition: Partition) -> None:
        """Sync what the partition has written, after whatever else arrived in this turn of the loop."""
        lease = partition.lease
        hold = lease.take(Work.SYNC)
        if hold is not None:
            self._loop.call_soon(self._start, partition, hold)
        elif not lease.is_syncing and not lease.ended and partition not in self._put_off:
            self._put_off[partition] = None
            lease.call_when_given_back(partial(self._request_again, partition))

    def request_unhurried(self, partition: Partition) -> None:
        """The same, when those that were asked for before have had their turn."""
        self._unhurried[partition] = None
        self._go_on_unhurried()

    def _go_on_unhurried(self) -> None:
        while self._unhurried and len(self._unhurried_now) < SYNCS_UNHURRIED_MAX:
            partition = next(iter(self._unhurried))
            del self._unhurried[partition]
            hold = partition.lease.take(Work.SYNC)
            if hold is None:  # somebody is at it, or will be
                self.request(partition)
            else:
                self._unhurried_now.add(partition)
                self._loop.call_soon(self._start, partition, hold)

    def _give_back(self, partition: Partition, hold: Hold) -> None:
        hold.release()
        self._left_to_others(partition)

    def _left_to_others(self, partition: Partition) -> None:
        if partition in self._unhurried_now:
            self._unhurried_now.remove(partition)
            self._go_on_unhurried()

    def _request_again(self, partition: Partition) -> None:
        del self._put_off[partition]
        self.request(partition)

    def _start(self, partition: Partition, hold: Hold) -> None:
        if (timer := self._again.pop(partition, None)) is not None:
            timer.cancel()  # or it would fire when `idle` does not know of it any more
        future: asyncio.Future[None] | None = None
        try:
            job = None if partition.lease.ended else self._job(partition)
            if job is not None:
                if job.checkpoint is not None:
                    hold.work = Work.CHECKPOINT
                future = self._loop.run_in_executor(self._executor, job.run)
                self.running += 1
                future.add_done_callback(partial(self._done, partition, job, hold))
        except (
            Exception
        ) as error:  # nobody waits for ever: what was taken for the sync may not be synced by the next
            self._report(partition, error)
        finally:
            if future is None:
                self._give_back(partition, hold)

    def _job(self, partition: Partition) -> SyncJob | None:
        """None: the log has failed, and those who wait know."""
        log = partition.log
        if log.failed:  # nor does a checkpoint of it, while it is opened again
            partition.sync_failed("the log is offline after an I/O error")
            return None
        try:
            return log.sync_job(checkpoint=log.needs_checkpoint)
        except ApiError as error:  # what was held back could not be written
            partition.sync_failed(str(error))
            return None

    def _report(self, partition: Partition, error: BaseException) -> None:
        """Not the disk: its files are not what they should be, and other logs' may well be."""
        partition.sync_failed(str(error))
        logger.error("%s-%d cannot be synced", partition.topic, partition.index, exc_info=error)

    def _done(self, partition: Partition, job: SyncJob, hold: Hold, future: "asyncio.Future[None]") -> None:
        self.running -= 1
        try:
            if not future.cancelled() and isinstance(future.exception(), TooManyFilesError):
                # Nothing is in doubt: whoever waits, waits a little longer, and nobody asks before.
                partition.log.sync_undone(job)
                hold.work = Work.SYNC
                self._left_to_others(partition)  # one of them may close a file
                self._again[partition] = self._loop.call_later(_AGAIN_SECONDS, self._start, partition, hold)
            else:
                self._give_back(partition, hold)
                self._finish(partition, job, future)
        finally:
            if not self.running and self._idle is not None and not self._idle.done():
                self._idle.set_result(None)

    async def covered(self, partition: Partition) -> None:
        """Wait until everything that is written now is durable, or the log has failed."""
        log, target = partition.log, partition.log.end_offset
        while log.synced_end.offset < target and partition.log is log:
            if log.failed or partition.lease.ended:
                return
            self.request(partition)
            await partition.lease.given_back()

    async def idle(self) -> None:
        """Wait until no sync is under way, and begin none again, for the shutdown."""
        self._unhurried.clear()
        while self.running:
            self._idle = self._loop.create_future()
            await self._idle
        for timer in self._again.values():
            timer.cancel()

    def _finish(self, partition: Partition, job: SyncJob, future: "asyncio.Future[None]") -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is not None:
            if isinstance(error, StorageError):
                partition.sync_failed(str(error))
                self._on_failure(str(error))
            else:
                self._report(partition, error)
            return
        try:
            partition.synced(job)
        except ShortageError as short:  # where readers may see up to now could not be read
            logger.warning("%s-%d is synced, and no more: %s", partition.topic, partition.index, short)
            self._again[partition] = self._loop.call_later(_AGAIN_SECONDS, self._ask_again, partition)
            return
        except StorageError as failed:
            partition.sync_failed(str(failed))
            return
        if partition.log.unsynced_bytes and partition.sync_before_ack:
            self.request(partition)

    def _ask_again(self, partition: Partition) -> None:
        self._again.pop(partition, None)
        self.request(partition)
