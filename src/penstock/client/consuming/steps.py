"""The steps of a consumer's loop, apart from the loop itself: `Consumer` has a plain one. That of `AsyncConsumer` has a
thread take the steps that wait (`take`, `gather`, `promise`), and hands messages out by itself.

Ctrl-C comes when a function begins, when one of C has returned, or when a loop goes round. So a message is handed out
by moving `unfinished.index` as the very last thing before `return` or `yield`: one that the caller has not got comes
again. And `in_hand` is set before that: too large, it only brings messages twice.
"""

from collections.abc import Callable
from typing import TypeVar

from penstock.client.consuming.bodies import Bodies
from penstock.client.consuming.reader import Reader
from penstock.client.errors import ClientError
from penstock.client.message import Message, ValueReader
from penstock.client.retry.flow import RetryFlow
from penstock.client.retry.retrying import Retrying

T = TypeVar("T")


class Steps:
    def __init__(
        self,
        reader: Reader,
        read: ValueReader | None,
        flow: RetryFlow | None,
        retrying: Retrying | None,
        bodies: Bodies,
        *,
        commit_each: bool,
    ) -> None:
        self._reader = reader
        self._read = read
        self._flow = flow
        self._retrying = retrying
        self._bodies = bodies
        self.commit_each = commit_each  # before the next one is handed out
        self.in_hand = 0  # of those that were handed out, as many may be worked on still

    def check_batch(self, size: int) -> None:
        if size < 1:
            raise ClientError(f"size={size}: a batch has at least one message")
        if self._flow is not None and self._flow.ordered:
            raise ClientError("batches cannot keep the order of retried keys: loop over messages instead")

    @property
    def busy(self) -> bool:
        """Whether `take` has something to do before the next message: an end of a body to act upon, a commit, or
        attending to the group."""
        if self._bodies.notes:
            return True
        unfinished = self._reader.unfinished
        return (self.commit_each and unfinished.has_unfinished) or self._reader.attend_due

    def next_taken(self) -> Message | None:
        """The next message that needs no waiting for."""
        if self._reader.ahead.held:
            self._reader.promise()
        if self._retrying is not None:
            self._retrying.pass_gate()
        unfinished = self._reader.unfinished
        if unfinished.index >= len(unfinished.raws):
            return None
        message = Message(unfinished.raws[unfinished.index], self._read, self._flow)
        self.in_hand = 1
        unfinished.index += 1
        return message

    def take(self, wait: float) -> None:
        """What takes time between two messages: commits, the group, and waiting for messages if there are none."""
        self._bodies.settle()
        unfinished = self._reader.unfinished
        unfinished.finish()  # asking says so; who is interrupted while waiting has nothing in hand
        if self.commit_each:
            self._reader.commit()
        if unfinished.index < len(unfinished.raws):
            self._reader.attend()
        else:
            self._reader.refill(wait)

    @property
    def taken(self) -> int:
        """How many messages need no waiting for."""
        return len(self._reader.unfinished.raws) - self._reader.unfinished.index

    def gather(self, wait: float) -> None:
        """A step towards a batch: those handed out are done; take more, however many are there."""
        self._bodies.settle()
        self._reader.unfinished.finish()
        if self.commit_each:
            self._reader.commit()
        self._reader.refill(wait, hold=True)

    def promise(self, size: int) -> bool:
        """Before a batch that was gathered is handed out. At-most-once it is committed; False when it is not ours."""
        self._bodies.settle()
        return self._reader.promise(size)

    def next_batch(self, size: int) -> list[Message]:
        """The next messages that need no waiting for."""
        return self.next_batch_as(size, lambda messages: messages) if self.promise(size) else []

    def next_batch_as(self, size: int, made: Callable[[list[Message]], T]) -> T:
        """Handed out only once `made` has worked: what cannot be made is still there for who asks next."""
        unfinished = self._reader.unfinished
        raws = unfinished.raws[unfinished.index : unfinished.index + size]
        end = unfinished.index + len(raws)
        batch = made([Message(raw, self._read, self._flow) for raw in raws])
        self.in_hand = len(raws)
        unfinished.index = end
        return batch
