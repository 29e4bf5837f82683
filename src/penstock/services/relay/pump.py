"""One route of a relay: takes what its source has, sends it to the target, and goes on when that has committed it.

    resume   ask the target how far it is, and the source where that is
    move     a run of batches, one request at a time; each says which records of the source it holds
    skip     the target lost what it had, and it is deleted at the source: say so, or it would wait for it for ever
    trouble  whatever it is, rest a little and resume: what arrived nevertheless is dropped over there

Nothing about it is kept here. A new leader of the source begins with the same question, so a crash between any two
steps costs a repeat at most, which the target knows. What is moved, and how it is numbered, is the source's matter.
"""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from penstock.core.errors import PenstockError, StorageError
from penstock.records.relay import RelayPlace
from penstock.services.relay.source import Source
from penstock.storage.segment import ColdRead

logger = logging.getLogger(__name__)

_REST_SECONDS = 0.1
# While there is nothing to move: whether another one leads the target.
_LOOK_SECONDS = 1.0
_REST_SECONDS_MAX = 2.0


class Target(Protocol):
    """See `RelaySender`."""

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
    def __init__(self, source: Source, target: Target, moved: Moved) -> None:
        self._source = source
        self._target = target
        self._more = asyncio.Event()
        self._next = -1  # the number to be moved next
        self._place: RelayPlace | None = None  # the target's
        self._epoch = -1  # the target's, when it told so
        self._moved = moved

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
                logger.info("%s: its records cannot be moved now: %s", self._source.name, error)
            except Exception:
                # Whatever is wrong with this partition is not the end of the broker, and with it of every other.
                logger.exception("%s: its records cannot be moved", self._source.name)
            await asyncio.sleep(rest_s)
            rest_s = min(2 * rest_s, _REST_SECONDS_MAX)

    async def _resume(self) -> None:
        source = self._source
        source.asks_target()
        self._epoch = self._target.epoch
        places = await self._target.places()
        if places and places[0].epoch > source.epoch:
            # We were replaced and have not heard of it; or somebody else said a relay's position.
            raise StorageError(f"the target has something of epoch {places[0].epoch}, which is not ours")
        self._next, self._place = await source.resume(places)
        source.resumed(self._next)

    async def _move(self) -> bool:
        """Move what there is; not when the partition led anew meanwhile, perhaps with other records in its log.

        Nor when another one leads the target, which may have lost its end: also where there is nothing to move.
        """
        source = self._source
        while source.knows_target() and self._next >= source.limit:
            await self._wait()
            self._look_at_target()
        if not source.knows_target():
            return False
        chunk = await source.read(self._next, self._place)
        self._look_at_target()
        if chunk.batches and source.knows_target():
            await self._target.deliver(chunk.batches)
        if not source.knows_target():
            return False
        for numbers in chunk.lost:
            source.tell_lost(numbers)
        self._moved.records += chunk.next_number - self._next
        self._moved.size_bytes += len(chunk.batches)
        self._next, self._place = chunk.next_number, chunk.place
        source.moved(self._next)
        return True

    async def _wait(self) -> None:
        """For more to move; not for long."""
        self._more.clear()
        self._source.wait(self)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._more.wait()
        finally:
            self._source.leave(self)

    def advanced(self, added_bytes: int) -> None:
        self._more.set()

    def _look_at_target(self) -> None:
        if self._target.epoch != self._epoch:
            self._source.forget_target()
