"""What a simulated loop runs next and when, on virtual time, and the record of what it has run."""

import hashlib
import heapq
import random
import struct
import zlib
from collections import deque
from collections.abc import Callable

from penstock.testing.sim_failures import Deadlock, Failures, SimulationError
from penstock.testing.sim_host import Host, SimHandle, SimTimer

STEP_SECONDS = 1e-6
TAIL_NOTES_MAX = 200
_STEP_RECORD = struct.Struct("<dII")


class Trace:
    """A running hash over everything that happened, and the latest notes in words."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._tail: deque[str] = deque(maxlen=TAIL_NOTES_MAX)

    def step(self, now: float, handle: SimHandle | SimTimer) -> None:
        self._hash.update(_STEP_RECORD.pack(now, handle.host.number, handle.number))

    def note(self, now: float, text: str) -> None:
        line = f"{now:.6f} {text}"
        self._hash.update(line.encode())
        self._tail.append(line)

    def digest(self) -> str:
        return self._hash.hexdigest()

    def tail(self) -> list[str]:
        return list(self._tail)


def fingerprint(data: bytes | bytearray) -> str:
    return f"{len(data)} {zlib.crc32(data):08x}"


class Timers:
    """Timers by time; two that are due together come in an order that the seed decides."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._heap: list[tuple[float, float, int, SimTimer]] = []
        self._cancelled = 0

    def push(self, timer: SimTimer) -> None:
        timer.queued = timer.host.alive
        if timer.queued:
            heapq.heappush(self._heap, (timer.when(), self._rng.random(), timer.number, timer))

    def on_cancel(self, timer: SimTimer) -> None:
        # Long-poll timeouts are nearly all cancelled; without this the heap would be mostly corpses.
        if timer.queued:
            self._cancelled += 1
            if self._cancelled > 100 and self._cancelled > len(self._heap) // 2:
                self.drop_dead()

    def drop_dead(self) -> None:
        self._heap = [entry for entry in self._heap if entry[3].host.alive and not entry[3].cancelled()]
        heapq.heapify(self._heap)
        self._cancelled = 0

    def next_time(self) -> float | None:
        """When the next timer that still counts is due: time must not jump to a cancelled one."""
        while self._heap and self._heap[0][3].cancelled():
            self._pop()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> SimTimer | None:
        while self._heap and self._heap[0][0] <= now:
            timer = self._pop()
            if not timer.cancelled():
                return timer
        return None

    def _pop(self) -> SimTimer:
        timer = heapq.heappop(self._heap)[3]
        timer.queued = False
        if timer.cancelled():
            self._cancelled -= 1
        return timer

    def clear(self) -> None:
        self._heap.clear()


class ReadyQueues:
    """One queue per process: first in, first out inside, the seed decides between them."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._hosts: list[Host] = []

    def push(self, handle: SimHandle | SimTimer) -> None:
        host = handle.host
        if not host.alive:
            return
        if not host.ready and not host.paused:
            self._hosts.append(host)
        host.ready.append(handle)

    def pause(self, host: Host, *, resume: bool) -> None:
        """It runs nothing; what comes for it waits."""
        self._hosts = [other for other in self._hosts if other is not host]
        host.paused = not resume
        if resume and host.alive and host.ready:
            self._hosts.append(host)

    def pop(self) -> SimHandle | SimTimer | None:
        hosts = self._hosts
        if not hosts:
            return None
        place = self._rng.randrange(len(hosts)) if len(hosts) > 1 else 0
        host = hosts[place]
        handle = host.ready.popleft()
        if not host.ready:
            hosts[place] = hosts[-1]
            hosts.pop()
        return handle

    def drop(self, host: Host) -> None:
        host.ready.clear()
        self._hosts = [other for other in self._hosts if other is not host]

    def clear(self) -> None:
        self._hosts.clear()


class Schedule:
    """Virtual time, and one callback after the other in it, up to a number of them and to a moment."""

    def __init__(
        self,
        stream: Callable[[str], random.Random],
        failures: Failures,
        *,
        steps_max: int,
        seconds_max: float,
    ) -> None:
        """`stream` gives random numbers of its own to each who names one."""
        self.timers = Timers(stream("timers"))
        self.ready = ReadyQueues(stream("ready"))
        self.trace = Trace()
        self.now = 0.0
        self.steps = 0
        self._failures = failures
        self._steps_max = steps_max
        self._seconds_max = seconds_max

    def run_next(self) -> None:
        handle = self._next_handle()
        if handle.cancelled():
            return
        self.steps += 1
        if self.steps > self._steps_max:
            raise self._failures.error(
                SimulationError, f"more than {self._steps_max} steps: an endless loop?"
            )
        self.now += STEP_SECONDS
        self.trace.step(self.now, handle)
        handle._run()  # noqa: SLF001 - what running a handle means
        if self._failures.noted:
            self._failures.raise_first()

    def _next_handle(self) -> SimHandle | SimTimer:
        self._ready_due_timers()
        while (handle := self.ready.pop()) is None:
            when = self.timers.next_time()
            if when is None:
                raise self._failures.error(Deadlock, "nothing is scheduled, and the future is not done")
            self.now = max(self.now, when)
            if self.now > self._seconds_max:
                raise self._failures.error(
                    SimulationError, f"not done after {self._seconds_max} virtual seconds"
                )
            self._ready_due_timers()
        return handle

    def _ready_due_timers(self) -> None:
        while (timer := self.timers.pop_due(self.now)) is not None:
            self.ready.push(timer)

    def drop(self, host: Host) -> None:
        """Its process is dead: nothing of it runs any more."""
        self.ready.drop(host)
        self.timers.drop_dead()

    def clear(self) -> None:
        self.timers.clear()
        self.ready.clear()
