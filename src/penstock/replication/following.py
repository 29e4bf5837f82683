"""Following a leader: what it answers is taken over byte for byte, and what it never had is cut off.

    fetch at our end, naming the epoch of the last batch we have
      ├─ records         append them; durable first where the topic wants `synced`, since asking for the next says
      │                  "I have it"; then note the leader's high watermark and, durably, where its log starts
      ├─ … behind a gap  of a later epoch: ask where that began before it is appended (`epoch_starts`)
      ├─ diverging       our last epoch ended earlier over there: cut back to where the two histories part, ask again
      ├─ anything        to a log that is incomplete: begin anew, once nobody would ask what it has
      ├─ … with no epoch tombstones went that we never saw, or our log is of another history: begin anew (ADR 14)
      └─ fenced, moved   leave it: the metadata will say who leads

Only epochs decide what is cut. A follower that went by the high watermark, which lags behind, would throw away records
that it acknowledged, and might be elected without them.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from penstock.core.clock import Clock
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, ShortageError, StorageError
from penstock.core.jobs import Jobs
from penstock.core.lease import Hold, Work
from penstock.records.batch import check_batch
from penstock.replication.cleaned_mark import note_cleaned
from penstock.replication.epoch_starts import EndOfEpoch, save_starts, starts_within
from penstock.replication.group_commit import GroupCommit
from penstock.replication.leader_questions import Questions
from penstock.replication.partition import Partition
from penstock.replication.peer import PeerError
from penstock.storage.deletion import StartJob
from penstock.storage.log import Log
from penstock.storage.producers import ProducerState
from penstock.storage.recovery import begin_anew, start_over
from penstock.storage.replicated import GapError, UnknownStartError, append_replicated
from penstock.storage.segment import DamagedSegmentError
from penstock.wire.kafka.generated.fetch import PartitionData

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Follower:
    """Applies a leader's answers to the logs of this broker."""

    def __init__(self, jobs: Jobs, clock: Clock, group_commit: GroupCommit) -> None:
        self._jobs = jobs
        self._clock = clock
        self._group_commit = group_commit
        # Gaps that a leader showed, by topic id and partition: see `_append`.
        self._gaps: dict[tuple[bytes, int], tuple[int, int]] = {}

    async def take(self, partition: Partition, epoch: int, answer: PartitionData, leader: Questions) -> bool:
        """Take over one answer; False when the partition should rest before it is asked for again.

        `leader` is who gave it, and can be asked for more.
        """
        if partition.is_leader or partition.leader_epoch != epoch or partition.log.failed:
            return False  # an answer of the past
        if partition.log.is_incomplete:
            return await self._complete(partition, answer, leader)
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if answer.log_start_offset > partition.log.end_offset:
                # Retention there overtook us, and the log goes on behind all that we have.
                await self._begin_anew(partition, answer.log_start_offset, 0, leader, begin_anew)
            return False
        if answer.error_code != ErrorCode.NONE:
            return False
        if answer.diverging_epoch.end_offset >= 0:
            epoch, end_offset = answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset
            if epoch < 0:
                return await self._begin_anew(partition, end_offset, answer.high_watermark, leader)
            return await self._part(partition, epoch, end_offset, answer.log_start_offset, leader)
        went_well = True
        try:
            if answer.records:
                await self._expect_gaps(partition, answer.high_watermark, leader)
                await self._begin_with(partition, answer.records, leader)
                await self._append(partition, epoch, memoryview(answer.records), leader.end_of)
            partition.told_committed(answer.high_watermark)
            await self._advance_start(partition, answer.log_start_offset)
        except (ApiError, StorageError, PeerError) as error:
            logger.warning("%s-%d cannot follow its leader: %s", partition.topic, partition.index, error)
            went_well = False
        if partition.sync_before_ack and answer.records:
            # Also what was taken over before something went wrong: the next fetch says that we have it.
            await self._group_commit.covered(partition)
        return went_well

    async def _complete(self, partition: Partition, answer: PartitionData, leader: Questions) -> bool:
        """Copied anew, since nobody knows what it lacks.

        Not while it might be asked for what it has: whoever leads may be dead, and the others may have even less.
        """
        if partition.may_be_asked or answer.error_code not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
            return False
        # It named no epoch: if we part, then since the leader wants the same, and says which tombstones went.
        tombstones = answer.high_watermark if answer.diverging_epoch.end_offset >= 0 else 0
        return await self._begin_anew(partition, answer.log_start_offset, tombstones, leader)

    async def _append(
        self, partition: Partition, epoch: int, records: memoryview, end_of: EndOfEpoch
    ) -> None:
        """Batches of a later epoch, or behind a gap, are not what the leader that was asked has.

        A topic that compacted once has gaps for ever: one that the leader shows again, when it is asked again, is its.
        """
        key = (partition.topic_id, partition.index)
        gap = self._gaps.pop(key, None)
        starts: list[tuple[int, int]] = []
        while records:
            now_ms = self._clock.now_ms()
            try:
                append_replicated(partition.log, records, now_ms, epoch=epoch, gap=gap, starts=starts)
                records = records[:0]
            except GapError as error:
                self._gaps[key] = error.place
                raise
            except UnknownStartError as error:
                starts = await self._learn_starts(partition, error, end_of)
                records = records[error.position :]

    async def _learn_starts(
        self, partition: Partition, unknown: UnknownStartError, end_of: EndOfEpoch
    ) -> list[tuple[int, int]]:
        """Ask where epochs began, and write that down: a crash must not leave the batches without it."""
        epoch, gap = unknown.epoch, unknown.gap
        starts = await starts_within(end_of, gap, epoch, partition.log.epochs.latest)
        if starts != [(epoch, gap.stop)]:  # which is what the batch itself says
            with await _got(partition, Work.EPOCHS) as hold:
                log = partition.log
                epochs = log.epochs.copy()
                epochs.cross_gap(starts, epoch, gap)
                job = partial(save_starts, log.files, log.directory, epochs)
                await self._jobs.run(job, hold=hold)
        return starts

    async def _expect_gaps(self, partition: Partition, committed: int, leader: Questions) -> None:
        """Before the first gap is taken over: recovery must know that it is by right, whatever the policy is then.

        And a leader that compacts may lack tombstones anywhere below what is committed: then a copy that begins does,
        too, and one that is on its way, which knows of more of them than it has got to. One that does not may have
        compacted once, or files of it are gone: it is asked.
        """
        log = partition.log
        may_compact = log.settings.compacts or log.may_have_gaps
        if not may_compact and (partition.topic_id, partition.index) not in self._gaps:
            return
        is_copy = log.start_offset == log.end_offset or log.cleaned.tombstones >= log.end_offset
        tombstones = committed if committed > log.end_offset and (is_copy or not log.may_have_gaps) else 0
        if tombstones > log.cleaned.tombstones and not log.settings.compacts:
            tombstones = await leader.tombstones()
        if not log.may_have_gaps or log.cleaned_in_doubt or tombstones > log.cleaned.tombstones:
            await self._lack_tombstones(partition, tombstones)

    async def _lack_tombstones(self, partition: Partition, tombstones: int) -> None:
        """Written down before anything without them is here. StorageError: it is not."""
        with await _got(partition, Work.CLEAN) as hold:
            log = partition.log
            if log.failed:
                raise StorageError("the log is offline after an I/O error")
            known = log.cleaned.without_tombstones(tombstones)
            log.cleaned_in_doubt = log.cleaned_in_doubt or not log.may_have_gaps  # there may be no file yet
            await note_cleaned(self._jobs, hold, log, known)
            log.may_have_gaps = True

    async def make_durable(self, partition: Partition) -> bool:
        await self._group_commit.covered(partition)
        return not partition.log.failed

    async def _advance_start(self, partition: Partition, offset: int) -> None:
        """What the leader deleted is deleted here, and durably, for the next fetch says so."""
        log = partition.log
        if log.start_offset < offset <= log.end_offset:
            if log.synced_end.offset < offset:
                # A start behind what a power cut leaves would make an empty log of it, which knows no producers.
                await self._group_commit.covered(partition)
                if log.failed or partition.log is not log:
                    return
            with await _got(partition, Work.DELETE) as hold:
                job = StartJob(log.files, log.directory, offset)
                await self._jobs.run(job.run, hold=hold)
                log.advance_start(offset)

    async def _begin_with(self, partition: Partition, records: bytes | memoryview, leader: Questions) -> None:
        """The leader's log may begin within a batch: an empty one, which begins there too, takes it whole."""
        log = partition.log
        if log.start_offset == log.end_offset:
            first = check_batch(memoryview(records))
            if not first.base_offset < log.end_offset <= first.last_offset:
                return
            hold = await _may_cut(partition, leader)
            if hold is None:
                return
            try:
                with hold:
                    await self._cut_to(partition, hold, first.base_offset)
                    partition.limits.move(log.end())
            except DamagedSegmentError:
                await self._begin_anew(partition, first.base_offset, 0, leader)

    async def _part(
        self, partition: Partition, epoch: int, end_offset: int, start: int, leader: Questions
    ) -> bool:
        """The leader's largest epoch at or below our last one, and where it ended there: cut to where we part."""
        hold = await _may_cut(
            partition, leader
        )  # a compaction under way goes by more records when it is done
        if hold is None:
            return False
        with hold:
            part_at = divergence(partition.log, epoch, end_offset)
            # Values were compacted away for the sake of records that are to be cut: an unclean election kept them.
            is_of_use = partition.in_sync or not partition.log.cleaned.lacks(part_at)
            try:
                is_of_use = is_of_use and await self._cut(partition, hold, part_at)
            except ShortageError as error:
                logger.warning("%s-%d cannot be cut yet: %s", partition.topic, partition.index, error)
                return False
        return is_of_use or await self._begin_anew(partition, start, 0, leader)

    async def _cut(self, partition: Partition, hold: Hold, offset: int) -> bool:
        """False: where that is cannot be found, and we are free to begin anew."""
        log = partition.log
        try:
            await self._cut_to(partition, hold, offset)
        except DamagedSegmentError as error:
            logger.error("%s-%d cannot be cut: %s", partition.topic, partition.index, error)  # noqa: TRY400
            if not partition.in_sync:
                return False
            partition.sync_failed(str(error))
        try:
            if partition.high_watermark > log.end_offset:
                logger.error("%s-%d: committed records were cut off", partition.topic, partition.index)
                partition.limits.move(log.end())
            elif not log.failed:
                partition.limits.look_again()  # transactions whose markers went are open again
        except StorageError as error:  # where that is could not be read: it is opened again
            partition.sync_failed(str(error))
        return True

    async def _cut_to(self, partition: Partition, hold: Hold, offset: int) -> None:
        """DamagedSegmentError: where that is cannot be found. ShortageError: not now. Nothing has changed then."""
        log, job = partition.log, None
        try:
            job = log.truncation(offset)
            if job is not None:
                logger.info(
                    "%s-%d: cut from %d to %d", partition.topic, partition.index, log.end_offset, offset
                )
                await self._change(partition, hold, job.run)
                log.truncated(job)
        except DamagedSegmentError:
            raise
        except StorageError as error:
            if isinstance(error, ShortageError) and job is not None and not job.changed:
                raise
            partition.sync_failed(str(error))
        log.epochs.truncate_from(min(offset, log.end_offset))

    async def _begin_anew(
        self,
        partition: Partition,
        start: int,
        tombstones: int,
        leader: Questions,
        made: Callable[[Log, int, ProducerState], Log] = start_over,
    ) -> bool:
        """Nothing that we have is of use: the log is that of the leader from its start on, without some tombstones.

        Not before it is known what producers did in what is gone: elected, we would store their repeats as new. A
        restart in between finds the old log, or none of it.
        """
        try:
            if tombstones > 0:
                await self._lack_tombstones(partition, tombstones)
            producers = await leader.producers_below(start) if start else ProducerState()
        except (PeerError, StorageError) as error:
            logger.warning("%s-%d cannot begin anew: %s", partition.topic, partition.index, error)
            return False
        hold = await _may_cut(partition, leader)
        if hold is None:
            return False
        with hold:
            logger.warning(
                "%s-%d: copied anew from its leader, from %d on", partition.topic, partition.index, start
            )
            return await self._replace(partition, hold, partial(made, partition.log, start, producers))

    async def _replace(self, partition: Partition, hold: Hold, made: Callable[[], Log]) -> bool:
        try:
            anew = await self._change(partition, hold, made)
            partition.replace_log(anew)
            partition.limits.move(anew.end())
        except StorageError as error:
            partition.sync_failed(str(error))
        return not partition.log.failed

    async def _change(self, partition: Partition, hold: Hold, work: Callable[[], T]) -> T:
        """Files of a log that does not know of it before this returns.

        Who is cancelled leaves the thread running, and a log that must not vouch for what is gone by then.
        """
        try:
            return await self._jobs.run(work, hold=hold)
        except asyncio.CancelledError:
            partition.log.sync_failed()
            raise


async def _got(partition: Partition, work: Work) -> Hold:
    hold = await partition.lease.get(work)
    if hold is None:
        raise StorageError("the replica is not kept here any longer")
    return hold


async def _may_cut(partition: Partition, leader: Questions) -> Hold | None:
    """Whether the log may be changed, once nobody else changes its files.

    Not by what a leader of before said: this replica may have been elected meanwhile, for what it has.

    Not one that failed: what its files are, only opening it again can tell, and an exchange of compaction that was
    broken off is finished then. Whoever does that waits for us.
    """
    hold = await partition.lease.get(Work.CUT)
    is_past = partition.leader_epoch != leader.leader_epoch
    if hold is not None and (is_past or partition.log.failed):
        hold.release()
        return None
    return hold


def divergence(log: Log, epoch: int, end_offset: int) -> int:
    """Where our log and the leader's part, as far as one answer can tell; the next fetch goes on from there."""
    own_epoch, own_end = log.epochs.end_of(epoch, log.end_offset)
    if own_epoch == epoch:
        return min(own_end, end_offset)
    # We have nothing of that epoch: everything behind what came before it goes, and is compared again.
    return min(own_end, end_offset) if own_end >= 0 else min(end_offset, log.end_offset)
