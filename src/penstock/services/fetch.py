"""Serving reads: whole batches by their place in the file, long polls, and reads that must wait for the disk.

A fetch is answered at once when it has enough bytes, an error, or no time to wait. Otherwise it becomes a
`WaitingFetch`: one entry with each of its partitions and one timer. Partitions tell it how much was added; only when
that could be enough is the log looked at again.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, StorageError
from penstock.replication.isr_keeper import IsrKeeper
from penstock.replication.partition import Partition
from penstock.replication.table import PartitionTable
from penstock.services.fetch_sessions import FetchSession, FetchSessions
from penstock.storage.segment import ColdRead
from penstock.wire.kafka.fetch import (
    TOPIC_IDS_SINCE,
    FetchPartition,
    FetchRequest,
    PartitionAnswer,
    TopicAnswer,
)

# Memory may be so short that what was read is gone before it is sent: then let the loop wait for the disk.
_WARM_ROUNDS_MAX = 3
# Smaller slices are read by `pread`, and were as good as read when their place was looked up.
_PROBED_BYTES_MIN = 32 * 1024

_NOT_FOUND = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)

_ELSEWHERE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

Answered = Callable[[list[TopicAnswer], FetchSession | None], None]


class FetchService:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        executor: Executor | None,
        table: PartitionTable,
        sessions: FetchSessions,
        response_bytes_max: int,
        keeper: IsrKeeper,
        leader_of: Callable[[bytes, int], tuple[int, int] | None],
    ) -> None:
        """`leader_of` knows (leader, epoch) of a partition by its topic's id, for who asks in the wrong place."""
        self._loop = loop
        self._executor = executor
        self._table = table
        self.sessions = sessions
        self._response_bytes_max = response_bytes_max
        self._keeper = keeper
        self._leader_of = leader_of
        self.waiting = 0

    def fetch(self, request: FetchRequest, version: int, answered: Answered) -> Callable[[], None]:
        """Calls `answered` now or later, once. Raises ApiError for a request that is wrong as a whole.

        What is returned gives the fetch up: for a client that is gone and would be waited for in vain.
        """
        by_id = version >= TOPIC_IDS_SINCE
        session = self.sessions.find(request, self._loop.time(), by_id=by_id)
        # Only a request that carries on a session leaves out what did not change.
        incremental = session is not None and request.session_epoch > 0
        topics = session.topics() if session is not None else _distinct(request.topics)
        work = _Fetch(self, request, topics, session, answered, by_id=by_id, incremental=incremental)
        work.attempt()
        return work.give_up

    def find(self, topic: bytes, number: int, *, by_id: bool) -> Partition:
        found = (self._table.by_id if by_id else self._table.by_name).get(topic)
        if found is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partition = found.led.get(number)
        if partition is None:
            raise ApiError(found.missing(number))
        return partition

    def leader_of(self, topic: bytes, number: int, *, by_id: bool) -> tuple[int, int] | None:
        found = (self._table.by_id if by_id else self._table.by_name).get(topic)
        return None if found is None else self._leader_of(found.id, number)

    def note_progress(self, partition: Partition, request: FetchRequest, offset: int) -> None:
        """A follower asks for `offset`: it has everything before."""
        leading = partition.leading
        if leading is not None and leading.fetched(
            request.replica_id, request.replica_epoch, offset, partition.log.end_offset, self._loop.time()
        ):
            partition.advance()
            self._keeper.fetched(partition, request.replica_id)

    def budget(self, request: FetchRequest) -> int:
        return min(request.max_bytes, self._response_bytes_max)

    def warm_then(self, cold: list[Callable[[], object]], again: Callable[[bool], None]) -> None:
        """Read in a thread what is not in memory, then try again, told whether it could be read."""
        future = self._loop.run_in_executor(self._executor, _warm_all, cold)
        future.add_done_callback(lambda done: again(not done.cancelled() and done.exception() is None))

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(seconds, callback)


class _Fetch:
    """One fetch request on its way; a `DataWaiter` while it waits."""

    __slots__ = (
        "_answered",
        "_by_id",
        "_given_up",
        "_incremental",
        "_joined",
        "_missing_bytes",
        "_noted",
        "_request",
        "_rounds",
        "_service",
        "_session",
        "_timer",
        "_topics",
        "_unreadable",
    )

    def __init__(
        self,
        service: FetchService,
        request: FetchRequest,
        topics: list[tuple[bytes, list[FetchPartition]]],
        session: FetchSession | None,
        answered: Answered,
        *,
        by_id: bool,
        incremental: bool,
    ) -> None:
        self._service = service
        self._request = request
        self._topics = topics
        self._session = session
        self._answered = answered
        self._by_id = by_id
        self._incremental = incremental
        self._timer: asyncio.TimerHandle | None = None
        self._joined: list[Partition] = []
        self._missing_bytes = 0
        self._noted: set[tuple[bytes, int]] | None = None  # partitions whose follower's progress was noted
        self._given_up = False
        self._rounds = 0  # how often the disk was asked
        self._unreadable = False  # and whether it failed

    def attempt(self, *, last: bool = False) -> None:
        """Read what there is, and answer, wait for more, or have the disk read first."""
        if self._given_up:
            return
        request = self._request
        left = self._service.budget(request)
        at_least_one = True
        total = 0
        urgent = last or request.max_wait_ms <= 0 or not self._topics
        cold: list[Callable[[], object]] = []
        topics: list[TopicAnswer] = []
        for topic, wanted in self._topics:
            answers: list[PartitionAnswer] = []
            for one in wanted:
                try:
                    answer = self._read(topic, one, left, at_least_one=at_least_one)
                except ColdRead as read:
                    if not self._unreadable:
                        cold.append(read.warm)
                        continue
                    answer = PartitionAnswer(one.partition, ErrorCode.KAFKA_STORAGE_ERROR, -1, -1, -1, None)
                if answer.size:
                    at_least_one = False
                    left = max(0, left - answer.size)
                    total += answer.size
                elif answer.error or answer.diverging is not None:
                    urgent = True
                answers.append(answer)
            topics.append((topic, answers))
        if cold:
            self._leave()
            self._service.warm_then(cold, partial(self._warmed, last=last))
        elif urgent or total >= request.min_bytes:
            self._leave()
            self._answer(topics)
        else:
            self._missing_bytes = request.min_bytes - total
            self._wait()

    def _warmed(self, could_be_read: bool, *, last: bool) -> None:
        self._unreadable = not could_be_read
        self._rounds += 1
        self.attempt(last=last)

    def _read(self, topic: bytes, one: FetchPartition, left: int, *, at_least_one: bool) -> PartitionAnswer:
        request = self._request
        aborted: list[tuple[int, int]] | None = [] if request.isolation_level else None
        try:
            partition = self._service.find(topic, one.partition, by_id=self._by_id)
            if request.replica_id >= 0 and (
                partition.leading is None or request.replica_id not in partition.leading.progress
            ):
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)  # it is no replica of this one
            partition.check_leader_epoch(one.leader_epoch)
            diverging = partition.diverging(one.last_fetched_epoch, one.offset)
            log = partition.log
            high_watermark = partition.readable.offset
            if diverging is not None:
                if diverging[0] < 0:
                    raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)  # an epoch we never had
                return PartitionAnswer(
                    one.partition,
                    0,
                    high_watermark,
                    high_watermark,
                    log.start_offset,
                    None,
                    aborted=aborted,
                    diverging=diverging,
                )
            size_max = min(one.max_bytes, left)
            if size_max < 0:
                raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "a negative limit of bytes")
            if request.replica_id >= 0:
                high_watermark = partition.committed.offset
                if not log.start_offset <= one.offset <= log.end_offset:
                    # A follower is also told where to begin anew.
                    code, start = ErrorCode.OFFSET_OUT_OF_RANGE, log.start_offset
                    return PartitionAnswer(one.partition, code, high_watermark, high_watermark, start, None)
                if self._noted is None:
                    self._noted = set()
                if (topic, one.partition) not in self._noted:
                    self._noted.add((topic, one.partition))
                    self._service.note_progress(partition, request, one.offset)
                    high_watermark = partition.committed.offset
                found = log.read(one.offset, size_max, log.end(), at_least_one=at_least_one)
            else:
                found = partition.read(one.offset, size_max, at_least_one=at_least_one)
            if found is None:
                return PartitionAnswer(
                    one.partition, 0, high_watermark, high_watermark, log.start_offset, None, 0, aborted
                )
            if found.size > _PROBED_BYTES_MIN:
                file, position, size = found
                if self._rounds < _WARM_ROUNDS_MAX and not file.is_cached(size, position):
                    raise ColdRead(partial(file.warm, size, position))
        except ApiError as error:
            if error.code in _NOT_FOUND:
                aborted = []
            return PartitionAnswer(
                one.partition,
                error.code,
                -1,
                -1,
                -1,
                None,
                0,
                aborted,
                current_leader=self._hint(topic, one.partition, error.code),
            )
        except StorageError:
            return PartitionAnswer(one.partition, ErrorCode.KAFKA_STORAGE_ERROR, -1, -1, -1, None)
        return PartitionAnswer(
            one.partition, 0, high_watermark, high_watermark, log.start_offset, found, found.size, aborted
        )

    def _hint(self, topic: bytes, number: int, code: ErrorCode) -> tuple[int, int] | None:
        """Who leads, for a client that thought we do (KIP-951)."""
        if code not in _ELSEWHERE:
            return None
        return self._service.leader_of(topic, number, by_id=self._by_id)

    def _wait(self) -> None:
        if self._timer is not None:
            return
        service = self._service
        for topic, wanted in self._topics:
            for one in wanted:
                partition = service.find(topic, one.partition, by_id=self._by_id)
                waiters = (
                    partition.replica_waiters if self._request.replica_id >= 0 else partition.data_waiters
                )
                waiters[self] = None
                self._joined.append(partition)
        service.waiting += 1
        self._timer = service.call_later(self._request.max_wait_ms / 1000, self._expired)

    def _expired(self) -> None:
        self.attempt(last=True)

    def advanced(self, added_bytes: int) -> None:
        self._missing_bytes -= added_bytes
        if self._missing_bytes <= 0:
            self.attempt()

    def give_up(self) -> None:
        """Nobody is there to be answered any more."""
        self._given_up = True
        self._leave()

    def _leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._service.waiting -= 1
            for partition in self._joined:
                if partition.data_waiters.pop(self, self) is self:  # it is a follower's
                    partition.replica_waiters.pop(self, None)
            self._joined.clear()

    def _answer(self, topics: list[TopicAnswer]) -> None:
        session = self._session
        if session is not None:
            kept: list[TopicAnswer] = []
            for topic, answers in topics:
                changed = [answer for answer in answers if session.changed(topic, answer)]
                if changed or not self._incremental:
                    kept.append((topic, changed if self._incremental else answers))
            topics = kept
        self._answered(topics, session)


def _distinct(topics: list[tuple[bytes, list[FetchPartition]]]) -> list[tuple[bytes, list[FetchPartition]]]:
    """Each topic and partition once: of a partition named twice, the last counts, as in Kafka."""
    if len(topics) == 1 and len(topics[0][1]) == 1:
        return topics
    merged: dict[bytes, dict[int, FetchPartition]] = {}
    for topic, partitions in topics:
        merged.setdefault(topic, {}).update((one.partition, one) for one in partitions)
    return [(topic, list(partitions.values())) for topic, partitions in merged.items()]


def _warm_all(cold: list[Callable[[], object]]) -> None:
    for warm in cold:
        warm()
