"""Markers that coordinators send to leaders of partitions, written here: checked, appended, told when committed."""

import asyncio

from penstock.core.clock import Clock
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.internal_topics import OFFSETS_TOPIC
from penstock.replication.partition import Partition
from penstock.replication.table import PartitionTable
from penstock.replication.transactions import MarkerToWrite, check_marker, is_left_out
from penstock.services.acknowledging import ALL, check_acks, until_committed
from penstock.services.coordinator.group_kind import GroupCoordinator
from penstock.services.coordinator.pending_reply import PendingReply, arrival
from penstock.services.writer import Writer

# Then whoever sent it sends it again.
_COMMIT_SECONDS = 30.0


class LeaderMarkerWriter:
    def __init__(self, clock: Clock, table: PartitionTable, writer: Writer, groups: GroupCoordinator) -> None:
        self._clock = clock
        self._table = table
        self._writer = writer
        self._groups = groups

    async def write(self, topic: str, partition: int, marker: MarkerToWrite) -> ErrorCode:
        """NONE once it is committed, for good."""
        try:
            led = self._table.find(topic, partition)
            if topic == OFFSETS_TOPIC:
                return await self._end_in_groups(led, marker)
            _check(led, marker)
            if is_left_out(led, marker.producer_id):
                return ErrorCode.NONE
            last = self._writer.append_own(led, marker.batch(self._clock.now_ms()))
            await until_committed(led, last, _COMMIT_SECONDS)
        except ApiError as error:
            return error.code
        return ErrorCode.NONE

    async def _end_in_groups(self, partition: Partition, marker: MarkerToWrite) -> ErrorCode:
        """Offsets that the transaction committed count from now on, or never: their coordinator has to know at once."""
        later, shard = PendingReply(_as_it_is, _as_it_is), self._groups.shard_at(partition)
        shard.flush()  # a transaction that begins with what has gathered is one that the log knows of
        _check(partition, marker)
        if is_left_out(partition, marker.producer_id):
            shard.guards.marker_came(marker.producer_id, marker.producer_epoch)
            return ErrorCode.NONE
        shard.end_transaction(
            marker.batch(self._clock.now_ms()), marker.producer_id, committed=marker.committed, later=later
        )
        try:
            async with asyncio.timeout(_COMMIT_SECONDS):
                code = await arrival(later)
        except TimeoutError:
            return ErrorCode.REQUEST_TIMED_OUT
        return ErrorCode.NONE if code is ErrorCode.NONE else ErrorCode.NOT_LEADER_OR_FOLLOWER


def _check(partition: Partition, marker: MarkerToWrite) -> None:
    check_marker(partition, marker)
    check_acks(partition, ALL)


def _as_it_is(code: ErrorCode) -> ErrorCode:
    return code
