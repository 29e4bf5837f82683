"""Staying idle_poll for a moment after a small answer, since the next request is likely to come at once.

Waking an idle core takes tens of microseconds, on virtual machines more than all the work on the request. A client
that waits for each answer before it asks again pays that every time; polling the sockets for a moment saves it. The
moment is short, and only small requests with small answers buy one, so a broker without work, or with bulk work, polls
nothing.
"""

import asyncio

from penstock.core.clock import stopwatch


class IdlePoll:
    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._loop = loop
        self._seconds = seconds
        self._until = 0.0
        self._polling = False

    def prolong(self) -> None:
        if self._seconds:
            self._until = stopwatch() + self._seconds
            if not self._polling:
                self._polling = True
                self._loop.call_soon(self._poll)

    def _poll(self) -> None:
        """A callback that is due keeps the loop from sleeping when it looks at the sockets."""
        if stopwatch() < self._until:
            self._loop.call_soon(self._poll)
        else:
            self._polling = False
