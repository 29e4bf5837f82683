"""Looking again at what waits: a few at once, thousands in portions, with turns for others in between.

One record may wake thousands, and their time may end at the same moment: both come here.
"""

import asyncio
from collections import OrderedDict
from typing import Protocol

from penstock.core.limits import FETCHES_WOKEN_AT_ONCE, TURN_SECONDS_MAX


class Sleeper(Protocol):
    @property
    def is_waiting(self) -> bool:
        """False: it was answered meanwhile, or given up."""
        ...

    def attempt(self, *, last: bool = False) -> None: ...


class Waking:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._in_turn = False  # some were woken since the loop last came round
        self._began = 0.0  # that turn,
        self._woken = 0  # and how many it was
        self._queue: OrderedDict[Sleeper, bool] = OrderedDict()  # and whether it is their last look

    def wake(self, sleeper: Sleeper, *, last: bool = False) -> None:
        """Let it look again: now, or when those before it have."""
        if not self._in_turn:
            self._in_turn = True
            self._begin_turn()
        if self._queue or self._is_over():
            self._queue[sleeper] = last or self._queue.get(sleeper, False)
        else:
            self._woken += 1
            sleeper.attempt(last=last)

    def _begin_turn(self) -> None:
        # The loop says when it has come round. Its clock does not: uvloop's moves on while a callback runs.
        self._loop.call_soon(self._end_turn)
        self._began = self._loop.time()
        self._woken = 0

    def _end_turn(self) -> None:
        if not self._queue:
            self._in_turn = False
            return
        self._begin_turn()  # whatever happens to those of this one
        while self._queue and not self._is_over():
            sleeper, last = self._queue.popitem(last=False)
            if sleeper.is_waiting:
                self._woken += 1
                sleeper.attempt(last=last)

    def _is_over(self) -> bool:
        """At least one has its look in every turn."""
        if not self._woken:
            return False
        return self._woken >= FETCHES_WOKEN_AT_ONCE or self._loop.time() - self._began >= TURN_SECONDS_MAX
