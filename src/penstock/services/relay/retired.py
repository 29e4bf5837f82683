"""A retired partition as a relay's source: what is written to it from its limit on is moved, in its order (ADR 11).

Its numbers are distances from the limit. What is not for the target is counted and left out: control records, and what
was aborted. An open transaction holds the relay back; what is moved of one that was committed is moved as any record.
"""

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import Executor

from penstock.coordination.image import Topic as TopicImage
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, StorageError
from penstock.records.batch import check_batch, read_header
from penstock.records.control import AbortedReader
from penstock.records.relay import RelayKind, RelayPlace, filler_batch, retired_source
from penstock.replication.limits import DataWaiter, Reader
from penstock.replication.partition import Partition
from penstock.replication.retirement import UNKNOWN, Close, Retirement, ask_anew, is_retired, retirement_of
from penstock.replication.route_registry import RelayRoute, RouteRegistry
from penstock.services.acknowledging import Committed
from penstock.services.relay.source import Chunk, Run
from penstock.storage.log import Log
from penstock.storage.segment import ColdRead, Slice

logger = logging.getLogger(__name__)

# Moved with one request: large enough for the disk, small enough to leave room for others.
_CHUNK_BYTES = 512 * 1024
_COMMIT_SECONDS = 5.0


class RetiredSource:
    """See `Source`."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, executor: Executor | None, partition: Partition
    ) -> None:
        self._loop = loop
        self._executor = executor
        self._partition = partition
        self._asked = Close.NOT_ASKED
        self.name = f"{partition.topic}-{partition.index}"

    @classmethod
    def of(
        cls, loop: asyncio.AbstractEventLoop, executor: Executor | None, partition: Partition
    ) -> "RetiredSource | None":
        """None: it is not retired, as far as its replica here was told."""
        return cls(loop, executor, partition) if is_retired(partition) else None

    @property
    def _retirement(self) -> Retirement:
        return retirement_of(self._partition)

    @property
    def _first(self) -> int:
        return self._retirement.limit

    @property
    def epoch(self) -> int:
        return self._partition.leader_epoch

    @property
    def limit(self) -> int:
        return self._partition.limits.for_reader(Reader.RELAY).offset - self._first

    def knows_target(self) -> bool:
        return self._retirement.moved != UNKNOWN

    def asks_target(self) -> None:
        self._asked = self._retirement.close

    def forget_target(self) -> None:
        ask_anew(self._partition, Close.NOT_ASKED)

    async def resume(self, places: Sequence[RelayPlace]) -> tuple[int, RelayPlace | None]:
        log = self._partition.log
        parted, is_ours = parted_at(log, self._first, places)
        if is_ours:
            place = places[0] if places else None
        else:
            place = RelayPlace(await self._mark_epoch(), parted - self._first - 1)
        return max(parted, log.start_offset) - self._first, place

    def resumed(self, number: int) -> None:
        retirement = self._retirement
        retirement.moved = self._first + number
        # Not if it was asked to close after the target was asked, or was written to.
        if self._asked is retirement.close is Close.ASKED:
            retirement.close = Close.CONFIRMED
        logger.info("%s: moves its records from offset %d on", self.name, retirement.moved)

    def moved(self, number: int) -> None:
        self._retirement.moved = self._first + number

    def tell_lost(self, numbers: range) -> None:
        logger.error(
            "%s: offsets %d to %d are lost: they were moved and deleted here, and the partition that took them "
            "lost its end, by an unclean election, a power cut or with its disk",
            self.name,
            self._first + numbers.start,
            self._first + numbers.stop - 1,
        )

    def wait(self, waiter: DataWaiter) -> None:
        self._partition.limits.wait(Reader.RELAY, waiter)

    def leave(self, waiter: DataWaiter) -> None:
        self._partition.limits.leave(Reader.RELAY, waiter)

    async def _mark_epoch(self) -> int:
        """What is moved from now on says that it is of this leader's log: whoever leads next must find its epoch there.

        So something of that epoch is committed first: a control record, where there is nothing else.
        """
        partition, log = self._partition, self._partition.log
        epoch = partition.leader_epoch
        if not partition.is_leader or self._retirement.closed:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "it takes nothing any more")
        if log.epochs.epoch_at(log.end_offset - 1) != epoch:
            batch, now_ms = filler_batch(1), self._retirement.written_ms
            log.append(memoryview(batch), read_header(batch), epoch, now_ms)
            partition.write_held()
        if not partition.is_committed(log.end_offset - 1):
            waiter = Committed(self._loop)
            partition.limits.wait_for_commit(log.end_offset - 1, waiter)
            async with asyncio.timeout(_COMMIT_SECONDS):
                await waiter.done
            if partition.leader_epoch != epoch:
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another epoch began meanwhile")
        return epoch

    async def read(self, number: int, place: RelayPlace | None) -> Chunk:
        offset = self._first + number
        found, aborted = await self._find(offset)
        data = await self._loop.run_in_executor(self._executor, _load, found)
        return prepared(data, self._partition.index, self._first, offset, place, aborted)

    async def _find(self, offset: int) -> tuple[Slice, list[tuple[int, int]]]:
        """What comes next, and which transactions in it were aborted: both of the log as it is now."""
        while True:
            try:
                return self._look(offset)
            except ColdRead as read:
                await self._loop.run_in_executor(self._executor, read.warm)

    def _look(self, offset: int) -> tuple[Slice, list[tuple[int, int]]]:
        """ColdRead: either of them has to be read from the disk first."""
        log, limit = self._partition.log, self._partition.limits.for_reader(Reader.RELAY)
        found = log.read(offset, _CHUNK_BYTES, limit, at_least_one=True)
        if found is None:
            raise StorageError(f"there is nothing at {offset}, below what is committed")
        return found, log.row.aborted_in(offset, found, limit) if log.row.aborted else []


def register_retired(routes: RouteRegistry, topic: TopicImage) -> None:
    """As the metadata says it: from the partitions that are retired to those that each was retired into."""
    found = [
        RelayRoute(RelayKind.RETIRED, topic.id, index, topic.id, state.retirement.into)
        for index, state in enumerate(topic.partitions)
        if state.retirement is not None
    ]
    routes.register(RelayKind.RETIRED, topic.id, found)


def forget_retired(routes: RouteRegistry, topic_id: bytes) -> None:
    routes.register(RelayKind.RETIRED, topic_id, ())


def prepared(
    data: bytearray,
    source: int,
    limit: int,
    offset: int,
    place: RelayPlace | None,
    aborted: Sequence[tuple[int, int]] = (),
) -> Chunk:
    """The batches from `offset` on, each saying where it comes from; the target is at `place`.

    `aborted`: (producer, first offset) of transactions, by first offset.
    """
    run, transactions = Run(retired_source(source), place), AbortedReader(aborted)
    view = memoryview(data)
    position = 0
    while position < len(data):
        header = check_batch(view, position)
        batch = view[position : position + header.size_bytes]
        position += header.size_bytes
        is_aborted = transactions.leaves_out(header)
        if header.last_offset < offset:
            continue
        number = header.base_offset - limit
        if header.is_control or is_aborted:
            # What it says concerns this log alone.
            run.count(header, header.leader_epoch, number, number + header.last_offset_delta)
        else:
            run.add(batch, header, header.leader_epoch, number)
        offset = header.next_offset
    return Chunk(run.batches, offset - limit, run.place, run.lost)


def parted_at(log: Log, limit: int, places: Sequence[RelayPlace]) -> tuple[int, bool]:
    """Up to where the target has what this log has, and whether the latest that it has is of this log's history.

    It may have more than we do, of a history that was lost. Where it has something of a leader whose epoch left nothing
    here, uncleanly elected and gone again, it tells how far it had got with the logs of leaders before that one.
    """
    if not places:
        return limit, True
    for place in places:
        epoch, end_offset = log.epochs.end_of(place.epoch, log.end_offset)
        if epoch == place.epoch:
            return max(min(limit + place.number + 1, end_offset), limit), place is places[0]
    end_offset = log.epochs.end_of(places[0].epoch, log.end_offset)[1]
    end_offset = log.end_offset if end_offset < 0 else end_offset
    return max(min(limit + places[0].number + 1, end_offset), limit), False


def _load(found: Slice) -> bytearray:
    file, position, size = found
    return bytearray(file.pread(size, position))
