"""When a producer is answered: acks=all at the high watermark, acks=k when k in-sync replicas have it, or not in time.

Only the high watermark is a promise that outlives the leader. What k of more replicas have is lost when another one is
elected, and a leader that was replaced and has not heard of it may still count who has not either.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.replication.partition import Partition

ALL = -1

AnswerSender = Callable[[], None]


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


def wait_for_acks(
    partition: Partition,
    acks: int,
    last_offset: int,
    request: "PendingProduce",
    answers: list[tuple[int, int, int, int, int, Any]],
) -> None:
    """Hold the request back until the batch of its latest answer is acknowledged as it asks for."""
    waiter = PendingBatch(request, answers, len(answers) - 1, is_replicated=partition.leading is not None)
    if acks == ALL or partition.leading is None:
        partition.limits.wait_for_commit(last_offset, waiter)
    else:
        partition.wait_for_copies(acks, last_offset, waiter)


class PendingProduce:
    """A produce request that is answered when the last of its batches is committed, or its time is up."""

    __slots__ = ("_batches", "_send", "_timer", "waiting")

    def __init__(self, send: AnswerSender) -> None:
        self._send = send
        self._batches: list[PendingBatch] = []  # of which other replicas must hear, who may never come
        self._timer: asyncio.TimerHandle | None = None
        self.waiting = 0

    def add(self, batch: "PendingBatch") -> None:
        self.waiting += 1
        if batch.is_replicated:
            self._batches.append(batch)

    def one_done(self) -> None:
        self.waiting -= 1
        if self.waiting == 0:
            if self._timer is not None:
                self._timer.cancel()
            self._send()

    def expire_after(self, loop: asyncio.AbstractEventLoop, timeout_ms: int) -> None:
        if self.waiting and self._batches:
            self._timer = loop.call_later(max(timeout_ms, 0) / 1000, self._expire)

    def _expire(self) -> None:
        self._timer = None
        for batch in self._batches:
            batch.failed(ErrorCode.REQUEST_TIMED_OUT, "too few replicas have it in time")


class PendingBatch:
    """One batch of it: an `AckWaiter`, which knows where in the answer a failure belongs."""

    __slots__ = ("_answers", "_at", "_request", "is_replicated")

    def __init__(
        self,
        request: PendingProduce,
        answers: list[tuple[int, int, int, int, int, Any]],
        at: int,
        *,
        is_replicated: bool = False,
    ) -> None:
        self._request: PendingProduce | None = request
        self._answers = answers
        self._at = at
        self.is_replicated = is_replicated
        request.add(self)

    def committed(self) -> None:
        request, self._request = self._request, None
        if request is not None:  # not given up before
            request.one_done()

    def failed(self, code: ErrorCode, message: str) -> None:
        if self._request is not None:
            self._answers[self._at] = (self._answers[self._at][0], code, -1, -1, -1, message)
            self.committed()
