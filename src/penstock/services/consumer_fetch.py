"""What a consumer's fetch reads of a partition: up to its limit, here or, where that is nearer, elsewhere (KIP-392)."""

from penstock.replication.limits import Reader
from penstock.replication.partition import Partition
from penstock.services.fetch_answers import check_size, empty, parted
from penstock.services.nearest import LEADER, RackAwareSelector
from penstock.storage.segment import Slice
from penstock.wire.kafka.fetch import (
    FOLLOWERS_SINCE,
    FetchPartition,
    FetchRequest,
    PartitionAnswer,
    TopicAnswer,
)

# By isolation level; a call of the class would take longer.
_READERS = (Reader.READ_UNCOMMITTED, Reader.READ_COMMITTED)


class ConsumerFetch:
    __slots__ = ("_rack", "_selector", "aborted", "led", "reader")

    hears_at_once = False

    def __init__(self, request: FetchRequest, version: int, selector: RackAwareSelector | None) -> None:
        """`selector` sends consumers to replicas near them; None serves all who come."""
        self.reader = _READERS[request.isolation_level]
        self.led = version < FOLLOWERS_SINCE
        self.aborted: list[tuple[int, int]] | None = [] if request.isolation_level else None
        self._rack = request.rack
        self._selector = selector

    def read(
        self, partition: Partition, one: FetchPartition, size_max: int, *, at_least_one: bool
    ) -> Slice | PartitionAnswer:
        partition.check_leader_epoch(one.leader_epoch)
        if self._rack and self._selector is not None:
            elsewhere = self._selector.choose(partition, self._rack, one.offset)
            if elsewhere != LEADER:
                return empty(one, partition, self.aborted, preferred_replica=elsewhere)
        if partition.is_following:
            partition.check_behind(one.offset)
            if one.offset > partition.limits.for_reader(self.reader).offset:
                return empty(one, partition, self.aborted)
        if one.last_fetched_epoch >= 0 and (answer := parted(one, partition, self.aborted)) is not None:
            return answer
        check_size(size_max)
        found = partition.read(one.offset, size_max, at_least_one=at_least_one, reader=self.reader)
        return empty(one, partition, self.aborted) if found is None else found

    def sent(self, topics: list[TopicAnswer], partitions: object) -> None:
        """Nobody counts."""
