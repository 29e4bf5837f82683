"""One source of a relay: reads what is committed, sends it to the target, and goes on when that has committed it.

    resume   ask the target how far it is; go on behind it, or where this log parted from what was moved
    move     a run of batches, one request at a time; each says which records of ours it holds
    trouble  whatever it is, rest a little and resume: what arrived nevertheless is dropped over there

Nothing about it is kept here. A new leader of the source begins with the same question, so a crash between any two
steps costs a repeat at most, which the target knows.
"""

import asyncio
import logging
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol

from penstock.core.errors import PenstockError, StorageError
from penstock.records.batch import check_batch
from penstock.records.relay import RelayPlace, place_batch, stamp_relayed
from penstock.replication.inlet import retirement_of
from penstock.replication.partition import Partition
from penstock.storage.log import Log
from penstock.storage.segment import ColdRead, Slice

log = logging.getLogger(__name__)

# Moved with one request: large enough for the disk, small enough to leave room for others.
_CHUNK_BYTES = 512 * 1024
_REST_SECONDS = 0.1
_REST_SECONDS_MAX = 2.0


class Target(Protocol):
    """See `Route`."""

    async def place(self) -> RelayPlace | None: ...
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
        self._moved = moved
        retirement_of(partition).advanced = self._more.set

    async def run(self) -> None:
        """Until cancelled."""
        rest_s = _REST_SECONDS
        while True:
            try:
                await self._resume()
                while True:
                    await self._move()
                    rest_s = _REST_SECONDS
            except (PenstockError, OSError, ColdRead) as error:
                name = f"{self._partition.topic}-{self._partition.index}"
                log.info("%s: its records cannot be moved now: %s", name, error)
            await asyncio.sleep(rest_s)
            rest_s = min(2 * rest_s, _REST_SECONDS_MAX)

    async def _resume(self) -> None:
        place = await self._target.place()
        retirement = retirement_of(self._partition)
        self._next = resume_at(self._partition.log, retirement.limit, place)
        retirement.moved = self._next
        log.info(
            "%s-%d: moves its records from offset %d on",
            self._partition.topic,
            self._partition.index,
            self._next,
        )

    async def _move(self) -> None:
        while self._next >= self._partition.committed.offset:
            self._more.clear()
            await self._more.wait()
        chunk, following = await self._read()
        if chunk:
            await self._target.deliver(chunk)
        self._moved.records += following - self._next
        self._moved.size_bytes += len(chunk)
        self._next = following
        retirement_of(self._partition).moved = following

    async def _read(self) -> tuple[bytearray, int]:
        """Committed batches from the next one on, made ready for the target, and the offset behind them."""
        partition = self._partition
        found = None
        while found is None:
            try:
                found = partition.log.read(self._next, _CHUNK_BYTES, partition.committed, at_least_one=True)
                if found is None:
                    raise StorageError(f"there is nothing at {self._next}, below what is committed")
            except ColdRead as read:
                await self._loop.run_in_executor(self._executor, read.warm)
        data = await self._loop.run_in_executor(self._executor, _load, found)
        return prepared(data, partition.index, retirement_of(partition).limit, self._next)


def prepared(data: bytearray, source: int, limit: int, next_offset: int) -> tuple[bytearray, int]:
    """The batches from `next_offset` on, each saying where it comes from, and the offset behind them."""
    ready = bytearray()
    view = memoryview(data)
    position = 0
    while position < len(data):
        header = check_batch(view, position)
        batch = view[position : position + header.size_bytes]
        position += header.size_bytes
        if header.last_offset < next_offset:
            continue
        distance = header.base_offset - limit
        if header.is_control:
            # What it says concerns this log alone; that it was there must be known, or a gap would seem to be.
            place = RelayPlace(header.leader_epoch, distance + header.last_offset_delta)
            ready += place_batch(source, place, header.max_timestamp)
        else:
            stamp_relayed(batch, source, distance)
            ready += batch
        next_offset = header.next_offset
    return ready, next_offset


def resume_at(one: Log, limit: int, place: RelayPlace | None) -> int:
    """The first offset that the target does not have; it may have more than we do, of a history that was lost."""
    if place is None:
        offset = limit
    elif place.epoch > one.epochs.latest:
        offset = one.end_offset
    else:
        _, end_offset = one.epochs.end_of(place.epoch, one.end_offset)
        offset = min(limit + place.distance + 1, end_offset)
    return max(offset, limit, one.start_offset)


def _load(found: Slice) -> bytearray:
    file, position, size = found
    return bytearray(file.pread(size, position))
