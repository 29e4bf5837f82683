"""What a follower's fetch reads of a partition: all there is, throttled; and how far it has come is noted."""

from collections.abc import Callable
from contextlib import suppress

from penstock.coordination.image import ClusterImage
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.replication.isr_keeper import IsrKeeper
from penstock.replication.leading import FetchVerdict
from penstock.replication.limits import Reader
from penstock.replication.partition import Partition
from penstock.replication.throttle import LeaderThrottle
from penstock.services.fetching.found import (
    Found,
    FoundInTopic,
    Place,
    begin_anew,
    empty,
    negative_size,
    out_of_range,
    parted,
)
from penstock.storage.segment import Slice


def check_replica(partition: Partition, replica: int) -> None:
    if partition.leading is None or replica not in partition.leading.progress:
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)  # it is no replica of this one


class FollowerReads:
    def __init__(
        self, image: ClusterImage, keeper: IsrKeeper, throttle: LeaderThrottle, now: Callable[[], float]
    ) -> None:
        self._image = image
        self._keeper = keeper
        self._now = now
        self.throttle = throttle

    def note(self, partition: Partition, replica: int, replica_epoch: int, place: Place) -> None:
        """A follower asks for an offset: it has everything before, from where its log starts.

        Only from a broker as it is registered: anybody can send its number, and what is believed here counts as a copy.
        One that registered anew asks again before long; until its registration is known here it does not count.
        """
        leading = partition.leading
        if leading is None or not self._is_registered(replica, replica_epoch):
            return
        if leading.fetched(
            replica,
            replica_epoch,
            place.offset,
            partition.log.end_offset,
            self._now(),
            place.log_start_offset,
        ):
            partition.advance()
            self._keeper.fetched(partition, replica)

    def _is_registered(self, replica: int, replica_epoch: int) -> bool:
        broker = self._image.brokers.get(replica)
        return broker is not None and broker.epoch == replica_epoch

    def verdict(self, partition: Partition, replica: int, replica_epoch: int, place: Place) -> FetchVerdict:
        """Whether a follower may go on from where it is, or was away for too long (ADR 14)."""
        log, leading = partition.log, partition.leading
        epoch, tombstones = place.last_fetched_epoch, log.cleaned.tombstones
        in_doubt = epoch < 0 or place.offset < tombstones
        if leading is None or not in_doubt or place.offset < log.start_offset:
            return FetchVerdict.GO_ON
        if not self._is_registered(replica, replica_epoch):
            # It has come back, or will: what it was may not count.
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        own = range(log.start_offset, log.end_offset)
        return leading.verdict(replica, place.offset, epoch, own, tombstones)

    def read(
        self, partition: Partition, replica: int, offset: int, size_max: int, *, at_least_one: bool
    ) -> Slice | None:
        """To the end of the log, committed or not."""
        allowed = self.throttle.allowance(partition, replica, size_max)
        if not allowed and size_max:
            return None  # it asks again
        limit = partition.limits.for_reader(Reader.FOLLOWER)
        return partition.log.read(offset, allowed, limit, at_least_one=at_least_one)

    def count_sent(
        self, topics: list[FoundInTopic], replica: int, find: Callable[[bytes, int], Partition]
    ) -> None:
        for topic, all_found in topics:
            for found in all_found:
                if found.size:
                    with suppress(ApiError):  # gone since a long fetch looked at it
                        self.throttle.sent(find(topic, found.partition), replica, found.size)


class FollowerFetch:
    """One request."""

    __slots__ = ("_epoch", "_followers", "_noted", "_replica", "aborted", "is_news")

    reader = Reader.FOLLOWER
    led = True  # nobody follows a follower

    def __init__(
        self,
        replica: int,
        epoch: int,
        followers: FollowerReads,
        is_news: Callable[[bytes, Found], bool] | None = None,
        *,
        stable: bool = False,
    ) -> None:
        """`epoch` is the broker's. `is_news`: whether there is something to be told at once, though nothing to read.

        That is a new high watermark, where consumers may read from it.
        """
        self._replica = replica
        self._epoch = epoch
        self._followers = followers
        self._noted: set[Partition] = set()  # those that its progress was noted of
        self.aborted: list[tuple[int, int]] | None = [] if stable else None
        self.is_news = is_news

    def read(self, partition: Partition, place: Place, size_max: int, *, at_least_one: bool) -> Slice | Found:
        followers, replica, log = self._followers, self._replica, partition.log
        check_replica(partition, replica)
        partition.check_leader_epoch(place.leader_epoch)
        if (answer := parted(place, partition, self.aborted)) is not None:
            return answer
        if size_max < 0:
            raise negative_size()
        verdict = followers.verdict(partition, replica, self._epoch, place)
        if verdict is FetchVerdict.BEGIN_ANEW:
            return begin_anew(place, log.start_offset, log.cleaned.tombstones)
        if verdict is FetchVerdict.WAIT:
            return empty(place, partition, self.aborted)
        if not log.start_offset <= place.offset <= log.end_offset:
            return out_of_range(place, partition)
        if partition not in self._noted:
            self._noted.add(partition)
            followers.note(partition, replica, self._epoch, place)
        found = followers.read(partition, replica, place.offset, size_max, at_least_one=at_least_one)
        return empty(place, partition, self.aborted) if found is None else found

    def sent(self, topics: list[FoundInTopic], partitions: Callable[[bytes, int], Partition]) -> None:
        if self._followers.throttle.is_on:
            self._followers.count_sent(topics, self._replica, partitions)
