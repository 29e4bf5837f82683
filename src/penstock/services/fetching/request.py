"""One fetch request on its way: it reads what there is, and answers, waits, or has the disk read first."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from penstock.core import limits as bounds
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, StorageError
from penstock.replication.limits import Reader
from penstock.replication.partition import Partition
from penstock.services.fetching.answers import copied, empty
from penstock.services.fetching.certainty import InDoubt
from penstock.services.fetching.consumer import consumer_fetch
from penstock.services.fetching.follower import FollowerFetch
from penstock.services.fetching.sessions import FetchSession
from penstock.storage.segment import ColdRead
from penstock.wire.kafka.fetch import (
    ENDPOINTS_SINCE,
    TOPIC_IDS_SINCE,
    FetchPartition,
    FetchRequest,
    PartitionAnswer,
    TopicAnswer,
)
from penstock.wire.kafka.leaders import Leader

if TYPE_CHECKING:
    import asyncio

    from penstock.services.fetching.service import FetchService

_NOT_FOUND = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_ELSEWHERE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

Wanted = list[tuple[bytes, list[FetchPartition]]]
Answered = Callable[[list[TopicAnswer], FetchSession | None], None]
# How to read it, and the answers that it is missing from.
Cold = tuple[Callable[[], object], list[PartitionAnswer], bytes, FetchPartition]
# Answers, their bytes, large slices and bytes in small ones, whether they cannot wait, what has to be read, whether
# some are in doubt.
Look = tuple[list[TopicAnswer], int, int, int, bool, list[Cold], bool]


class Fetch:
    """One fetch request on its way; a `DataWaiter` while it waits."""

    __slots__ = (
        "_answered",
        "_by_id",
        "_given_up",
        "_incremental",
        "_is_current",
        "_joined",
        "_missing_bytes",
        "_reads",
        "_request",
        "_rounds",
        "_service",
        "_session",
        "_timer",
        "_topics",
        "_unreadable",
        "_version",
    )

    def __init__(
        self,
        service: "FetchService",
        request: FetchRequest,
        version: int,
        topics: Wanted,
        session: FetchSession | None,
        answered: Answered,
        *,
        incremental: bool,
    ) -> None:
        self._service = service
        self._request = request
        self._topics = topics
        self._session = session
        self._answered = answered
        self._version = version
        self._by_id = version >= TOPIC_IDS_SINCE
        self._reads = (
            consumer_fetch(request, version, service.selector)
            if request.replica_id < 0
            else FollowerFetch(request, service.followers, hears_at_once=service.selector is not None)
        )
        self._incremental = incremental
        self._timer: asyncio.TimerHandle | None = None
        self._joined: list[Partition] = []
        self._missing_bytes = 0
        self._given_up = False
        self._is_current: bool | None = None  # the metadata, since this fetch came; None: nobody asked
        self._rounds = 0  # how often the disk was asked
        self._unreadable = False  # and whether it failed

    def attempt(self, *, last: bool = False) -> None:
        """Read what there is, and answer, wait for more, or have the disk read first."""
        if self._given_up:
            return
        left, slices_max, small_max = self._service.budget(self._request)
        self._conclude(self._look(self._topics, left, slices_max, small_max, at_least_one=True), last=last)

    def _look(
        self, wanted_topics: Wanted, left: int, slices_max: int, small_max: int, *, at_least_one: bool
    ) -> Look:
        """What there is to be read now, in so many bytes, large slices, and bytes in small ones."""
        total = slices = small = 0
        urgent = in_doubt = False
        cold: list[Cold] = []
        topics: list[TopicAnswer] = []
        for topic, wanted in wanted_topics:
            answers: list[PartitionAnswer] = []
            for partition in wanted:
                try:
                    answer = self._read(topic, partition, left, at_least_one=at_least_one)
                except ColdRead as read:
                    if not self._unreadable and self._rounds < bounds.FETCH_COLD_ROUNDS_MAX:
                        cold.append((read.warm, answers, topic, partition))
                        continue
                    answer = PartitionAnswer(
                        partition.partition, ErrorCode.KAFKA_STORAGE_ERROR, -1, -1, -1, None
                    )
                except InDoubt:
                    in_doubt = True
                    continue
                if answer.size:
                    at_least_one = False
                    left = max(0, left - answer.size)
                    total += answer.size
                    if answer.size >= bounds.SLICE_BYTES_MIN:
                        answer = answer if slices_max else copied(answer)
                        slices += 1
                        left = left if slices < slices_max else 0
                    else:
                        small += answer.size
                        if small >= small_max:  # more is never taken, however long it waits
                            left, urgent = 0, True
                elif answer.error or self._is_urgent(topic, answer):
                    urgent = True
                answers.append(answer)
            topics.append((topic, answers))
        return topics, total, slices, small, urgent, cold, in_doubt

    def _conclude(self, look: Look, *, last: bool) -> None:
        request = self._request
        topics, total, _, _, urgent, cold, in_doubt = look
        if cold and total and self._rounds >= bounds.FETCH_WARM_ROUNDS_MAX:
            self._put_off(cold)
            urgent, cold = True, []
        if cold:
            self._leave()
            self._service.warm_then([one[0] for one in cold], partial(self._warmed, last=last))
        elif in_doubt:
            self._leave()
            self._service.certainty.ask(partial(self._certain, last=last))
        elif urgent or last or total >= request.min_bytes or request.max_wait_ms <= 0 or not self._topics:
            self._leave()
            self._answer(topics)
        else:
            self._missing_bytes = request.min_bytes - total
            self._wait()

    def _is_urgent(self, topic: bytes, answer: PartitionAnswer) -> bool:
        """Whether it says something that cannot wait, although there is nothing to read."""
        if answer.diverging is not None or answer.preferred_replica >= 0:
            return True
        if not self._reads.hears_at_once or self._session is None:
            return False
        return self._session.is_news(topic, answer)

    def _put_off(self, cold: list[Cold]) -> None:
        """Others have been read: their turn comes with the next fetch."""
        for _, answers, topic, one in cold:
            try:
                partition = self._find(topic, one.partition)
            except ApiError as error:  # gone since a long fetch looked at it
                answers.append(self._refused(topic, one, error.code))
            else:
                answers.append(empty(one, partition, self._reads.aborted))

    def _find(self, topic: bytes, number: int) -> Partition:
        return self._service.find(topic, number, by_id=self._by_id, led=self._reads.led)

    def _warmed(self, could_be_read: bool, *, last: bool) -> None:
        self._unreadable = not could_be_read
        self._rounds += 1
        self.attempt(last=last)

    def _certain(self, is_current: bool, *, last: bool) -> None:
        self._is_current = is_current
        self.attempt(last=last)

    def _read(self, topic: bytes, one: FetchPartition, left: int, *, at_least_one: bool) -> PartitionAnswer:
        reads = self._reads
        try:
            partition = self._service.find(
                topic, one.partition, by_id=self._by_id, led=reads.led, epoch=one.leader_epoch
            )
            found = reads.read(partition, one, min(one.max_bytes, left), at_least_one=at_least_one)
            if isinstance(found, PartitionAnswer):
                return found
            file, position, size = found
            # Smaller ones are read by `pread`, and were as good as read when their place was looked up.
            may_be_cold = size > bounds.SLICE_BYTES_MIN and self._rounds < bounds.FETCH_WARM_ROUNDS_MAX
            if may_be_cold and not file.is_cached(size, position):
                raise ColdRead(partial(file.warm, size, position))
        except ApiError as error:
            code = error.code
            if code is ErrorCode.OFFSET_OUT_OF_RANGE and reads.reader is not Reader.FOLLOWER:
                code = self._no_place(topic, one)
            return self._refused(topic, one, code)
        except StorageError:
            return PartitionAnswer(one.partition, ErrorCode.KAFKA_STORAGE_ERROR, -1, -1, -1, None)
        # A follower, too, is told of no more than consumers may see: those who read there may hear of a limit late.
        limits, start = partition.limits, partition.log.start_offset
        high_watermark, stable = limits.readable.offset, limits.stable.offset
        return PartitionAnswer(one.partition, 0, high_watermark, stable, start, found, size, reads.aborted)

    def _no_place(self, topic: bytes, one: FetchPartition) -> ErrorCode:
        """To a reader, which may know of a later leader than we do: the epoch that it names may be what we told it."""
        partition = self._find(topic, one.partition)
        return self._service.certainty.no_place(partition, self._is_current)

    def _refused(self, topic: bytes, partition: FetchPartition, code: ErrorCode) -> PartitionAnswer:
        number = partition.partition
        aborted = [] if code in _NOT_FOUND else self._reads.aborted
        leader = self._hint(topic, number, code)
        return PartitionAnswer(number, code, -1, -1, -1, None, 0, aborted, current_leader=leader)

    def _hint(self, topic: bytes, number: int, code: ErrorCode) -> Leader | None:
        """Who leads, for a client that thought we do (KIP-951)."""
        if code not in _ELSEWHERE or self._version < ENDPOINTS_SINCE:
            return None
        return self._service.leader_of(topic, number, self._by_id)

    def _wait(self) -> None:
        if self._timer is not None:
            return
        service = self._service
        for topic, wanted in self._topics:
            for one in wanted:
                partition = self._find(topic, one.partition)
                partition.limits.wait(self._reads.reader, self)
                self._joined.append(partition)
        service.waiting += 1
        self._timer = service.call_later(self._wait_seconds(), self._expired)

    def _wait_seconds(self) -> float:
        return min(self._request.max_wait_ms / 1000, bounds.FETCH_WAIT_SECONDS_MAX)

    def _expired(self) -> None:
        self._service.wake(self, last=True)  # in its turn: the time of many may end at the same moment

    def advanced(self, added_bytes: int) -> None:
        self._missing_bytes -= added_bytes
        if self._missing_bytes <= 0:
            self._service.wake(self)

    @property
    def is_waiting(self) -> bool:
        return self._timer is not None

    def give_up(self) -> None:
        """Nobody is there to be answered any more. Many may be given up at the same moment."""
        self._given_up = True
        if self._end_wait():
            self._service.in_turns(self._leaving())

    def _leave(self) -> None:
        if self._end_wait():
            for partition in self._joined:
                partition.limits.leave(self._reads.reader, self)
            self._joined.clear()

    def _end_wait(self) -> bool:
        if self._timer is None:
            return False
        self._timer.cancel()
        self._timer = None
        self._service.waiting -= 1
        return True

    def _leaving(self) -> Iterator[None]:
        while self._joined:
            for partition in self._joined[-bounds.TURN_ITEMS_MAX :]:
                partition.limits.leave(self._reads.reader, self)
            del self._joined[-bounds.TURN_ITEMS_MAX :]
            yield

    def _answer(self, topics: list[TopicAnswer]) -> None:
        if isinstance(self._reads, FollowerFetch):
            self._reads.sent(topics, self._find)
        if self._session is not None:
            topics = self._session.told(topics, incremental=self._incremental)
        self._tell(topics)

    def _tell(self, topics: list[TopicAnswer]) -> None:
        answered = self._answered
        del self._answered  # the reply knows us: as a cycle, both would keep the files open
        answered(topics, self._session)
