"""A few places for requests that take long and much memory, shared fairly by those who ask.

An address has all places but one at most, so that whoever else comes need not wait for it. Those who wait are served by
address, in turn: a thousand requests of one client hold nobody else up for more than one of them.

A request that waits for something else (a group's last record that is not committed yet) gives its place back
meanwhile, as long as few bytes of such requests, and of what was read for them, are kept. One whose client has left
ends when it would go on.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from penstock.core.address_queue import AddressQueue
from penstock.core.errors import ClientGoneError
from penstock.core.limits import PORTIONED_WAITING_BYTES_MAX, WHOLE_PLACE_SECONDS_MAX
from penstock.frontends.kafka.pace import Pace
from penstock.services.coordinator.pending_reply import PendingReply


class Places:
    def __init__(self, places: int) -> None:
        self._free = places
        self._per_address_max = max(places - 1, 1)
        self._held: Counter[str] = Counter()
        self._waiting: AddressQueue[asyncio.Future[None]] = AddressQueue()
        self.waiting_bytes = 0  # of requests that gave their place back for a while

    async def acquire(self, address: str) -> None:
        if self._free and self._held[address] < self._per_address_max:
            self._take(address)
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(address, turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was given one at the same moment
                self.release(address)
            raise

    def release(self, address: str) -> None:
        self._free += 1
        self._held[address] -= 1
        if not self._held[address]:
            del self._held[address]
        self._waiting.step_back(address)
        while self._free and (chosen := self._next()) is not None:
            turn = self._waiting.pop(chosen)
            if not turn.cancelled():
                self._take(chosen)
                turn.set_result(None)

    def _take(self, address: str) -> None:
        self._free -= 1
        self._held[address] += 1

    def _next(self) -> str | None:
        """The first address that has no place; else the first of those that have fewest."""
        fewest, chosen = self._per_address_max, None
        for address in self._waiting:
            held = self._held.get(address, 0)
            if held < fewest:
                fewest, chosen = held, address
                if not held:
                    break
        return chosen


class Place(Pace):
    """The place of one request, as a context."""

    def __init__(self, places: Places, address: str, size_bytes: int, has_left: Callable[[], bool]) -> None:
        self._places = places
        self._address = address
        self._size_bytes = size_bytes
        self._has_left = has_left
        self._is_held = False
        self._aside_bytes = 0

    async def __aenter__(self) -> Self:
        await self._acquire()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._places.waiting_bytes -= self._aside_bytes
        if self._is_held:
            self._release()

    async def give_way(self) -> None:
        await super().give_way()
        self._check()

    def hold(self, size_bytes: int) -> None:
        self._size_bytes += size_bytes

    def step_aside(self, size_bytes: int) -> None:
        """It is done but for an answer of so many bytes, which has to wait: others may have its place, for good."""
        size_bytes += self._size_bytes
        if self._is_held and self._places.waiting_bytes + size_bytes <= PORTIONED_WAITING_BYTES_MAX:
            self._places.waiting_bytes += size_bytes
            self._aside_bytes = size_bytes
            self._release()

    async def wait(self, later: PendingReply) -> Any:
        places = self._places
        if later.is_there or places.waiting_bytes + self._size_bytes > PORTIONED_WAITING_BYTES_MAX:
            return await super().wait(later)
        places.waiting_bytes += self._size_bytes
        self._release()
        try:
            answer = await super().wait(later)
        finally:
            places.waiting_bytes -= self._size_bytes
        await self._acquire()
        return answer

    async def _acquire(self) -> None:
        await self._places.acquire(self._address)
        self._is_held = True
        try:
            self._check()
        except ClientGoneError:
            self._release()
            raise

    def _release(self) -> None:
        self._is_held = False
        self._places.release(self._address)

    def _check(self) -> None:
        if self._has_left():
            raise ClientGoneError("the client has left")


class BriefPlace(Place):
    """Given back after a while, also where the request goes on: it may wait for others as long as its client likes."""

    _timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._timer = asyncio.get_running_loop().call_later(WHOLE_PLACE_SECONDS_MAX, self._give_back)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._timer is not None
        self._timer.cancel()
        await super().__aexit__(kind, error, trace)

    def _give_back(self) -> None:
        if self._is_held:
            self._release()
