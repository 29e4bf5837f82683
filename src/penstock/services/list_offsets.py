"""Where a partition begins, ends, and stood at a time: the answers behind ListOffsets.

What the loop knows (earliest, latest) is answered at once; a time is looked for in the segments, in a thread, and only
in what the reader may see.
"""

from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import NamedTuple

from penstock.controller.election import ReplicaEnd
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.replication.limits import Reader
from penstock.replication.partition import Partition
from penstock.replication.table import PartitionTable
from penstock.services.batch_opening import Openings


class Spec(IntEnum):
    """Timestamps that are not times: the protocol's names for places in a log."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


class OffsetAnswer(NamedTuple):
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


NOTHING = OffsetAnswer()
_NO_EPOCH = -1


class OffsetService:
    def __init__(self, openings: Openings, table: PartitionTable) -> None:
        self._openings = openings
        self._table = table

    async def find(
        self,
        topic: str,
        index: int,
        leader_epoch: int,
        timestamp: int,
        reader: Reader = Reader.READ_UNCOMMITTED,
        is_lost: Callable[[], bool] = lambda: False,
    ) -> OffsetAnswer:
        """One partition's answer; ApiError when it is not served here or the client's epoch is not ours.

        ClientGoneError: a time was to be looked for, and when its turn came whoever asked `is_lost`.
        """
        partition = self._led(topic, index, leader_epoch)
        log, limit = partition.log, partition.limits.for_reader(reader)
        known = knows_its_end(partition)
        if timestamp < 0 and not known:
            # A new leader does not know yet how much is committed; what it told would seem to go back.
            raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)
        if timestamp == Spec.LATEST:
            return OffsetAnswer(offset=limit.offset, leader_epoch=partition.leader_epoch)
        if timestamp in {Spec.EARLIEST, Spec.EARLIEST_LOCAL}:
            start = min(log.start_offset, limit.offset)
            return OffsetAnswer(offset=start, leader_epoch=_epoch_at(partition, start))
        if timestamp in {Spec.LATEST_TIERED, Spec.EARLIEST_PENDING_UPLOAD}:
            return NOTHING  # nothing is ever tiered here
        search = log.lookup(limit)
        at_time = partial(search.first_at_or_after, timestamp)
        work = search.latest if timestamp == Spec.MAX_TIMESTAMP else at_time
        found = await self._openings.look_up(work, is_lost)
        if found is None and not known:
            # There may be something of that time in what it cannot show yet: told "nothing", a reader passes it over.
            raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)
        if found is None or found.offset < log.start_offset:
            return NOTHING
        return OffsetAnswer(found.timestamp, found.offset, _epoch_at(partition, found.offset))

    def end_of_epoch(self, topic: str, index: int, current_epoch: int, epoch: int) -> tuple[int, int]:
        """(epoch, the offset behind its last record), as a reader sees it who asks OffsetForLeaderEpoch."""
        partition = self._led(topic, index, current_epoch)
        found, end = self._end_of(partition, epoch)
        retirement = partition.retirement
        return found, end if retirement is None else min(end, retirement.limit)

    def later_than_known(self, topic: str, index: int, epoch: int) -> Partition | None:
        """A replicated partition led here, if a reader knows of a later leader epoch than we do."""
        found = self._table.by_name.get(topic.encode())
        here = None if found is None else found.partitions.get(index)
        if here is None or not here.is_leader or here.leading is None or epoch <= here.leader_epoch:
            return None
        return here

    def end_in_log(self, topic: str, index: int, current_epoch: int, epoch: int) -> tuple[int, int]:
        """The same for a follower, from which nothing is hidden."""
        return self._end_of(self._led(topic, index, current_epoch), epoch)

    def _led(self, topic: str, index: int, epoch: int) -> Partition:
        """The partition, if it is led here in the epoch that the client knows."""
        found = self._table.by_name.get(topic.encode())
        here = None if found is None else found.partitions.get(index)
        if here is not None and (here.is_leader or here.is_following):
            # Before the question who leads, as in Kafka: perhaps we do in that epoch, and have not heard of it.
            check_exact_epoch(here, epoch)
        return self._table.find(topic, index)

    def _end_of(self, partition: Partition, epoch: int) -> tuple[int, int]:
        log = partition.log
        if epoch == partition.leader_epoch:
            # Known from the moment we lead, also before the first record is written under it.
            return epoch, log.end_offset
        if epoch == _NO_EPOCH or epoch > partition.leader_epoch:
            return _NO_EPOCH, -1
        if epoch < 0 or not log.epochs.entries():
            # Older than all we know: it ended where the first known one begins.
            return epoch, log.start_offset
        return log.epochs.end_of(epoch, log.end_offset)


def knows_its_end(partition: Partition) -> bool:
    retirement = partition.retirement
    if partition.knows_its_end:
        return True
    return retirement is not None and partition.limits.readable.offset == retirement.limit


def log_end_of(table: PartitionTable, topic_id: bytes, index: int, epoch: int) -> ReplicaEnd:
    """Of the replica here, whoever leads, for a controller that asks under that leader epoch.

    Who has not heard of it may still begin anew, as an earlier leader said. By id: the table may still have a deleted
    topic of the same name.
    """
    found = table.by_id.get(topic_id)
    partition = found.partitions.get(index) if found is not None else None
    if partition is None or partition.log.failed or partition.lease.is_cutting:
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
    if partition.leader_epoch < epoch:
        raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH)
    log = partition.log
    if not log.is_incomplete:
        return ReplicaEnd(log.epochs.latest, log.end_offset)
    # Of its last record: by an epoch that it led and wrote nothing under, it has no more than one that is complete.
    return ReplicaEnd(log.epochs.epoch_at(log.end_offset - 1), log.end_offset, is_complete=False)


def check_exact_epoch(partition: Partition, epoch: int) -> None:
    """As `Partition.check_leader_epoch`, but here Kafka lets only -1 mean "I do not know": -5 is an old epoch."""
    if epoch != _NO_EPOCH and epoch < partition.leader_epoch:
        raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
    partition.check_leader_epoch(epoch)


def _epoch_at(partition: Partition, offset: int) -> int:
    """A place where nothing is written yet belongs to the epoch in force."""
    epoch = partition.log.epochs.epoch_at(offset)
    return epoch if epoch >= 0 else partition.leader_epoch
