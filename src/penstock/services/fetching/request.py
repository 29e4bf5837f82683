"""One fetch on its way: it reads what there is, and answers, waits, or has the disk read first."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from penstock.core import limits as bounds
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError, StorageError
from penstock.replication.limits import Reader
from penstock.replication.partition import Partition
from penstock.services.fetching.certainty import InDoubt
from penstock.services.fetching.consumer import ConsumerFetch
from penstock.services.fetching.follower import FollowerFetch
from penstock.services.fetching.found import (
    Found,
    FoundInTopic,
    Place,
    Terms,
    Wanted,
    copied,
    empty,
    unreadable,
)
from penstock.storage.segment import ColdRead

if TYPE_CHECKING:
    import asyncio

    from penstock.services.fetching.service import FetchService

_NOT_FOUND = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)

Reads = ConsumerFetch | FollowerFetch
Answered = Callable[[list[FoundInTopic]], None]
# What of an answer, or of a part of it, is told; the rest whoever asked knows already.
Told = Callable[[list[FoundInTopic]], list[FoundInTopic]]
# How to read it, and what was found of its topic, where it is missing.
Cold = tuple[Callable[[], object], list[Found], bytes, Place]
# What was found, its bytes, large slices and bytes in small ones, whether it cannot wait, what has to be read, whether
# some is in doubt.
Look = tuple[list[FoundInTopic], int, int, int, bool, list[Cold], bool]


class Fetch:
    """One fetch on its way; a `DataWaiter` while it waits."""

    __slots__ = (
        "_answered",
        "_by_id",
        "_given_up",
        "_is_current",
        "_joined",
        "_missing_bytes",
        "_reads",
        "_rounds",
        "_service",
        "_terms",
        "_timer",
        "_told",
        "_topics",
        "_unreadable",
    )

    def __init__(
        self,
        service: "FetchService",
        terms: Terms,
        topics: Wanted,
        reads: Reads,
        answered: Answered,
        told: Told | None,
        *,
        by_id: bool,
    ) -> None:
        self._service = service
        self._terms = terms
        self._topics = topics
        self._reads = reads
        self._answered = answered
        self._told = told
        self._by_id = by_id
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
        left, slices_max, small_max = self._service.budget(self._terms.max_bytes, self._reads.reader)
        self._conclude(self._look(self._topics, left, slices_max, small_max, at_least_one=True), last=last)

    def _look(
        self, wanted_topics: Wanted, left: int, slices_max: int, small_max: int, *, at_least_one: bool
    ) -> Look:
        """What there is to be read now, in so many bytes, large slices, and bytes in small ones."""
        total = slices = small = 0
        urgent = in_doubt = False
        cold: list[Cold] = []
        topics: list[FoundInTopic] = []
        for topic, wanted in wanted_topics:
            found_here: list[Found] = []
            for place in wanted:
                try:
                    found = self._read(topic, place, left, at_least_one=at_least_one)
                except ColdRead as read:
                    if not self._unreadable and self._rounds < bounds.FETCH_COLD_ROUNDS_MAX:
                        cold.append((read.warm, found_here, topic, place))
                        continue
                    found = unreadable(place.partition)
                except InDoubt:
                    in_doubt = True
                    continue
                if found.size:
                    at_least_one = False
                    left = max(0, left - found.size)
                    total += found.size
                    if found.size >= bounds.SLICE_BYTES_MIN:
                        found = found if slices_max else copied(found)
                        slices += 1
                        left = left if slices < slices_max else 0
                    else:
                        small += found.size
                        if small >= small_max:  # more is never taken, however long it waits
                            left, urgent = 0, True
                elif found.error or self._is_urgent(topic, found):
                    urgent = True
                found_here.append(found)
            topics.append((topic, found_here))
        return topics, total, slices, small, urgent, cold, in_doubt

    def _conclude(self, look: Look, *, last: bool) -> None:
        terms = self._terms
        topics, total, _, _, urgent, cold, in_doubt = look
        if cold and total and self._rounds >= bounds.FETCH_WARM_ROUNDS_MAX:
            self._put_off(cold)
            urgent, cold = True, []
        if cold:
            self._leave()
            self._service.warm_then([read[0] for read in cold], partial(self._warmed, last=last))
        elif in_doubt:
            self._leave()
            self._service.certainty.ask(partial(self._certain, last=last))
        elif urgent or last or total >= terms.min_bytes or terms.max_wait_ms <= 0 or not self._topics:
            self._leave()
            self._answer(topics)
        else:
            self._missing_bytes = terms.min_bytes - total
            self._wait()

    def _is_urgent(self, topic: bytes, found: Found) -> bool:
        """Whether it says something that cannot wait, although there is nothing to read."""
        if found.diverging is not None or found.preferred_replica >= 0:
            return True
        is_news = self._reads.is_news
        return is_news is not None and is_news(topic, found)

    def _put_off(self, cold: list[Cold]) -> None:
        """Others have been read: their turn comes with the next fetch."""
        for _, found_here, topic, place in cold:
            try:
                partition = self._find(topic, place.partition)
            except ApiError as error:  # gone since a long fetch looked at it
                found_here.append(self._refused(place, error.code))
            else:
                found_here.append(empty(place, partition, self._reads.aborted))

    def _find(self, topic: bytes, number: int) -> Partition:
        return self._service.find(topic, number, by_id=self._by_id, led=self._reads.led)

    def _warmed(self, could_be_read: bool, *, last: bool) -> None:
        self._unreadable = not could_be_read
        self._rounds += 1
        self.attempt(last=last)

    def _certain(self, is_current: bool, *, last: bool) -> None:
        self._is_current = is_current
        self.attempt(last=last)

    def _read(self, topic: bytes, place: Place, left: int, *, at_least_one: bool) -> Found:
        reads = self._reads
        try:
            partition = self._service.find(
                topic, place.partition, by_id=self._by_id, led=reads.led, epoch=place.leader_epoch
            )
            found = reads.read(partition, place, min(place.max_bytes, left), at_least_one=at_least_one)
            if isinstance(found, Found):
                return found
            file, position, size = found
            # Smaller ones are read by `pread`, and were as good as read when their place was looked up.
            may_be_cold = size > bounds.SLICE_BYTES_MIN and self._rounds < bounds.FETCH_WARM_ROUNDS_MAX
            if may_be_cold and not file.is_cached(size, position):
                raise ColdRead(partial(file.warm, size, position))
        except ApiError as error:
            code = error.code
            if code is ErrorCode.OFFSET_OUT_OF_RANGE and reads.reader is not Reader.FOLLOWER:
                code = self._no_place(topic, place)
            return self._refused(place, code)
        except StorageError:
            return unreadable(place.partition)
        # A follower, too, is told of no more than consumers may see: those who read there may hear of a limit late.
        limits, log, aborted = partition.limits, partition.log, reads.aborted
        if aborted is not None and log.row.aborted:
            aborted = log.row.aborted_in(place.offset, found, limits.stable)
        high_watermark, stable = limits.readable.offset, limits.stable.offset
        return Found(place.partition, 0, high_watermark, stable, log.start_offset, found, size, aborted)

    def _no_place(self, topic: bytes, place: Place) -> ErrorCode:
        """To a reader, which may know of a later leader than we do: the epoch that it names may be what we told it."""
        partition = self._find(topic, place.partition)
        return self._service.certainty.no_place(partition, self._is_current)

    def _refused(self, place: Place, code: ErrorCode) -> Found:
        aborted = [] if code in _NOT_FOUND else self._reads.aborted
        return Found(place.partition, code, -1, -1, -1, None, 0, aborted)

    def _wait(self) -> None:
        if self._timer is not None:
            return
        service = self._service
        for topic, wanted in self._topics:
            for place in wanted:
                partition = self._find(topic, place.partition)
                partition.limits.wait(self._reads.reader, self)
                self._joined.append(partition)
        service.waiting += 1
        self._timer = service.call_later(self._wait_seconds(), self._expired)

    def _wait_seconds(self) -> float:
        return min(self._terms.max_wait_ms / 1000, bounds.FETCH_WAIT_SECONDS_MAX)

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

    def _answer(self, topics: list[FoundInTopic]) -> None:
        if isinstance(self._reads, FollowerFetch):
            self._reads.sent(topics, self._find)
        if self._told is not None:
            topics = self._told(topics)
        self._tell(topics)

    def _tell(self, topics: list[FoundInTopic]) -> None:
        answered = self._answered
        del self._answered  # the reply knows us: as a cycle, both would keep the files open
        answered(topics)
