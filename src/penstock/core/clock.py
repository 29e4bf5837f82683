"""Time, the only module that asks for it: the wall clock as a seam, and a stopwatch for metrics.

Whatever the broker decides by duration (timeouts, delays) comes from the event loop, so that the simulation rules it.
The stopwatches are for measuring only.
"""

import time
from typing import Protocol

stopwatch = time.perf_counter
# Of the calling thread: what other threads and processes take does not count.
cpu_stopwatch = time.thread_time


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
