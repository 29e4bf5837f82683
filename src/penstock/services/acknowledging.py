"""When a writer is told: acks=all at the high watermark, acks=k when k in-sync replicas have it, or not in time.

Only the high watermark is a promise that outlives the leader. What k of more replicas have is lost when another one is
elected, and a leader that was replaced and has not heard of it may still count who has not either.

Whoever waits is an `AckWaiter`: one of its own for a single batch, `PendingBatches` for what is answered together, or
`until_committed` where somebody awaits it.
"""

import asyncio
from collections.abc import Callable

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.replication.limits import AckWaiter
from penstock.replication.partition import Partition

ALL = -1

Refused = Callable[[ErrorCode, str], None]


def check_acks(partition: Partition, acks: int) -> None:
    """ApiError where the acknowledgement that is asked for cannot come."""
    leading = partition.leading
    if acks > 1 and (leading is None or acks > partition.replica_count):
        raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS)
    if leading is None:
        return
    required = leading.min_isr if acks == ALL and leading.is_short else acks
    if required > len(leading.state.isr):
        raise ApiError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"{len(leading.state.isr)} replicas are in sync, {required} are required",
        )


def is_acknowledged(partition: Partition, acks: int, last_offset: int) -> bool:
    if acks == ALL or partition.leading is None:
        return partition.is_committed(last_offset)
    return partition.has_copies(acks, last_offset)


def tell_committed(partition: Partition, last_offset: int, waiter: AckWaiter) -> None:
    """At once, where nothing is missing."""
    limits = partition.limits
    if last_offset < limits.high_watermark.offset:
        waiter.committed()
    else:
        limits.wait_for_commit(last_offset, waiter)


async def until_committed(partition: Partition, last_offset: int, timeout_s: float) -> None:
    """ApiError: it is not, or not in time."""
    waiter = Committed(asyncio.get_running_loop())
    tell_committed(partition, last_offset, waiter)
    try:
        async with asyncio.timeout(timeout_s):
            await waiter.done
    except TimeoutError as error:
        raise not_in_time() from error


def not_in_time() -> ApiError:
    return ApiError(ErrorCode.REQUEST_TIMED_OUT, "too few replicas have it in time")


class Committed:
    """An `AckWaiter` that somebody awaits."""

    __slots__ = ("done",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.done = loop.create_future()

    def committed(self) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def failed(self, code: ErrorCode, message: str) -> None:
        if not self.done.done():
            self.done.set_exception(ApiError(code, message))


class PendingBatches:
    """Batches that are answered together: when the last of them is acknowledged, or their time is up."""

    __slots__ = ("_done", "_replicated", "_timer", "waiting")

    def __init__(self, done: Callable[[], None]) -> None:
        self._done = done
        self._replicated: list[_PendingBatch] = []  # of which other replicas must hear, who may never come
        self._timer: asyncio.TimerHandle | None = None
        self.waiting = 0

    def wait_for(self, partition: Partition, acks: int, last_offset: int, refused: Refused) -> None:
        """Until this one, too, is acknowledged as it asks for; `refused` is called when it will not be."""
        waiter = _PendingBatch(self, refused)
        self.waiting += 1
        if partition.leading is not None:
            self._replicated.append(waiter)
        if acks == ALL or partition.leading is None:
            partition.limits.wait_for_commit(last_offset, waiter)
        else:
            partition.wait_for_copies(acks, last_offset, waiter)

    def one_done(self) -> None:
        self.waiting -= 1
        if self.waiting == 0:
            if self._timer is not None:
                self._timer.cancel()
            self._done()

    def expire_after(self, loop: asyncio.AbstractEventLoop, timeout_ms: int) -> None:
        if self.waiting and self._replicated:
            self._timer = loop.call_later(max(timeout_ms, 0) / 1000, self._expire)

    def _expire(self) -> None:
        self._timer = None
        late = not_in_time()
        for batch in self._replicated:
            batch.failed(late.code, str(late))


class _PendingBatch:
    """One of them: an `AckWaiter`."""

    __slots__ = ("_batches", "_refused")

    def __init__(self, batches: PendingBatches, refused: Refused) -> None:
        self._batches: PendingBatches | None = batches
        self._refused = refused

    def committed(self) -> None:
        batches, self._batches = self._batches, None
        if batches is not None:  # not given up before
            batches.one_done()

    def failed(self, code: ErrorCode, message: str) -> None:
        if self._batches is not None:
            self._refused(code, message)
            self.committed()
