"""What a broker does by the clock: retention, the files of deleted segments, forgotten producers, `flush.ms`.

One partition after the other, each with its blocking part in a thread, so that thousands of them never hold the loop.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from penstock.config.live import LiveConfig
from penstock.core.clock import Clock
from penstock.core.descriptors import Descriptors
from penstock.core.errors import PenstockError
from penstock.core.jobs import Jobs
from penstock.core.lease import Hold, Work
from penstock.core.tasks import endless
from penstock.core.turns import Turn, give_way
from penstock.replication.group_commit import GroupCommit
from penstock.replication.partition import Partition
from penstock.replication.table import PartitionTable, Topic
from penstock.services.maintenance.archive_watch import ArchiveWatch
from penstock.services.maintenance.retention import retention_of
from penstock.services.relay.positions import keep_positions
from penstock.storage.deletion import Deletion
from penstock.storage.retention import held_bytes

logger = logging.getLogger(__name__)

# How often `flush.ms` is looked at: it is a bound on what a crash may cost, not an appointment.
_FLUSH_EVERY_SECONDS = 1.0
# When too many files wait for a sync, those of so long are synced together.
_RELIEF_SECONDS = 0.02

# How long an offline log rests between two attempts to open it again.
_OFFLINE_RETRY_SECONDS = 5.0


@dataclass(slots=True)
class _Unsynced:
    """Since when a partition has bytes that are not known to be on disk."""

    since: float
    synced_offset: int


class Upkeep:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        jobs: Jobs,
        clock: Clock,
        table: PartitionTable,
        group_commit: GroupCommit,
        config: LiveConfig,
        descriptors: Descriptors,
        reopen: Callable[[], Awaitable[None]],
        open_missing: Callable[[], Awaitable[None]],
    ) -> None:
        """`reopen` tries to bring back logs that an I/O error took offline, `open_missing` those that never opened.

        `descriptors` tells when files must be synced, so that they can be closed and others be opened.
        """
        self._descriptors = descriptors
        self._reopen = reopen
        self._open_missing = open_missing
        self._loop = loop
        self._turn = Turn(loop.time)
        self._jobs = jobs
        self._clock = clock
        self._table = table
        self._group_commit = group_commit
        self._config = config
        self._unsynced: dict[Partition, _Unsynced] = {}
        self._relief: asyncio.TimerHandle | None = None
        self._deletions: dict[int, asyncio.TimerHandle] = {}
        self._deletion_last = 0
        self.deleted_bytes = 0
        self.archive = ArchiveWatch()

    async def run(self) -> None:
        """Until cancelled."""
        self._descriptors.on_pressed = self._relieve_soon
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(endless(self._enforce_retention))
                tasks.create_task(endless(self._flush_by_age))
                tasks.create_task(endless(self._bring_back_offline_logs))
        finally:
            self._descriptors.on_pressed = None
            if self._relief is not None:
                self._relief.cancel()

    async def _enforce_retention(self) -> None:
        await asyncio.sleep(self._config.now.log_initial_task_delay_ms / 1000)
        while True:
            for topic in self._table.stored_topics():
                await self._tend_topic(topic)
            self.archive.keep_only({t.name for t in self._table.stored_topics() if t.config.archive_required})
            await asyncio.sleep(self._config.now.log_retention_check_interval_ms / 1000)

    async def _tend_topic(self, topic: Topic) -> None:
        held, complete = 0, True
        for partition in list(topic.partitions.values()):
            await self._turn.give_way()
            if partition.log.failed:
                complete = False
                continue
            try:
                held += await self.tend(topic, partition)
            except PenstockError as error:
                logger.error("retention of %s-%d: %s", partition.topic, partition.index, error)  # noqa: TRY400
                complete = False
            except Exception:  # one log's trouble is not that of the others, nor of the broker
                logger.exception("retention of %s-%d, which is left alone", partition.topic, partition.index)
                complete = False
        if complete and topic.config.archive_required:
            self.archive.report(topic.name, held, self._config.now.penstock_archive_held_bytes_alarm)

    async def tend(self, topic: Topic, partition: Partition) -> int:
        """Delete what the topic's retention gives up, and forget producers that are long silent.

        Returns how many bytes would have gone, too, had the archive taken them.
        """
        now_ms = self._clock.now_ms()
        routes = self._table.routes.into(topic.id, partition.index)
        producers = partition.log.producers
        if producers.refused:
            logger.error(
                "%s-%d: %d batches of new idempotent producers were refused: it remembers %d, all partitions here %d,"
                " many of them of late",
                partition.topic,
                partition.index,
                producers.refused,
                len(producers),
                self._table.producers.known,
            )
        expiration_ms = self._config.now.producer_id_expiration_ms
        for _ in producers.expiring(now_ms, expiration_ms, {route.source for route in routes}):
            await self._turn.give_way()
        for segment in partition.log.row.unknown_times():
            await self._jobs.run(segment.load_times)
        if partition.log.failed or (hold := partition.lease.take(Work.DELETE)) is None:
            return 0
        with hold:
            return await self._expire(topic, partition, hold, now_ms)

    async def _expire(self, topic: Topic, partition: Partition, hold: Hold, now_ms: int) -> int:
        # From here to `expire` nothing waits: settings that changed while times were loaded must count, since whoever
        # made an archive required has been promised that nothing goes without it.
        config = topic.config
        limits, limit_offset = retention_of(topic, partition)
        held = held_bytes(partition.log.summaries(), limits, partition.log.start_offset, limit_offset, now_ms)
        routes = self._table.routes.into(topic.id, partition.index)
        if routes and partition.is_leader:
            limit_offset = keep_positions(routes, partition, limits, limit_offset, now_ms)
        deletion = partition.log.expire(limits, limit_offset, now_ms)
        if partition.log.needs_checkpoint:
            # Only what lies before the recovery point may go: let the point move up for the next time.
            self._group_commit.request_unhurried(partition)
        if deletion is None:
            return held
        logger.info(
            "%s-%d: retention deletes %d segments, %d bytes; the log now starts at %d",
            partition.topic,
            partition.index,
            len(deletion.segments),
            deletion.size_bytes,
            partition.log.start_offset,
        )
        try:
            await self._jobs.run(partial(deletion.hide, partition.lease), hold=hold)
        except Exception:  # the rest is tried again, the next time
            self._hidden(partition, deletion, config.file_delete_delay_ms)
            raise
        self._hidden(partition, deletion, config.file_delete_delay_ms)
        return held

    def _hidden(self, partition: Partition, deletion: Deletion, delay_ms: int) -> None:
        if not partition.lease.ended:  # else it goes with the whole log
            partition.log.hidden(deletion)
            self.deleted_bytes += sum(segment.size for segment in deletion.hidden)
            self.unlink_later(deletion, delay_ms)

    def unlink_later(self, deletion: Deletion, delay_ms: int) -> None:
        """Files that were hidden go when nobody reads from them any more."""
        # By number: a callback that knew its own handle would be a cycle, and keep the files open (and so their space
        # taken) until the garbage collector comes by.
        self._deletion_last = number = self._deletion_last + 1
        self._deletions[number] = self._loop.call_later(delay_ms / 1000, self._unlink, number, deletion)

    def _unlink(self, number: int, deletion: Deletion) -> None:
        del self._deletions[number]
        self._jobs.start(f"{deletion.directory}: deleted segments stay until the next start", deletion.unlink)

    def close(self) -> None:
        """What waits to be unlinked is, at the next start."""
        for handle in self._deletions.values():
            handle.cancel()

    async def _bring_back_offline_logs(self) -> None:
        again = False
        while True:
            await asyncio.sleep(_OFFLINE_RETRY_SECONDS)
            try:
                if again or any(partition.log.failed for partition in self._table.partitions()):
                    await self._reopen()
                await self._open_missing()
                again = False
            except PenstockError:  # a log that was opened could not be read, say: it may be another time
                logger.exception("not all that was offline could be brought back")
                again = True

    async def _flush_by_age(self) -> None:
        while True:
            await asyncio.sleep(_FLUSH_EVERY_SECONDS)
            if self._descriptors.pressed:
                self._relieve_soon()
            await self.flush_old()

    async def flush_old(self) -> None:
        """Sync what has waited for longer than its topic says; others have their turn in between."""
        before, self._unsynced = self._unsynced, {}  # so that nothing is kept of partitions that are gone
        number = 0
        for topic in self._table.stored_topics():
            for partition in list(topic.partitions.values()):
                await give_way(number)
                number += 1
                if not partition.sync_before_ack:
                    self._flush_if_old(partition, before.get(partition), topic.config.flush_ms)

    def _relieve_soon(self) -> None:
        if self._relief is None:
            self._relief = self._loop.call_later(_RELIEF_SECONDS, self._relieve)

    def _relieve(self) -> None:
        """So many files wait for a sync that others could not be opened soon."""
        self._relief = None
        if self._descriptors.pressed:
            for partition in self._table.partitions():
                # Also where a full disk took nothing: until a sync its file stays open.
                if partition.log.unsynced.last is not None:
                    self._group_commit.request_unhurried(partition)

    def _flush_if_old(self, partition: Partition, known: _Unsynced | None, flush_ms: int) -> None:
        """`known`: as it was found the last time."""
        if not partition.log.unsynced_bytes:
            return
        synced = partition.log.synced_end.offset
        if known is None or known.synced_offset != synced:
            known = _Unsynced(self._loop.time(), synced)
        elif (self._loop.time() - known.since) * 1000 >= flush_ms:
            self._group_commit.request_unhurried(partition)
        self._unsynced[partition] = known
