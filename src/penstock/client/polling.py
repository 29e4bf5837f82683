"""Who collects delivery reports: the sender as it sends, whoever waits, and a thread when neither does.

A report is a call into Python, and librdkafka's binding takes the interpreter's lock anew for each. A thread
that polls beside a busy sender therefore waits up to a switch interval (5 ms) per report: some hundred a second. So
the sender sweeps reports up itself every few hundred messages, `result()` and `flush()` poll for themselves, and the
thread only steps in when nothing was sent for a moment, or when a coroutine waits.

Callbacks of the user's run after the poll, not in it: librdkafka counts a message as under way until its report has
returned, so one that sends and waits for room would wait for itself.
"""

import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from penstock.client.delivery import DeliveryTimeoutError, deadline_for
from penstock.client.errors import ClientError

if TYPE_CHECKING:
    from confluent_kafka import Producer as RawProducer

log = logging.getLogger(__name__)

_TICK_SECONDS = 0.01
_POLL_SECONDS = 0.05
# Failures nobody asked about are told by flush(); the first few say what is wrong.
_FAILURES_KEPT = 16


class Awaited(Protocol):
    def done(self) -> bool: ...

    def exception(self, timeout: float | None = None) -> ClientError | None: ...


class Pump:
    """Polls one librdkafka producer, from one thread at a time."""

    def __init__(self, raw: "RawProducer", bootstrap: str, *, acknowledged: bool) -> None:
        self.raw = raw
        self.bootstrap = bootstrap
        self.acknowledged = acknowledged
        self.sends = 0  # set by the sender; only its changing matters
        self.asleep = False
        # Re-entrant: librdkafka's own callbacks (statistics, errors) may send while their thread polls.
        self._polling = threading.RLock()
        self._callbacks: deque[Callable[[], object]] = deque()
        self._calling = threading.Lock()
        self._caller: int | None = None
        self._wake = threading.Event()
        self._waiters = 0
        self._closed = False
        self._failures: list[Awaited] = []
        self._failures_total = 0
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        # The thread must not keep a forgotten producer alive.
        self._thread = threading.Thread(
            target=_collect, args=(weakref.ref(self), self._wake), name="penstock-producer", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self._closed = True
        self._wake.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def wake(self) -> None:
        self.asleep = False
        self._wake.set()

    def hurry(self, change: int) -> None:
        """Somebody who cannot poll (a coroutine) began (+1) or ended (-1) to wait."""
        self._waiters += change
        if change > 0:
            self._wake.set()

    def sweep(self) -> None:
        """Reports that are here already; never waits."""
        if self._polling.acquire(blocking=False):
            try:
                self.raw.poll(0)
            finally:
                self._polling.release()
            self.run_callbacks()

    def wait_a_little(self) -> None:
        """Let reports come in: polls, or lets the one who does go on."""
        if self._polling.acquire(timeout=_POLL_SECONDS):
            try:
                self.raw.poll(_POLL_SECONDS)
            finally:
                self._polling.release()
            self.run_callbacks()

    def call_later(self, callback: Callable[[], object]) -> None:
        """By whoever polls, once the poll is over."""
        self._callbacks.append(callback)

    def run_callbacks(self, wait_seconds: float = 0.0) -> None:
        """One at a time and in order; those of a callback that polls wait until it has returned."""
        if self._caller == threading.get_ident():
            return
        while self._calling.acquire(timeout=wait_seconds):
            self._caller = threading.get_ident()
            try:
                while self._callbacks:
                    _call(self._callbacks.popleft())
            finally:
                self._caller = None
                self._calling.release()
            if not self._callbacks:  # another may have come before the release, and found us at it
                return

    def _callbacks_are_due(self) -> bool:
        """Whether some have yet to run, other than behind the one that asks."""
        if self._caller == threading.get_ident():
            return False
        return bool(self._callbacks) or self._caller is not None

    def await_all(self, awaited: Sequence[Awaited], timeout: float | None) -> None:
        deadline = deadline_for(timeout)
        for one in awaited:
            while not one.done():
                if time.monotonic() >= deadline:
                    raise DeliveryTimeoutError(
                        f"not acknowledged by {self.bootstrap} within {timeout} s; it is still being tried"
                    )
                self._poll_until(one, deadline)

    def _poll_until(self, one: Awaited, deadline: float) -> None:
        """Poll ourselves if nobody does: what another thread takes in, it takes in for us too."""
        if self._polling.acquire(timeout=0.001):
            try:
                if not one.done():
                    self.raw.poll(max(0.0, min(_POLL_SECONDS, deadline - time.monotonic())))
            finally:
                self._polling.release()
            self.run_callbacks()

    def note_failure(self, one: Awaited) -> None:
        self._failures_total += 1
        if len(self._failures) < _FAILURES_KEPT:
            self._failures.append(one)

    def seen(self, one: Awaited) -> None:
        """Its sender has asked what became of it: flush() need not tell."""
        if self._failures and one in self._failures and one.done():
            self._failures.remove(one)
            self._failures_total -= 1

    def flush(self, timeout: float | None) -> None:
        deadline = deadline_for(timeout)
        while len(self.raw) or self._callbacks_are_due():
            if time.monotonic() >= deadline:
                raise DeliveryTimeoutError(
                    f"{len(self.raw)} messages not acknowledged by {self.bootstrap} within {timeout} s; "
                    "they are still being tried"
                )
            with self._polling:
                # flush() of librdkafka also sends what lingers.
                self.raw.flush(max(0.0, min(_POLL_SECONDS, deadline - time.monotonic())))
            self.run_callbacks(wait_seconds=_POLL_SECONDS)
        self._tell_failures()

    def _tell_failures(self) -> None:
        failures, self._failures = self._failures, []
        total, self._failures_total = self._failures_total, 0
        if not failures or not self.acknowledged:
            return
        why = failures[0].exception(0)
        if total == 1 and why is not None:
            raise why
        raise ClientError(f"{total} sends failed, the first: {why}", why.code if why else None)

    def collect_once(self) -> None:
        """One round of the thread."""
        if not len(self.raw) and not self._waiters:
            self._wake.clear()
            self.asleep = True
            if not len(self.raw) and not self._closed:  # a send may have come between
                return
            self.asleep = False
        before = self.sends
        if not self._waiters:
            self._wake.clear()
            self._wake.wait(_TICK_SECONDS)
            if self.sends != before and not self._waiters:
                return  # the sender is busy, and sweeps by itself
        if not len(self.raw):
            self._wake.wait(_TICK_SECONDS)  # whoever waits is just being told
        elif self._polling.acquire(timeout=_POLL_SECONDS):
            try:
                self.raw.poll(_POLL_SECONDS)
            finally:
                self._polling.release()
            self.run_callbacks()

    @property
    def closed(self) -> bool:
        return self._closed


def _call(callback: Callable[[], object]) -> None:
    """What a callback raises is its own affair: the thread that happened to notice must go on."""
    try:
        callback()
    except Exception:
        log.exception("a callback of a delivery failed")


def _collect(reference: "Callable[[], Pump | None]", wake: threading.Event) -> None:
    """The thread: holds the pump only while it works for it."""
    while True:
        pump = reference()
        if pump is None or pump.closed:
            return
        pump.collect_once()
        idle = pump.asleep
        del pump
        if idle:
            wake.wait(1.0)
