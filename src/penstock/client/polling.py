"""Who collects delivery reports: the sender as it sends, whoever waits, and a thread when neither does.

A report is a call into Python, and librdkafka's binding takes the interpreter's lock anew for each. A thread
that polls beside a busy sender therefore waits up to a switch interval (5 ms) per report: some hundred a second. So
the sender sweeps reports up itself every few hundred messages, `result()` and `flush()` poll for themselves, and the
thread only steps in when nothing was sent for a moment, or when a coroutine waits.

Callbacks of the user's run after the poll, not in it: librdkafka counts a message as under way until its report has
returned, so one that sends and waits for room would wait for itself. Those that must run in it (`stats_cb` and the like
of `config`) may raise: it is logged, and whoever polls goes on. Ctrl-C comes through when a poll is over.
"""

import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from penstock.client.delivery import DeliveryTimeoutError, deadline_for
from penstock.client.errors import ClientError, is_fatal
from penstock.client.undisturbed import Undisturbed

if TYPE_CHECKING:
    from confluent_kafka import Producer as RawProducer

logger = logging.getLogger(__name__)

_TICK_SECONDS = 0.01
# Below the binding's 0.2 s: a longer flush is several calls there, and goes on behind a fatal error with that exception
# set. A report then fails in its first lock, which nobody lets go of.
_POLL_SECONDS = 0.05
_PURGE_SECONDS = 1.0
# Failures nobody asked about are told by flush(); the first few say what is wrong.
_FAILURES_KEPT = 16


class Awaited(Protocol):
    untold: int  # since which telling of failures it is one of them; 0 when it is none

    def done(self) -> bool: ...

    def give_up(self) -> None: ...

    def exception_now(self) -> ClientError | None: ...


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
        self._telling = 1  # which flush() will tell of those that fail now
        self._counting = threading.Lock()
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
        with self._counting:
            self._waiters += change
        if change > 0:
            self._wake.set()

    def sweep(self) -> None:
        """Reports that are here already; never waits."""
        with Undisturbed():
            if self._polling.acquire(blocking=False):
                self._poll(self.raw.poll, 0)
        self.run_callbacks()

    def wait_a_little(self) -> None:
        """Let reports come in: polls, or lets the one who does go on."""
        with Undisturbed():
            if self._polling.acquire(timeout=_POLL_SECONDS):
                self._poll(self.raw.poll, _POLL_SECONDS)
        self.run_callbacks()

    def _poll(self, poll: Callable[[float], object], seconds: float) -> None:
        """By who has the turn, which ends with it."""
        try:
            poll(seconds)
        except Exception as error:
            if is_fatal(error):
                logger.error("the producer failed for good: %s", error.args[0].str())  # noqa: TRY400 - no trace of ours
            else:
                logger.exception("a callback of the producer's config failed")
        finally:
            self._polling.release()

    def call_later(self, callback: Callable[[], object]) -> None:
        """By whoever polls, once the poll is over."""
        self._callbacks.append(callback)

    def run_callbacks(self, wait_seconds: float = 0.0) -> None:
        """One at a time and in order; those of a callback that polls wait until it has returned."""
        if self._caller == threading.get_ident():
            return
        while self._callbacks and self._begin_calling(wait_seconds):
            try:
                while self._callbacks:
                    try:
                        self._callbacks[0]()
                    except Exception:  # its own affair: the thread that happened to notice must go on
                        logger.exception("a callback of a delivery failed")
                    finally:  # one that was interrupted has been called
                        self._callbacks.popleft()
            finally:
                self._caller = None
                self._calling.release()
            # Another may have come before the release, and found us at it.

    def _begin_calling(self, wait_seconds: float) -> bool:
        begun = False
        try:
            with Undisturbed():
                begun = self._calling.acquire(timeout=wait_seconds)
                if begun:
                    self._caller = threading.get_ident()
        except BaseException:
            if begun:
                self._caller = None
                self._calling.release()
            raise
        return begun

    def _callbacks_are_due(self) -> bool:
        """Whether some have yet to run, other than behind the one that asks."""
        if self._caller == threading.get_ident():
            return False
        return bool(self._callbacks) or self._caller is not None

    def await_all(self, awaited: Sequence[Awaited], timeout: float | None) -> None:
        deadline = deadline_for(timeout)
        for delivery in awaited:
            while not delivery.done():
                if time.monotonic() >= deadline:
                    raise DeliveryTimeoutError(
                        f"not acknowledged by {self.bootstrap} within {timeout} s; it is still being tried"
                    )
                self._poll_until(delivery, deadline)

    def _poll_until(self, awaited: Awaited, deadline: float) -> None:
        """Poll ourselves if nobody does: what another thread takes in, it takes in for us too."""
        with Undisturbed():
            if self._polling.acquire(timeout=0.001):
                under_way = len(self.raw)
                if awaited.done():
                    self._polling.release()
                else:
                    self._poll(self.raw.poll, max(0.0, min(_POLL_SECONDS, deadline - time.monotonic())))
                    if not under_way and not awaited.done():
                        awaited.give_up()  # nothing is under way: its report was lost with what a callback raised
        self.run_callbacks()

    def note_failure(self, awaited: Awaited) -> None:
        with self._counting:
            awaited.untold = self._telling
            self._failures_total += 1
            if len(self._failures) < _FAILURES_KEPT:
                self._failures.append(awaited)
            else:
                self._failures[-1] = awaited  # those before may be asked about, all of them

    def seen(self, awaited: Awaited) -> None:
        """Its sender has asked what became of it: flush() need not tell."""
        if not awaited.untold or not awaited.done():
            return
        with self._counting:
            if awaited.untold == self._telling:
                awaited.untold = 0
                self._failures_total -= 1
                if awaited in self._failures:
                    self._failures.remove(awaited)

    def flush(self, timeout: float | None) -> None:
        deadline = deadline_for(timeout)
        while len(self.raw) or self._callbacks_are_due():
            if time.monotonic() >= deadline:
                raise DeliveryTimeoutError(
                    f"{len(self.raw)} messages not acknowledged by {self.bootstrap} within {timeout} s; "
                    "they are still being tried"
                )
            with Undisturbed():
                self._polling.acquire()
                # flush() of librdkafka also sends what lingers.
                self._poll(self.raw.flush, max(0.0, min(_POLL_SECONDS, deadline - time.monotonic())))
            self.run_callbacks(wait_seconds=_POLL_SECONDS)
        self._tell_failures()

    def finish(self, seconds: float) -> None:
        """Closing was interrupted: what is under way has some time left, then it is given up."""
        try:
            self.flush(seconds)
        except ClientError as error:
            logger.warning("while a producer was closed in a hurry: %s", error)
        finally:
            self._give_up()

    def _give_up(self) -> None:
        if not len(self.raw):
            return
        logger.warning("%d messages are given up unacknowledged: the producer is closed", len(self.raw))
        deadline = time.monotonic() + _PURGE_SECONDS
        while len(self.raw) and time.monotonic() < deadline:
            with Undisturbed():
                self._polling.acquire()
                self._poll(self._purge, _POLL_SECONDS)
        self.run_callbacks()

    def _purge(self, seconds: float) -> None:
        self.raw.purge()
        self.raw.flush(seconds)  # whoever asks for one of them is told

    def _tell_failures(self) -> None:
        kept, total = self._failures, self._failures_total
        error: ClientError | None = None
        if total and self.acknowledged:
            # Those that were kept may all have been asked about.
            why = kept[0].exception_now() if kept else None
            first = "" if why is None else f", the first: {why}"
            error = ClientError(f"{total} sends failed{first}", None if why is None else why.code)
            if total == 1 and why is not None:
                error = why
        # No call from here on: Ctrl-C, or a failure that another thread notes, must not come in between.
        self._failures = []
        self._failures_total -= total
        self._telling += 1
        if error is not None:
            raise error

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
            self._poll(self.raw.poll, _POLL_SECONDS)
            self.run_callbacks()

    @property
    def closed(self) -> bool:
        return self._closed


def _collect(reference: "Callable[[], Pump | None]", wake: threading.Event) -> None:
    """The thread: holds the pump only while it works for it."""
    while True:
        pump = reference()
        if pump is None or pump.closed:
            return
        try:
            pump.collect_once()
        except BaseException:  # also what would end a thread: coroutines wait for this one
            logger.exception("a round of collecting delivery reports failed")
            time.sleep(_TICK_SECONDS)
        idle = pump.asleep
        del pump
        if idle:
            wake.wait(1.0)
