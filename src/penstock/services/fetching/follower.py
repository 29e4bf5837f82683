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
from penstock.services.fetching.answers import begin_anew, empty, negative_size, out_of_range, parted
from penstock.storage.segment import Slice
from penstock.wire.kafka.fetch import FetchPartition, FetchRequest, PartitionAnswer, TopicAnswer


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

    def note(self, partition: Partition, request: FetchRequest, wanted: FetchPartition) -> None:
        """A follower asks for an offset: it has everything before, from where its log starts.

        Only from a broker as it is registered: anybody can send its number, and what is believed here counts as a copy.
        One that registered anew asks again before long; until its registration is known here it does not count.
        """
        leading = partition.leading
        if leading is None or not self._is_registered(request):
            return
        if leading.fetched(
            request.replica_id,
            request.replica_epoch,
            wanted.offset,
            partition.log.end_offset,
            self._now(),
            wanted.log_start_offset,
        ):
            partition.advance()
            self._keeper.fetched(partition, request.replica_id)

    def _is_registered(self, request: FetchRequest) -> bool:
        broker = self._image.brokers.get(request.replica_id)
        return broker is not None and broker.epoch == request.replica_epoch

    def verdict(self, partition: Partition, request: FetchRequest, wanted: FetchPartition) -> FetchVerdict:
        """Whether a follower may go on from where it is, or was away for too long (ADR 14)."""
        log, leading = partition.log, partition.leading
        epoch, tombstones = wanted.last_fetched_epoch, log.cleaned.tombstones
        in_doubt = epoch < 0 or wanted.offset < tombstones
        if leading is None or not in_doubt or wanted.offset < log.start_offset:
            return FetchVerdict.GO_ON
        if not self._is_registered(request):
            # It has come back, or will: what it was may not count.
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        own = range(log.start_offset, log.end_offset)
        return leading.verdict(request.replica_id, wanted.offset, epoch, own, tombstones)

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
        self, topics: list[TopicAnswer], replica: int, find: Callable[[bytes, int], Partition]
    ) -> None:
        for topic, answers in topics:
            for answer in answers:
                if answer.size:
                    with suppress(ApiError):  # gone since a long fetch looked at it
                        self.throttle.sent(find(topic, answer.partition), replica, answer.size)


class FollowerFetch:
    """One request."""

    __slots__ = ("_followers", "_noted", "_request", "aborted", "hears_at_once")

    reader = Reader.FOLLOWER
    led = True  # nobody follows a follower

    def __init__(self, request: FetchRequest, followers: FollowerReads, *, hears_at_once: bool) -> None:
        """`hears_at_once`: of a new high watermark, because consumers may read from it."""
        self._request = request
        self._followers = followers
        self._noted: set[Partition] = set()  # those that its progress was noted of
        self.aborted: list[tuple[int, int]] | None = [] if request.isolation_level else None
        self.hears_at_once = hears_at_once

    def read(
        self, partition: Partition, one: FetchPartition, size_max: int, *, at_least_one: bool
    ) -> Slice | PartitionAnswer:
        followers, request, log = self._followers, self._request, partition.log
        check_replica(partition, request.replica_id)
        partition.check_leader_epoch(one.leader_epoch)
        if (answer := parted(one, partition, self.aborted)) is not None:
            return answer
        if size_max < 0:
            raise negative_size()
        verdict = followers.verdict(partition, request, one)
        if verdict is FetchVerdict.BEGIN_ANEW:
            return begin_anew(one, log.start_offset, log.cleaned.tombstones)
        if verdict is FetchVerdict.WAIT:
            return empty(one, partition, self.aborted)
        if not log.start_offset <= one.offset <= log.end_offset:
            return out_of_range(one, partition)
        if partition not in self._noted:
            self._noted.add(partition)
            followers.note(partition, request, one)
        found = followers.read(partition, request.replica_id, one.offset, size_max, at_least_one=at_least_one)
        return empty(one, partition, self.aborted) if found is None else found

    def sent(self, topics: list[TopicAnswer], partitions: Callable[[bytes, int], Partition]) -> None:
        if self._followers.throttle.is_on:
            self._followers.count_sent(topics, self._request.replica_id, partitions)
