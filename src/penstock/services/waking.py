"""Waking those who wait for the same record: a few at once, thousands in portions, with turns for others in between."""

import asyncio
from itertools import islice
from typing import Protocol

from penstock.core.limits import FETCHES_WOKEN_AT_ONCE


class Sleeper(Protocol):
    @property
    def is_waiting(self) -> bool:
        """False: it was answered meanwhile, or given up."""
        ...

    def attempt(self) -> None: ...


class Waking:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._turn = 0.0  # of the loop, by its time, which stands still while a callback runs
        self._woken = 0  # in this turn
        self._queue: dict[Sleeper, None] = {}

    def wake(self, sleeper: Sleeper) -> None:
        """Let it look again: now, or when those before it have."""
        now = self._loop.time()
        if now != self._turn:
            self._turn, self._woken = now, 0
        self._woken += 1
        if self._woken <= FETCHES_WOKEN_AT_ONCE and not self._queue:
            sleeper.attempt()
            return
        if not self._queue:
            self._loop.call_soon(self._next_portion)
        self._queue[sleeper] = None

    def _next_portion(self) -> None:
        portion = list(islice(self._queue, FETCHES_WOKEN_AT_ONCE))
        for sleeper in portion:
            del self._queue[sleeper]
        if self._queue:
            self._loop.call_soon(self._next_portion)  # whatever happens to this one
        for sleeper in portion:
            if sleeper.is_waiting:
                sleeper.attempt()
