"""One source of a relay: reads what is committed, sends it to the target, and goes on when that has committed it.

    resume   ask the target how far it is; go on behind it, or where this log parted from what was moved; where the
             latest of that is of no history of ours, mark what we move as this leader's
    move     a run of batches, one request at a time; each says which records of ours it holds
    skip     the target lost what it had, and it is deleted here: say so, or it would wait for it for ever
    trouble  whatever it is, rest a little and resume: what arrived nevertheless is dropped over there

Nothing about it is kept here. A new leader of the source begins with the same question, so a crash between any two
steps costs a repeat at most, which the target knows.
"""

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, PenstockError, StorageError
from penstock.records.batch import check_batch, read_header
from penstock.records.relay import RelayPlace, filler_batch, place_batch, stamp_relayed
from penstock.replication.limits import Reader
from penstock.replication.partition import Partition
from penstock.replication.retirement import UNKNOWN, Close, ask_anew, retirement_of
from penstock.services.acknowledging import Committed
from penstock.storage.log import Log
from penstock.storage.segment import ColdRead, Slice

logger = logging.getLogger(__name__)

# Moved with one request: large enough for the disk, small enough to leave room for others.
_CHUNK_BYTES = 512 * 1024
_REST_SECONDS = 0.1
# While there is nothing to move: whether another one leads the target.
_LOOK_SECONDS = 1.0
_REST_SECONDS_MAX = 2.0
_COMMIT_SECONDS = 5.0


class Target(Protocol):
    """See `Route`."""

    @property
    def epoch(self) -> int: ...
    async def places(self) -> tuple[RelayPlace, ...]: ...
    async def deliver(self, batches: bytearray) -> None: ...


@dataclass(slots=True)
class Moved:
    """What targets said that they have committed, since the process began."""

    records: int = 0
    size_bytes: int = 0


class Pump:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        executor: Executor | None,
        partition: Partition,
        target: Target,
        moved: Moved,
    ) -> None:
        self._loop = loop
        self._executor = executor
        self._partition = partition
        self._target = target
        self._more = asyncio.Event()
        self._next = -1
        self._place: RelayPlace | None = None  # the target's
        self._epoch = -1  # the target's, when it told so
        self._moved = moved
        self._name = f"{partition.topic}-{partition.index}"

    async def run(self) -> None:
        """Until cancelled."""
        rest_s = _REST_SECONDS
        while True:
            try:
                await self._resume()
                while await self._move():
                    rest_s = _REST_SECONDS
                continue
            except (PenstockError, OSError, ColdRead) as error:
                logger.info("%s: its records cannot be moved now: %s", self._name, error)
            except Exception:
                # Whatever is wrong with this partition is not the end of the broker, and with it of every other.
                logger.exception("%s: its records cannot be moved", self._name)
            await asyncio.sleep(rest_s)
            rest_s = min(2 * rest_s, _REST_SECONDS_MAX)

    async def _resume(self) -> None:
        retirement = retirement_of(self._partition)
        asked, self._epoch = retirement.close, self._target.epoch
        places = await self._target.places()
        partition, limit = self._partition, retirement.limit
        if places and places[0].epoch > partition.leader_epoch:
            # We were replaced and have not heard of it; or somebody else said a relay's position.
            raise StorageError(f"the target has something of epoch {places[0].epoch}, which is not ours")
        parted, is_ours = parted_at(partition.log, limit, places)
        if is_ours:
            self._place = places[0] if places else None
        else:
            self._place = RelayPlace(await self._mark_epoch(), parted - limit - 1)
        self._next = max(parted, partition.log.start_offset)
        retirement.moved = self._next
        if asked is retirement.close is Close.ASKED:
            retirement.close = Close.CONFIRMED
        logger.info(
            "%s-%d: moves its records from offset %d on",
            self._partition.topic,
            self._partition.index,
            self._next,
        )

    async def _mark_epoch(self) -> int:
        """What is moved from now on says that it is of this leader's log: whoever leads next must find its epoch there.

        So something of that epoch is committed first: a control record, where there is nothing else.
        """
        partition, log = self._partition, self._partition.log
        epoch = partition.leader_epoch
        if not partition.is_leader or retirement_of(partition).closed:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "it takes nothing any more")
        if log.epochs.epoch_at(log.end_offset - 1) != epoch:
            batch, now_ms = filler_batch(1), retirement_of(partition).written_ms
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

    async def _move(self) -> bool:
        """Move what there is; not when the partition led anew meanwhile, perhaps with other records in its log.

        Nor when another one leads the target, which may have lost its end: also where there is nothing to move.
        """
        retirement = retirement_of(self._partition)
        while retirement.moved != UNKNOWN and self._next >= self._partition.high_watermark:
            await self._wait()
            self._look_at_target()
        if retirement.moved == UNKNOWN:
            return False
        chunk = await self._read()
        self._look_at_target()
        if chunk.batches and retirement.moved != UNKNOWN:
            await self._target.deliver(chunk.batches)
        if retirement.moved == UNKNOWN:
            return False
        for lost in chunk.lost:
            logger.error(
                "%s: offsets %d to %d are lost: they were moved and deleted here, and the partition that took them "
                "lost its end, by an unclean election, a power cut or with its disk",
                self._name,
                lost.start,
                lost.stop - 1,
            )
        self._moved.records += chunk.next_offset - self._next
        self._moved.size_bytes += len(chunk.batches)
        self._next, self._place = chunk.next_offset, chunk.place
        retirement.moved = self._next
        return True

    async def _wait(self) -> None:
        """For more to move; not for long."""
        limits = self._partition.limits
        self._more.clear()
        limits.wait(Reader.BROKER, self)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._more.wait()
        finally:
            limits.leave(Reader.BROKER, self)

    def advanced(self, added_bytes: int) -> None:
        self._more.set()

    def _look_at_target(self) -> None:
        if self._target.epoch != self._epoch:
            ask_anew(self._partition, Close.NOT_ASKED)

    async def _read(self) -> "Chunk":
        """Committed batches from the next one on, made ready for the target."""
        partition = self._partition
        found = None
        while found is None:
            try:
                limit = partition.limits.for_reader(Reader.BROKER)
                found = partition.log.read(self._next, _CHUNK_BYTES, limit, at_least_one=True)
                if found is None:
                    raise StorageError(f"there is nothing at {self._next}, below what is committed")
            except ColdRead as read:
                await self._loop.run_in_executor(self._executor, read.warm)
        data = await self._loop.run_in_executor(self._executor, _load, found)
        return prepared(data, partition.index, retirement_of(partition).limit, self._next, self._place)


class Chunk(NamedTuple):
    batches: bytearray
    next_offset: int
    place: RelayPlace | None  # the target's, when it has them
    lost: list[range]  # offsets that it has not, and cannot get any more


def prepared(data: bytearray, source: int, limit: int, next_offset: int, place: RelayPlace | None) -> Chunk:
    """The batches from `next_offset` on, each saying where it comes from; the target is at `place`."""
    ready = bytearray()
    lost = []
    view = memoryview(data)
    position = 0
    while position < len(data):
        header = check_batch(view, position)
        batch = view[position : position + header.size_bytes]
        position += header.size_bytes
        if header.last_offset < next_offset:
            continue
        distance = header.base_offset - limit
        # Never of an earlier epoch than what the target has: see `Pump._mark_epoch`.
        epoch = header.leader_epoch if place is None else max(header.leader_epoch, place.epoch)
        reached = RelayPlace(epoch, distance + header.last_offset_delta)
        known = RelayPlace(epoch, -1) if place is None else place
        if reached > known and distance > known.distance + 1:
            # Between the two nothing is left here: this log starts behind what the target lost, or parted from it.
            lost.append(range(limit + known.distance + 1, header.base_offset))
            before = RelayPlace(known.epoch, distance - 1)
            ready += place_batch(source, before, header.max_timestamp, skips=True)
        if header.is_control:
            # What it says concerns this log alone; that it was there must be known, or a gap would seem to be.
            ready += place_batch(source, reached, header.max_timestamp)
        else:
            stamp_relayed(batch, source, epoch, distance)
            ready += batch
        place = max(known, reached)
        next_offset = header.next_offset
    return Chunk(ready, next_offset, place, lost)


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
            return max(min(limit + place.distance + 1, end_offset), limit), place is places[0]
    end_offset = log.epochs.end_of(places[0].epoch, log.end_offset)[1]
    end_offset = log.end_offset if end_offset < 0 else end_offset
    return max(min(limit + places[0].distance + 1, end_offset), limit), False


def _load(found: Slice) -> bytearray:
    file, position, size = found
    return bytearray(file.pread(size, position))
