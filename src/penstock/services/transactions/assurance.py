"""What a coordinator says from memory alone: that it still is the coordinator, it finds out first.

One that was replaced may not have heard of it. What it decides it cannot store, for that takes followers of its own
epoch; but what it has in memory it could tell at once. It would call the next commit a repeat of the last one it knows,
which is to say that it is done, and fence producers that came since, which take that for the end. So what changes
nothing waits until the coordination store has said who leads. What makes a client come again needs no such word.

Neither does a leader that is told that a partition is part of a transaction: what may have become of that since, the
partition's own log says by the producer's epoch.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from penstock.core.error_codes import ErrorCode
from penstock.replication.partition import Partition
from penstock.services.coordinator.pending_reply import PendingReply
from penstock.services.transactions.kind import TransactionShard


class LeadershipCheck(Protocol):
    """See `services.fetching.certainty`."""

    def ask(self, told: Callable[[bool], None]) -> None: ...
    def leads(self, partition: Partition) -> bool: ...


class AssuredReply(PendingReply):
    """In front of another: what it is filled with while a decision is made rests on memory alone."""

    __slots__ = ("_check", "_codes", "_later", "_shard", "is_deciding")

    def __init__(
        self,
        check: LeadershipCheck,
        shard: TransactionShard,
        later: PendingReply,
        codes: Callable[[Any], Iterable[ErrorCode]],
    ) -> None:
        """`codes`: those of an answer that could be wrong."""
        super().__init__(later.refusal, lambda answer: answer)
        self._check = check
        self._shard = shard
        self._later = later
        self._codes = codes
        self.is_deciding = True
        self.subscribe(self._filled)

    def _filled(self, answer: Any) -> None:
        if self.is_deciding and not all(code.retriable for code in self._codes(answer)):
            self._check.ask(lambda is_current: self._told(answer, is_current))
        else:
            self._later.fill(answer)

    def _told(self, answer: Any, is_current: bool) -> None:
        partition = self._shard.partition
        if is_current and self._shard.epoch == partition.leader_epoch and self._check.leads(partition):
            self._later.fill(answer)
        else:
            self._later.refuse(ErrorCode.NOT_COORDINATOR)
