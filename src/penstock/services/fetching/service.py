"""The one way out of partitions: whole batches by their place in the file, long polls, reads that wait for the disk.

A fetch is answered at once when it has enough bytes, an error, or no time to wait. Otherwise it becomes a
`WaitingFetch`: one entry with each of its partitions and one timer. Partitions tell it how much was added; only when
that could be enough is the log looked at again.

Who asks, and how, is not known here: Kafka's Fetch with its sessions and versions is in `frontends.kafka`, and anybody
in this process reads in the same way. `Terms` and `Place` (`found`) say what is wanted, `consumer` and `follower` for
whom; told it is what was `Found`, once.

Consumers read from the leader, or from a follower (KIP-392): up to the high watermark that it knows, which a waiting
fetch waits for there. What a follower does not have, or will have late because it is out of sync, is answered with
OFFSET_NOT_AVAILABLE: clients then turn to the leader, and their place is not in doubt.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Protocol, TypeVar

from penstock.core import limits as bounds
from penstock.core.descriptors import Descriptors
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.replication.limits import Reader
from penstock.replication.partition import Partition
from penstock.replication.table import PartitionTable
from penstock.services.fetching.certainty import Certainty
from penstock.services.fetching.follower import FollowerReads
from penstock.services.fetching.found import Terms, Wanted, warm_all
from penstock.services.fetching.long_fetch import LongFetch, is_long
from penstock.services.fetching.replica_selector import RackAwareSelector
from penstock.services.fetching.request import Answered, Fetch, Reads, Told
from penstock.services.turns import Turns
from penstock.services.waking import Waking

_Made = TypeVar("_Made")
_FOLLOWER = Reader.FOLLOWER  # at hand for the hot path


class Unsent(Protocol):
    """Answers that clients have not read."""

    is_short: bool  # they take much of the memory there is for them


class FetchService:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        executor: Executor | None,
        table: PartitionTable,
        response_bytes_max: int,
        descriptors: Descriptors,
        unsent: Unsent,
        followers: FollowerReads,
        certainty: Certainty,
        selector: RackAwareSelector | None = None,
    ) -> None:
        """`selector` sends consumers to replicas near them; None serves all who come."""
        self._loop = loop
        self._executor = executor
        self._table = table
        self._response_bytes_max = response_bytes_max
        self._descriptors = descriptors
        self._unsent = unsent
        self.followers = followers
        self.certainty = certainty
        self.selector = selector
        self.waiting = 0
        self.wake = Waking(loop).wake
        self.in_turns = Turns(loop).take

    def fetch(
        self,
        terms: Terms,
        topics: Wanted,
        reads: Reads,
        answered: Answered,
        told: Told | None = None,
        *,
        by_id: bool,
    ) -> Callable[[], None]:
        """Calls `answered` now or later, once. No partition is named twice; topics by id, or by name.

        What is returned gives the fetch up: for a client that is gone and would be waited for in vain.
        """
        kind = LongFetch if is_long(topics) else Fetch
        work = kind(self, terms, topics, reads, answered, told, by_id=by_id)
        work.attempt()
        return work.give_up

    def find(self, topic: bytes, number: int, *, by_id: bool, led: bool, epoch: int = -1) -> Partition:
        """With `led` only where this broker leads; else followers will do. `epoch` is what the client knows."""
        found = (self._table.by_id if by_id else self._table.by_name).get(topic)
        if found is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partition = found.led.get(number)
        if partition is None:
            partition = found.partitions.get(number)
            if partition is None or not partition.is_following:
                raise ApiError(found.missing(number))
            if led:
                # Who is ahead of us hears so, as in Kafka: perhaps we lead in that epoch.
                partition.check_leader_epoch(epoch)
                raise ApiError(found.missing(number))
        return partition

    def budget(self, size_max: int, reader: Reader) -> tuple[int, int, int]:
        """How many bytes an answer may have, how many large slices of files, and how many bytes in small ones.

        Followers are never slow to read.
        """
        slices = bounds.FETCH_SLICES_MAX
        if reader is not _FOLLOWER:
            slices = min(slices, self._descriptors.lendable)
        size = min(size_max, self._response_bytes_max)
        small = bounds.SLICE_BYTES_MIN if self._unsent.is_short else bounds.FETCH_COPIED_BYTES_MAX
        return (size if slices else min(size, bounds.SLICE_BYTES_MIN - 1)), slices, small

    def lend(self, slices: int) -> None:
        """So many more (or fewer) large ones are held by answers in the making."""
        self._descriptors.lent += slices

    def warm_then(self, cold: list[Callable[[], object]], again: Callable[[bool], None]) -> None:
        """Read in a thread (some of) what is not in memory, then try again, told whether it could be read."""
        future = self._loop.run_in_executor(self._executor, warm_all, cold[: bounds.FETCH_COLD_MAX])
        future.add_done_callback(lambda done: again(not done.cancelled() and done.exception() is None))

    def in_thread(self, work: Callable[[], _Made], done: Callable[[asyncio.Future[_Made]], None]) -> None:
        self._loop.run_in_executor(self._executor, work).add_done_callback(done)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(seconds, callback)
