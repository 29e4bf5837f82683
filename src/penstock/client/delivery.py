"""What became of a message: a light future, resolved by librdkafka's delivery report.

`concurrent.futures.Future` makes a lock and a condition each time, which costs more than handing the message over.
Most deliveries are never waited for one by one, so nothing is made here until somebody waits.
"""

import logging
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Self

from confluent_kafka import KafkaError

from penstock.client.errors import ClientError, explained

if TYPE_CHECKING:
    from confluent_kafka import Message as RawMessage

    from penstock.client.polling import Pump

logger = logging.getLogger(__name__)

_watching = threading.Lock()  # held for a few instructions, and only by those who wait


class Sent(NamedTuple):
    """Where a message went. Nobody said so under at-most-once: the offset is None."""

    topic: str
    partition: int
    offset: int | None
    timestamp: int | None  # epoch milliseconds
    id: str


class DeliveryTimeoutError(ClientError, TimeoutError):
    """The answer did not come within the time that the caller gave."""


class Delivery:
    """One message under way: `result()` waits for it, `add_done_callback` does not."""

    __slots__ = ("_error", "_pump", "_topic", "_watchers", "_where", "id", "untold")

    def __init__(self, pump: "Pump", topic: str, id_: str) -> None:
        self._pump = pump
        self._topic = topic
        self.id = id_
        self._where: tuple[int | None, int | None, int] | None = None
        self._error: KafkaError | None = None
        self._watchers: list[Callable[[], object]] | None = None
        self.untold = 0

    def _delivered(self, error: KafkaError | None, message: "RawMessage") -> None:
        """Called by librdkafka, once, from whichever thread polls."""
        self._error = error
        self._where = (message.partition(), message.offset(), message.timestamp()[1])
        if error is not None:
            self._pump.note_failure(self)
        if self._watchers is not None:
            self._notify()

    def _notify(self) -> None:
        with _watching:
            watchers, self._watchers = self._watchers, None
        for watcher in watchers or ():
            try:
                watcher()
            except Exception:  # who waits badly must not keep the report from those who wait as well
                logger.exception("whoever waited for a delivery could not be told")

    def give_up(self) -> None:
        """Its report will not come any more: as if it had failed, for nobody can say that it has not."""
        self._error = _report_lost()
        self._where = (None, None, 0)
        self._notify()

    def _watch(self, watcher: Callable[[], object]) -> None:
        """Call `watcher` when the report is here, at once if it is. Either side may come first; it runs once."""
        with _watching:
            self._watchers = [*(self._watchers or ()), watcher]
        if self._where is not None:
            self._notify()

    def done(self) -> bool:
        return self._where is not None

    @contextmanager
    def awaited(self, watcher: Callable[[], object]) -> Iterator[None]:
        """For those who wait without polling: `watcher` is called when it is done, and reports are fetched at once."""
        self._pump.hurry(+1)
        try:
            self._watch(watcher)
            yield
        finally:
            self._unwatch(watcher)
            self._pump.hurry(-1)

    def _unwatch(self, watcher: Callable[[], object]) -> None:
        with _watching:
            self._watchers = [other for other in self._watchers or () if other is not watcher] or None

    def add_done_callback(self, callback: "Callable[[Delivery], object]") -> None:
        """Called with this delivery when it is done, in the thread that noticed; it should be quick."""
        self._pump.seen(self)
        self._watch(partial(self._pump.call_later, partial(callback, self)))
        self._pump.run_callbacks()

    def result(self, timeout: float | None = None) -> Sent:
        """Where the message went; raises `ClientError` when it was refused or given up."""
        self._pump.await_all([self], timeout)
        error = self.exception()
        if error is not None:
            raise error
        assert self._where is not None
        partition, offset, timestamp = self._where
        known = self._pump.acknowledged and offset is not None and offset >= 0
        return Sent(
            self._topic,
            -1 if partition is None else partition,
            offset if known else None,
            timestamp if timestamp > 0 else None,
            self.id,
        )

    def exception(self, timeout: float | None = None) -> ClientError | None:
        """Why it failed, or None when it did not; waits as `result` does."""
        self._pump.await_all([self], timeout)
        self._pump.seen(self)
        return self.exception_now()

    def exception_now(self) -> ClientError | None:
        if self._error is None:
            return None
        return explained(self._error, bootstrap=self._pump.bootstrap, subject=self._topic)

    def __await__(self) -> Generator[object, None, Sent]:
        """In a coroutine: `await producer.send(…)`."""
        from penstock.client.aio import until_done  # noqa: PLC0415 - asyncio only for those who use it

        yield from until_done(self).__await__()
        return self.result(0)


class DeliveryBatch:
    """Many messages under way, counted together: what `send_many` gives back."""

    __slots__ = ("_done", "_first_error", "_pump", "_topic", "failed", "last_offsets", "total", "untold")

    def __init__(self, pump: "Pump", topic: str) -> None:
        self._pump = pump
        self._topic = topic
        self.total = 0
        self.failed = 0
        self.last_offsets: dict[int, int] = {}  # by partition; empty under at-most-once
        self._done = 0
        self._first_error: KafkaError | None = None
        self.untold = 0

    def _delivered(self, error: KafkaError | None, message: "RawMessage") -> None:
        self._done += 1
        if error is None:
            # Reports of a partition come in its order, so that the last one stands.
            self.last_offsets[message.partition()] = message.offset()  # type: ignore[index,assignment]
        else:
            self.failed += 1
            if self._first_error is None:
                self._first_error = error
                self._pump.note_failure(self)

    def done(self) -> bool:
        return self._done >= self.total

    def give_up(self) -> None:
        self.failed += self.total - self._done
        self._done = self.total
        self._first_error = self._first_error or _report_lost()

    def exception(self, timeout: float | None = None) -> ClientError | None:
        self._pump.await_all([self], timeout)
        self._pump.seen(self)
        return self.exception_now()

    def exception_now(self) -> ClientError | None:
        if self._first_error is None:
            return None
        why = explained(self._first_error, bootstrap=self._pump.bootstrap, subject=self._topic)
        return ClientError(f"{self.failed} of {self.total} messages failed: {why}", why.code)

    def result(self, timeout: float | None = None) -> Self:
        """Waits until all are acknowledged; raises `ClientError` when any failed."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        if not self._pump.acknowledged:
            self.last_offsets.clear()
        return self


def _report_lost() -> KafkaError:
    return KafkaError(KafkaError._FAIL, "what became of it is not known, its report was lost")  # noqa: SLF001


def deadline_for(timeout: float | None) -> float:
    return float("inf") if timeout is None else time.monotonic() + timeout
