"""Compaction of one log: rounds until it is clean, and how what they wrote comes into force.

Rewriting opens every record, which in this process would hold up everybody else, so all but small logs are rewritten by
a process of their own (`round_of`); here only files are exchanged, in a thread, segment by segment. What changed
meanwhile (the policy, the archive's progress, the log itself) is looked at again right before each exchange. Compaction
obeys the rules of retention: nothing above the last stable offset, nothing that a required archive has not taken.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import NamedTuple, Protocol

from penstock.config.live import LiveConfig
from penstock.core.clock import Clock
from penstock.core.jobs import Jobs
from penstock.core.lease import Hold, Work
from penstock.replication.cleaned_mark import note_cleaned
from penstock.replication.group_commit import GroupCommit
from penstock.replication.partition import Partition
from penstock.replication.retirement import find_limit
from penstock.replication.table import PartitionTable, Topic
from penstock.services.maintenance.archive_progress import archived_end
from penstock.storage.aborted_transactions import AbortedTransaction
from penstock.storage.compaction.checkpoint import Cleaned
from penstock.storage.compaction.clean_job import CleanedSegment, CleanJob, Learned
from penstock.storage.compaction.cleanable import Cleanable, CleanLimits, cleanable
from penstock.storage.compaction.cleaning import CleanRound
from penstock.storage.compaction.swap import SegmentSwap, prepare_swap
from penstock.storage.deletion import Deletion
from penstock.storage.log import Log

logger = logging.getLogger(__name__)

# Up to here a log is rewritten in a thread: some milliseconds, for which starting a process would not pay.
_SMALL_BYTES = 256 * 1024
# The map of keys is filled with zeros when it is made, and the loop waits for that: it is no larger than keys could
# make use of. A slot is 24 bytes. Where compression hides more keys in a dirty byte, another round takes them.
_MAP_BYTES_PER_BYTE = 16

Loaded = dict[int, list[AbortedTransaction]]  # by segment


class Round(Protocol):
    """See `CleanRound`: here, or in another process."""

    def learn(self) -> Learned: ...
    def rewrite_next(self) -> CleanedSegment | None: ...
    def close(self) -> None: ...


@dataclass(slots=True)
class CompactionStats:
    rounds: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    freed_bytes: int = 0
    last_seconds: float = 0.0


class _Read(NamedTuple):
    """The log that a round reads, as it is when the round begins: what was cut since is not what was read."""

    topic: Topic
    partition: Partition
    log: Log
    cuts: int


class LogCompaction:
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
        round_of: Callable[[CleanJob], Round],
    ) -> None:
        """`round_of` makes rounds for large logs, for threads of the `worker`; None: those of the other jobs."""
        self._loop = loop
        self._jobs = jobs
        self._worker = worker
        self._clock = clock
        self._table = table
        self._group_commit = group_commit
        self._config = config
        self._unlink_later = unlink_later
        self._round_of = round_of
        self.stats = CompactionStats()

    def cleanable(self, topic: Topic, partition: Partition) -> Cleanable:
        """What of the log may be rewritten as things are now."""
        config, log = topic.config, partition.log
        summaries, stable = log.summaries(), partition.limits.last_stable
        # Only what lies before the recovery point's segment is durable for good, and only what lies before that of
        # the last stable offset may change its size.
        wanted = sum(each.base_offset < stable.segment for each in summaries[:-1])
        count = min(wanted, log.checkpointed_count(wanted))
        if log.needs_checkpoint:
            self._group_commit.request(partition)
        archived = archived_end(topic, partition) if config.archive_required else None
        limits = CleanLimits(
            stable.offset, summaries[count].base_offset, archived, config.min_compaction_lag_ms
        )
        return cleanable(summaries, log.start_offset, log.cleaned.offset, limits, self._clock.now_ms())

    async def compact(self, topic: Topic, partition: Partition) -> bool:
        """In as many rounds as its keys need; False when the log changed so that it may not go on."""
        log = partition.log
        loaded: Loaded = {}
        while True:
            # Only now, with nothing to wait for in between: a log that was cut meanwhile is another one.
            found, cuts = self.cleanable(topic, partition), log.cuts
            if partition.log is not log or not found.dirty_bytes:
                return False
            aborted = log.row.aborted.all(loaded)
            if aborted is None:
                loaded = await self._load_aborted(log, cuts)
                continue
            loaded = {}
            is_small = found.clean_bytes + found.dirty_bytes <= _SMALL_BYTES
            job = self._job(topic, partition, found)._replace(aborted=tuple(aborted))
            one_round = CleanRound(job) if is_small else self._round_of(job)
            worker = None if is_small else self._worker
            try:
                learned = await self._play(_Read(topic, partition, log, cuts), one_round, worker)
            finally:
                self._jobs.start("a round of compaction did not end well", one_round.close)
            if learned is None or learned.complete:
                return learned is not None  # else the keys did not fit: go on where it ended

    async def _load_aborted(self, log: Log, cuts: int) -> Loaded:
        """Aborted transactions of segments whose are not in memory; none if the log was cut meanwhile."""
        row = log.row
        loaded = await self._jobs.run(partial(row.aborted.read, row.aborted.cold(), row.rebuild_aborted))
        return loaded if log.cuts == cuts else {}

    async def _play(self, read: _Read, one_round: Round, worker: Executor | None) -> Learned | None:
        partition = read.partition
        began = self._loop.time()
        learned = await self._jobs.run(one_round.learn, on=worker)
        read_bytes, written_bytes = learned.read_bytes, 0
        while (cleaned := await self._jobs.run(one_round.rewrite_next, on=worker)) is not None:
            read_bytes += cleaned.read_bytes
            if cleaned.changed:
                written_bytes += cleaned.size_bytes
                if not await self._exchange(read, cleaned, learned.end_offset):
                    return None
        if not await self._note(read, lambda known: known._replace(offset=learned.end_offset)):
            return None
        stats = self.stats
        stats.rounds += 1
        stats.read_bytes += read_bytes
        stats.written_bytes += written_bytes
        stats.last_seconds = self._loop.time() - began
        logger.info(
            "%s-%d: compacted up to %d: %d keys, %d bytes read, %d written, %.1f s",
            partition.topic,
            partition.index,
            learned.end_offset,
            learned.keys,
            read_bytes,
            written_bytes,
            stats.last_seconds,
        )
        return learned

    def _job(self, topic: Topic, partition: Partition, found: Cleanable) -> CleanJob:
        config, broker, log, leading = topic.config, self._config.now, partition.log, partition.leading
        lately = self._loop.time() - broker.replica_lag_time_max_ms / 1000
        last_batches = ((row[0], row[3][-1]) for row in log.producers.rows() if row[3])
        producers = {producer_id: batch[3] for producer_id, batch in last_batches}  # its last offset
        return CleanJob(
            files=log.files,
            directory=log.directory,
            segments=found.segments,
            first_dirty=found.first_dirty,
            now_ms=self._clock.now_ms(),
            delete_retention_ms=config.delete_retention_ms,
            producers=producers,
            memory_bytes=min(
                broker.log_cleaner_dedupe_buffer_size // max(broker.log_cleaner_threads, 1),
                found.dirty_bytes * _MAP_BYTES_PER_BYTE,
            ),
            load_factor=broker.log_cleaner_io_buffer_load_factor,
            io_bytes=broker.log_cleaner_io_buffer_size // max(broker.log_cleaner_threads, 1),
            segment_bytes=config.segment_bytes,
            index_interval_bytes=config.index_interval_bytes,
            index_bytes_max=config.segment_index_bytes,
            bytes_per_second_max=broker.log_cleaner_io_max_bytes_per_second,
            tombstones_stay_from=inf if leading is None else leading.lowest_end_since(lately),
        )

    async def _exchange(self, read: _Read, cleaned: CleanedSegment, learned_to: int) -> bool:
        """Put one compacted segment in place; False when the log has changed so that it may not be.

        It lacks what records below `learned_to` took the place of.
        """
        topic, partition, log = read.topic, read.partition, read.log
        # Known before it is so: whoever comes back below it has missed them.
        tombstones_to = cleaned.tombstones_to
        if not await self._note(
            read, lambda known: known.without_tombstones(tombstones_to).going_by(learned_to)
        ):
            return False
        hold = await self._may_change(read)
        if hold is None:
            return False
        with hold:
            if not topic.config.compacts:
                return False
            swap = prepare_swap(log, cleaned, self.cleanable(topic, partition).end_offset)
            if swap is None:
                return False
            before = sum(each.size for each in log.row.between(cleaned.base_offset, cleaned.end_offset))
            await self._run(swap, hold, log)
            self._unlink_later(swap.finish(), topic.config.file_delete_delay_ms)
            find_limit(partition)  # it may have been retired meanwhile
        self.stats.freed_bytes += before - cleaned.size_bytes
        return True

    async def _may_change(self, read: _Read) -> Hold | None:
        """Once nobody else changes the log's files; None when it is not the log any more that was read."""
        hold = await read.partition.lease.get(Work.CLEAN)
        if hold is not None and not self._is_as_read(read):
            hold.release()
            return None
        return hold

    def _is_as_read(self, read: _Read) -> bool:
        topic, partition, log = read.topic, read.partition, read.log
        if self._table.by_id.get(topic.id) is not topic or partition.retirement is not None:
            return False
        if topic.partitions.get(partition.index) is not partition or partition.log is not log:
            return False
        return not log.failed and log.cuts == read.cuts

    async def _run(self, swap: SegmentSwap, hold: Hold, log: Log) -> None:
        try:
            await self._jobs.run(swap.run, hold=hold)
        except Exception:  # whatever it was, nobody waits for ever for segments that stay pinned
            if swap.committed:
                log.sync_failed()  # only opening it again can tell what is there, and finish the exchange
            else:
                swap.undo()
            raise

    async def _note(self, read: _Read, change: Callable[[Cleaned], Cleaned]) -> bool:
        """Write down how far it is clean; False when it is not the log any more that was read."""
        hold = await self._may_change(read)
        if hold is None:
            return False
        with hold:
            # As it is now: who was waited for may have changed it.
            await note_cleaned(self._jobs, hold, read.log, change(read.log.cleaned))
        return True
