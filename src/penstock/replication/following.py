"""Following a leader: what it answers is taken over byte for byte, and what it never had is cut off.

    fetch at our end, naming the epoch of the last batch we have
      ├─ records         append them; durable first where the topic wants `synced`, since asking for the next says
      │                  "I have it"; then note the leader's high watermark and, durably, where its log starts
      ├─ diverging       our last epoch ended earlier over there: cut back to where the two histories part, ask again
      ├─ … with no epoch tombstones went that we never saw, or our log is of another history: begin anew (ADR 14)
      └─ fenced, moved   leave it: the metadata will say who leads

Only epochs decide what is cut. A follower that went by the high watermark, which lags behind, would throw away records
that it acknowledged, and might be elected without them.
"""

import asyncio
import logging
from functools import partial

from penstock.core.clock import Clock
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, StorageError
from penstock.core.jobs import Jobs
from penstock.records.batch import check_batch
from penstock.replication.group_commit import GroupCommit
from penstock.replication.partition import Partition
from penstock.storage.cleaner_checkpoint import save_cleaned
from penstock.storage.deletion import StartJob
from penstock.storage.log import Log
from penstock.storage.recovery import begin_anew
from penstock.storage.replicated import GapError, append_replicated
from penstock.wire.kafka.generated.fetch import PartitionData

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.002


class Follower:
    """Applies a leader's answers to the logs of this broker."""

    def __init__(self, jobs: Jobs, clock: Clock, group_commit: GroupCommit) -> None:
        self._jobs = jobs
        self._clock = clock
        self._group_commit = group_commit
        # Gaps that a leader showed, by topic id and partition: see `_append`.
        self._gaps: dict[tuple[bytes, int], tuple[int, int]] = {}

    async def take(self, partition: Partition, epoch: int, answer: PartitionData) -> bool:
        """Take over one answer; False when the partition should rest before it is asked for again."""
        if partition.is_leader or partition.leader_epoch != epoch or partition.log.failed:
            return False  # an answer of the past
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if answer.log_start_offset > partition.log.end_offset:
                await self._begin_at(partition, answer.log_start_offset)
            return False
        if answer.error_code != ErrorCode.NONE:
            return False
        if answer.diverging_epoch.end_offset >= 0:
            epoch, end_offset = answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset
            if epoch < 0:
                return await self._begin_anew(partition, end_offset, answer.high_watermark)
            if (
                not partition.in_sync
                and divergence(partition.log, epoch, end_offset) < partition.log.cleaned.offset
            ):
                # Values were compacted away for the sake of records that are to be cut: an unclean election kept them.
                return await self._begin_anew(partition, answer.log_start_offset, 0)
            await self._cut(partition, epoch, end_offset)
            return True
        went_well = True
        try:
            if answer.records:
                await self._expect_gaps(partition, answer.high_watermark)
                await self._begin_with(partition, answer.records)
                self._append(partition, epoch, memoryview(answer.records))
            partition.told_committed(answer.high_watermark)
            await self._advance_start(partition, answer.log_start_offset)
        except (ApiError, StorageError) as error:
            log.warning("%s-%d cannot follow its leader: %s", partition.topic, partition.index, error)
            went_well = False
        if partition.sync_before_ack and answer.records:
            # Also what was taken over before something went wrong: the next fetch says that we have it.
            await self._group_commit.covered(partition)
        return went_well

    def _append(self, partition: Partition, epoch: int, records: memoryview) -> None:
        """Batches of a later epoch, or behind a gap, are not what the leader that was asked has.

        A topic that compacted once has gaps for ever: one that the leader shows again, when it is asked again, is its.
        """
        key = (partition.topic_id, partition.index)
        gap = self._gaps.pop(key, None)
        try:
            append_replicated(partition.log, records, self._clock.now_ms(), epoch=epoch, gap=gap)
        except GapError as error:
            self._gaps[key] = error.place
            raise

    async def _expect_gaps(self, partition: Partition, committed: int) -> None:
        """Before the first gap is taken over: recovery must know that it is by right, whatever the policy is then.

        And a leader that compacts, or did once, may lack tombstones anywhere below what is committed: then a copy that
        begins does, too, and one that is on its way, which knows of more of them than it has got to.
        """
        one = partition.log
        may_compact = one.settings.compacts or one.may_have_gaps
        if not may_compact and (partition.topic_id, partition.index) not in self._gaps:
            return
        is_copy = one.start_offset == one.end_offset or one.cleaned.tombstones >= one.end_offset
        tombstones = committed if committed > one.end_offset and (is_copy or not one.may_have_gaps) else 0
        if not one.may_have_gaps or tombstones > one.cleaned.tombstones:
            await self._lack_tombstones(partition, tombstones)

    async def _lack_tombstones(self, partition: Partition, tombstones: int) -> None:
        """Written down before anything without them is here. StorageError: it is not."""
        await self._quiet(partition)
        one = partition.log
        partition.truncating = True  # the cleaner writes the same file
        try:
            known = one.cleaned.without_tombstones(tombstones)
            job = partial(save_cleaned, one.files, one.directory, known)
            await self._jobs.run(job, lease=partition.lease)
            one.cleaned, one.may_have_gaps = known, True
        finally:
            partition.truncating = False

    async def make_durable(self, partition: Partition) -> bool:
        await self._group_commit.covered(partition)
        return not partition.log.failed

    async def _advance_start(self, partition: Partition, offset: int) -> None:
        """What the leader deleted is deleted here, and durably, for the next fetch says so."""
        one = partition.log
        if one.start_offset < offset <= one.end_offset:
            job = StartJob(one.files, one.directory, offset)
            await self._jobs.run(job.run, lease=partition.lease)
            one.advance_start(offset)

    async def _begin_with(self, partition: Partition, records: bytes | memoryview) -> None:
        """The leader's log may begin within a batch: an empty one, which begins there too, takes it whole."""
        one = partition.log
        if one.start_offset == one.end_offset:
            first = check_batch(memoryview(records))
            if first.base_offset < one.end_offset <= first.last_offset:
                await self._quiet(partition)
                await self._cut_to(partition, first.base_offset)
                partition.note_committed(one.end())

    async def _cut(self, partition: Partition, epoch: int, end_offset: int) -> None:
        """The leader's largest epoch at or below our last one, and where it ended there: cut to where we part."""
        await self._quiet(partition)
        one = partition.log
        await self._cut_to(partition, divergence(one, epoch, end_offset))
        if partition.committed.offset > one.end_offset:
            log.error("%s-%d: committed records were cut off", partition.topic, partition.index)
            partition.note_committed(one.end())

    async def _cut_to(self, partition: Partition, offset: int) -> None:
        one = partition.log
        partition.truncating = partition.sync_running = one.saving = True
        try:
            job = one.truncation(offset)
            if job is not None:
                log.info("%s-%d: cut from %d to %d", partition.topic, partition.index, one.end_offset, offset)
                await self._jobs.run(job.run, lease=partition.lease)
                one.truncated(job)
        except StorageError as error:
            partition.sync_failed(str(error))
        finally:
            partition.truncating = partition.sync_running = one.saving = False
        one.epochs.truncate_from(min(offset, one.end_offset))

    async def _begin_anew(self, partition: Partition, start: int, tombstones: int) -> bool:
        """Nothing that we have is of use: the log is that of the leader from its start on, without some tombstones.

        A restart in between finds the old log, or none of it; the leader sends it back once more.
        """
        if tombstones > 0:
            try:
                await self._lack_tombstones(partition, tombstones)
            except StorageError as error:
                log.warning("%s-%d cannot begin anew: %s", partition.topic, partition.index, error)
                return False
        await self._quiet(partition)
        one = partition.log
        log.warning("%s-%d: copied anew from its leader, from %d on", partition.topic, partition.index, start)
        if start <= one.end_offset:
            await self._cut_to(partition, min(start, one.segments[0].base_offset))
            partition.note_committed(one.end())
        if start > one.end_offset and not one.failed:
            await self._begin_at(partition, start)
        return not partition.log.failed

    async def _begin_at(self, partition: Partition, offset: int) -> None:
        """Retention at the leader overtook us: nothing that we have is of use, and the log goes on from there."""
        await self._quiet(partition)
        log.warning(
            "%s-%d: begins anew at %d, where the leader's log begins",
            partition.topic,
            partition.index,
            offset,
        )
        partition.truncating = partition.sync_running = True
        try:
            anew = await self._jobs.run(partial(begin_anew, partition.log, offset), lease=partition.lease)
            partition.replace_log(anew)
            partition.note_committed(anew.end())
        except StorageError as error:
            partition.sync_failed(str(error))
        finally:
            partition.truncating = partition.sync_running = False

    async def _quiet(self, partition: Partition) -> None:
        while True:
            await self._group_commit.quiet(partition)
            if not any(one.pinned for one in partition.log.segments):
                return
            await asyncio.sleep(_POLL_SECONDS)


def divergence(one: Log, epoch: int, end_offset: int) -> int:
    """Where our log and the leader's part, as far as one answer can tell; the next fetch goes on from there."""
    own_epoch, own_end = one.epochs.end_of(epoch, one.end_offset)
    if own_epoch == epoch:
        return min(own_end, end_offset)
    # We have nothing of that epoch: everything behind what came before it goes, and is compared again.
    return min(own_end, end_offset) if own_end >= 0 else min(end_offset, one.end_offset)
