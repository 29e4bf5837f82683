"""Deleting the beginning of a partition on demand: gone for readers at once, and answered when it stays so.

That is when it is durable here and at every replica that may lead one day: those in sync, and those about to be. They
hear of it with their next fetch, and say where their logs begin with the one after it. Replicas that are away, or
behind, do so before they are in sync again (`Leading.may_join`).
"""

import asyncio

from penstock.core.clock import Clock
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.jobs import Jobs
from penstock.replication.partition import Partition
from penstock.replication.table import PartitionTable, Topic
from penstock.services.relay.inbox import Committed
from penstock.services.relay.words import oldest_word, say_beyond
from penstock.services.topic_names import INTERNAL_TOPICS

# In place of an offset: everything that readers can see.
UP_TO_HIGH_WATERMARK = -1


class DeletionService:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, jobs: Jobs, clock: Clock, table: PartitionTable
    ) -> None:
        self._clock = clock
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
            offset = partition.readable.offset
        if not 0 <= offset <= partition.readable.offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        deadline = self._loop.time() + timeout_s
        await self._keep_words(served, partition, offset, deadline)
        log = partition.log
        log.advance_start(offset)
        if log.start_offset > 0:
            # Also where nothing moved: the request that moved it may still be waiting for the disk.
            await self._jobs.run(log.start_job().run)
        await self._deleted_everywhere(partition, offset, deadline)
        return max(offset, partition.low_watermark)

    async def _deleted_everywhere(self, partition: Partition, offset: int, deadline: float) -> None:
        waiter, epoch = _Deletion(), partition.leader_epoch
        partition.deletion_waiters[waiter] = None
        try:
            async with asyncio.timeout_at(deadline):
                while partition.low_watermark < offset:
                    waiter.moved.clear()
                    await waiter.moved.wait()
                    if not partition.is_leader or partition.leader_epoch != epoch:
                        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        except TimeoutError as error:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "not all replicas have deleted it in time") from error
        finally:
            del partition.deletion_waiters[waiter]

    async def _keep_words(self, topic: Topic, partition: Partition, offset: int, deadline: float) -> None:
        """What relays said before `offset` is said again first; ApiError when that cannot be committed in time."""
        oldest = oldest_word(topic, partition)
        if oldest is None or oldest >= offset:
            return
        last = say_beyond(topic, partition, offset, self._clock.now_ms())
        if partition.is_committed(last):
            return
        waiter = Committed(self._loop)
        partition.wait_for_commit(last, waiter)
        try:
            async with asyncio.timeout_at(deadline):
                await waiter.done
        except TimeoutError as error:
            message = "how far relays are could not be committed in time, and nothing was deleted"
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, message) from error


class _Deletion:
    """A `DataWaiter` that hears of whatever followers say."""

    __slots__ = ("moved",)

    def __init__(self) -> None:
        self.moved = asyncio.Event()

    def advanced(self, added_bytes: int) -> None:
        self.moved.set()
