"""One source of a relay: reads what is committed, sends it to the target, and goes on when that has committed it.

    resume   ask the target how far it is; go on behind it, or where this log parted from what was moved
    move     a run of batches, one request at a time; each says which records of ours it holds
    skip     the target lost what it had, and it is deleted here: say so, or it would wait for it for ever
    trouble  whatever it is, rest a little and resume: what arrived nevertheless is dropped over there

Nothing about it is kept here. A new leader of the source begins with the same question, so a crash between any two
steps costs a repeat at most, which the target knows.
"""

import asyncio
import logging
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import NamedTuple, Protocol

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
        self._place: RelayPlace | None = None  # the target's
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
        self._place = place
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
        chunk = await self._read()
        if chunk.batches:
            await self._target.deliver(chunk.batches)
        for lost in chunk.lost:
            log.error(
                "%s-%d: offsets %d to %d are lost: they were moved and deleted here, and the partition that took them "
                "lost its end, by an unclean election or a power cut",
                self._partition.topic,
                self._partition.index,
                lost.start,
                lost.stop - 1,
            )
        self._moved.records += chunk.next_offset - self._next
        self._moved.size_bytes += len(chunk.batches)
        self._next, self._place = chunk.next_offset, chunk.place
        retirement_of(self._partition).moved = self._next

    async def _read(self) -> "Chunk":
        """Committed batches from the next one on, made ready for the target."""
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
        reached = RelayPlace(header.leader_epoch, distance + header.last_offset_delta)
        if place is not None and reached > place and distance > place.distance + 1:
            # Between the two nothing is left here: this log starts behind what the target lost, or parted from it.
            lost.append(range(limit + place.distance + 1, header.base_offset))
            before = RelayPlace(place.epoch, distance - 1)
            ready += place_batch(source, before, header.max_timestamp, skips=True)
        if header.is_control:
            # What it says concerns this log alone; that it was there must be known, or a gap would seem to be.
            ready += place_batch(source, reached, header.max_timestamp)
        else:
            stamp_relayed(batch, source, distance)
            ready += batch
        place = reached if place is None else max(place, reached)
        next_offset = header.next_offset
    return Chunk(ready, next_offset, place, lost)


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
