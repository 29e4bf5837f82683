"""Deleting the beginning of a partition on demand: gone for readers at once, and answered when it stays so.

That is when it is durable here and at every replica that may lead one day: those in sync, and those about to be. They
hear of it with their next fetch, and say where their logs begin with the one after it. Replicas that are away, or
behind, do so before they are in sync again (`Leading.may_join`).
"""

import asyncio

from penstock.core.clock import Clock
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.internal_topics import INTERNAL_TOPICS
from penstock.core.jobs import Jobs
from penstock.core.lease import Work
from penstock.replication.group_commit import GroupCommit
from penstock.replication.partition import Partition
from penstock.replication.table import PartitionTable, Topic
from penstock.services.acknowledging import Committed
from penstock.services.relay.positions import are_committed, oldest_position, repeat_positions
from penstock.storage.log import Log

# In place of an offset: everything that readers can see.
UP_TO_HIGH_WATERMARK = -1


class DeletionService:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        jobs: Jobs,
        clock: Clock,
        table: PartitionTable,
        group_commit: GroupCommit,
    ) -> None:
        self._clock = clock
        self._group_commit = group_commit
        self._loop = loop
        self._jobs = jobs
        self._table = table

    async def delete_before(self, topic: str, index: int, offset: int, timeout_s: float) -> int:
        """The first offset that is left; ApiError when the records may not go, or not everywhere in time."""
        partition = self._table.find(topic, index)
        if topic in INTERNAL_TOPICS:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        served = self._table.by_name[topic.encode()]
        config = served.config
        if config.compacts and not config.deletes:
            raise ApiError(ErrorCode.POLICY_VIOLATION)
        if offset == UP_TO_HIGH_WATERMARK:
            offset = partition.limits.readable.offset
        if not 0 <= offset <= partition.limits.readable.offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        try:
            await self._delete(_Led(self._table, served, partition), offset, self._loop.time() + timeout_s)
        except TimeoutError as error:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "not all replicas have deleted it in time") from error
        return max(offset, partition.low_watermark)

    async def _delete(self, led: "_Led", offset: int, deadline: float) -> None:
        """Whoever does not lead any more has nothing to promise: that is looked at after every wait."""
        partition = led.partition
        async with asyncio.timeout_at(deadline):
            await self._keep_positions(led, offset)
        log = partition.log
        _check_online(log)
        log.advance_start(offset)
        if log.start_offset > 0:
            if log.synced_end.offset < log.start_offset:
                # Only so far is it marked. Another request may move it further meanwhile, and waits by itself.
                async with asyncio.timeout_at(deadline):
                    await self._group_commit.covered(partition)
                led.check()
                _check_online(log)
            # Also where nothing moved: the request that moved it may still be waiting for the disk.
            await self._mark_start(led, log)
            led.check()
        async with asyncio.timeout_at(deadline):
            await self._deleted_everywhere(led, offset)

    async def _mark_start(self, led: "_Led", log: Log) -> None:
        hold = await led.partition.lease.get(Work.DELETE)
        if hold is None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        with hold:
            _check_online(log)
            await self._jobs.run(log.start_job().run, hold=hold)

    async def _deleted_everywhere(self, led: "_Led", offset: int) -> None:
        waiter, partition = _Deletion(), led.partition
        partition.deletion_waiters[waiter] = None
        try:
            while partition.low_watermark < offset:
                waiter.moved.clear()
                await waiter.moved.wait()
                led.check()
        finally:
            del partition.deletion_waiters[waiter]

    async def _keep_positions(self, led: "_Led", offset: int) -> None:
        """What relays said before `offset` is said again first; ApiError when that cannot be committed."""
        partition = led.partition
        while True:
            routes = self._table.routes.into(led.topic.id, partition.index)
            oldest = oldest_position(routes, partition)
            if oldest is None or oldest >= offset:
                return
            if are_committed(routes, partition):
                last = repeat_positions(routes, partition, self._clock.now_ms())
            else:  # it is under way: each try would write one more, and a segment for it
                last = partition.log.end_offset - 1
            if not partition.is_committed(last):
                waiter = Committed(self._loop)
                partition.limits.wait_for_commit(last, waiter)
                await waiter.done
                led.check()


def _check_online(log: Log) -> None:
    if log.failed:
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the log is offline after an I/O error")


class _Led:
    """A partition that was led here, under one epoch, when the request came."""

    __slots__ = ("_epoch", "_table", "partition", "topic")

    def __init__(self, table: PartitionTable, topic: Topic, partition: Partition) -> None:
        self._table = table
        self.topic = topic
        self.partition = partition
        self._epoch = partition.leader_epoch

    def check(self) -> None:
        """ApiError when it is no longer."""
        if self._table.by_id.get(self.topic.id) is not self.topic:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partition = self.partition
        is_served = self.topic.partitions.get(partition.index) is partition and not partition.lease.ended
        if not is_served or not partition.is_leader or partition.leader_epoch != self._epoch:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


class _Deletion:
    """A `DataWaiter` that hears of whatever followers say."""

    __slots__ = ("moved",)

    def __init__(self) -> None:
        self.moved = asyncio.Event()

    def advanced(self, added_bytes: int) -> None:
        self.moved.set()
