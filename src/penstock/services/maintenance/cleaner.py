"""Log compaction by the clock: which log is due, and what becomes of one that cannot be compacted.

The dirtiest log that is due goes first; `log_compaction` rewrites it. An error that nobody foresaw parks the partition
until the next start and is reported; the others go on.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from penstock.config.live import LiveConfig
from penstock.core.clock import Clock
from penstock.core.errors import DiskError, StorageError, WorkerDiedError
from penstock.core.jobs import Jobs
from penstock.replication.group_commit import GroupCommit
from penstock.replication.partition import Partition
from penstock.replication.table import PartitionTable, Topic
from penstock.services.maintenance.log_compaction import LogCompaction, Round
from penstock.storage.compaction.clean_job import CleanJob
from penstock.storage.compaction.cleanable import Cleanable, is_due
from penstock.storage.compaction.cleaning import CleanRound
from penstock.storage.compaction.swap import discard_cleaned
from penstock.storage.deletion import Deletion
from penstock.storage.log import Log

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger(__name__)

_LONG_MAX = 2**63 - 1
# How long a log is left alone whose worker process died.
_WORKER_DIED_REST_SECONDS = 600


@dataclass(slots=True)
class _Due:
    topic: Topic
    partition: Partition
    found: Cleanable


class Cleaner:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        jobs: Jobs,
        worker: Executor | None,
        clock: Clock,
        table: PartitionTable,
        group_commit: GroupCommit,
        config: LiveConfig,
        unlink_later: Callable[[Deletion, int], None],
        round_of: Callable[[CleanJob], Round] = CleanRound,
    ) -> None:
        """`worker` and `round_of` are for large logs; see `LogCompaction`."""
        self._loop = loop
        self._jobs = jobs
        self._clock = clock
        self._table = table
        self._config = config
        self._compaction = LogCompaction(
            loop, jobs, worker, clock, table, group_commit, config, unlink_later, round_of
        )
        # By directory: a round of a topic that was deleted may still write into that of the one made again.
        self._busy: dict[Path, None] = {}
        self.parked: dict[Partition, Log] = {}
        self._resting: dict[Partition, float] = {}  # until when
        self.dirty_ratios: dict[tuple[str, int], float] = {}  # by topic and number
        self.stats = self._compaction.stats

    async def run(self) -> None:
        """Until cancelled."""
        if not self._config.now.log_cleaner_enable:
            return
        async with asyncio.TaskGroup() as tasks:
            running: dict[int, asyncio.Task[None]] = {}
            while True:
                # More threads may be asked for at any time; those too many end by themselves.
                for number in range(self._config.now.log_cleaner_threads):
                    if number not in running or running[number].done():
                        running[number] = tasks.create_task(self._work(number))
                await asyncio.sleep(self._rest_seconds)

    @property
    def _rest_seconds(self) -> float:
        return max(self._config.now.log_cleaner_backoff_ms / 1000, 0.01)

    async def _work(self, number: int) -> None:
        while number < self._config.now.log_cleaner_threads:
            if not await self.clean_next():
                await asyncio.sleep(self._rest_seconds)

    async def clean_next(self) -> bool:
        """One round of the dirtiest log that is due; False when none is."""
        due = await self._dirtiest()
        if due is None:
            return False
        partition = due.partition
        directory = partition.log.directory
        if directory in self._busy:
            return True  # another one of us was faster
        self._busy[directory] = None
        try:
            if not await self._compaction.compact(due.topic, partition):
                await self._discard(partition.log)
                return False
        except DiskError as error:  # the disk's trouble: it may pass
            logger.warning("%s-%d cannot be compacted now: %s", partition.topic, partition.index, error)
            await self._discard(partition.log)
            return False
        except WorkerDiedError as error:  # killed for its memory, most likely: others first
            logger.warning(
                "%s-%d cannot be compacted for a while: %s", partition.topic, partition.index, error
            )
            self._resting[partition] = self._loop.time() + _WORKER_DIED_REST_SECONDS
            await self._discard(partition.log)
            return False
        except FileNotFoundError:
            await self._discard(partition.log)
            return False  # the topic was deleted, or retention was faster
        except Exception:
            logger.exception(
                "%s-%d cannot be compacted, and is left alone until the broker starts again",
                partition.topic,
                partition.index,
            )
            self.parked[partition] = partition.log
            await self._discard(partition.log)
        finally:
            del self._busy[directory]
        return True

    async def _dirtiest(self) -> _Due | None:
        served = set(self._table.partitions())
        self.parked = {partition: log for partition, log in self.parked.items() if partition in served}
        self._resting = {partition: end for partition, end in self._resting.items() if partition in served}
        best: _Due | None = None
        ratios: dict[tuple[str, int], float] = {}
        for topic in self._table.stored_topics():
            if not topic.config.compacts:
                continue
            for partition in list(topic.partitions.values()):
                try:
                    found = await self._look(topic, partition)
                    if found is None:
                        continue
                    ratios[topic.name, partition.index] = found.dirty_ratio
                    is_better = best is None or found.dirty_ratio > best.found.dirty_ratio
                    free = partition.log.directory not in self._busy
                    if is_better and free and await self._is_due(topic, partition, found):
                        best = _Due(topic, partition, found)
                except (StorageError, FileNotFoundError) as error:
                    logger.warning("%s-%d: %s", topic.name, partition.index, error)
        self.dirty_ratios = ratios
        return best

    async def _look(self, topic: Topic, partition: Partition) -> Cleanable | None:
        if self.parked.get(partition, partition.log) is not partition.log:
            del self.parked[partition]  # it was opened anew, and recovery has looked at it
        if partition.log.failed or partition in self.parked or partition.retirement is not None:
            return (
                None  # a retired one is moved as it is, and its readers stop at a place in one of its files
            )
        if self._resting.get(partition, 0) > self._loop.time():
            return None
        if topic.config.min_compaction_lag_ms > 0:
            for segment in partition.log.row.unknown_times():
                await self._jobs.run(segment.load_times)
        return self._compaction.cleanable(topic, partition)

    async def _is_due(self, topic: Topic, partition: Partition, found: Cleanable) -> bool:
        config = topic.config
        waited_ms = 0
        dirty = found.dirty_segments()
        if dirty and config.max_compaction_lag_ms < _LONG_MAX:
            oldest = partition.log.row.between(dirty[0].base_offset, dirty[0].next_offset)
            if oldest:
                first_time = await self._jobs.run(oldest[0].first_time)
                waited_ms = self._clock.now_ms() - first_time if first_time >= 0 else 0
        return is_due(found, config.min_cleanable_dirty_ratio, waited_ms, config.max_compaction_lag_ms)

    async def _discard(self, log: Log) -> None:
        """What a round had written before it was given up."""
        try:
            await self._jobs.run(partial(discard_cleaned, log.files, log.directory))
        except StorageError as error:
            logger.warning("%s: %s", log.directory, error)
