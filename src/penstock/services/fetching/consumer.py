"""What a consumer's fetch reads of a partition: up to its limit, here or, where that is nearer, elsewhere (KIP-392)."""

from penstock.replication.limits import Reader
from penstock.replication.partition import Partition
from penstock.services.fetching.found import Found, Place, empty, negative_size, parted
from penstock.services.fetching.replica_selector import LEADER, RackAwareSelector
from penstock.storage.segment import Slice


class ConsumerFetch:
    """What a consumer is; nothing of a request, so that one is enough for many."""

    __slots__ = ("_near", "aborted", "led", "reader")

    is_news = None  # more than records it does not wait for

    def __init__(
        self, reader: Reader, near: tuple[RackAwareSelector, bytes] | None = None, *, led: bool
    ) -> None:
        """`near`: who knows a replica that is, and the consumer's rack. `led`: it knows of leaders only."""
        self.reader = reader
        self.led = led
        self.aborted: list[tuple[int, int]] | None = [] if reader is Reader.READ_COMMITTED else None
        self._near = near

    def read(self, partition: Partition, place: Place, size_max: int, *, at_least_one: bool) -> Slice | Found:
        partition.check_leader_epoch(place.leader_epoch)
        if self._near is not None:
            selector, rack = self._near
            elsewhere = selector.choose(partition, rack, place.offset)
            if elsewhere != LEADER:
                return empty(place, partition, self.aborted, preferred_replica=elsewhere)
        if partition.is_following:
            partition.check_behind(place.offset)
            if place.offset > partition.limits.for_reader(self.reader).offset:
                return empty(place, partition, self.aborted)
        if place.last_fetched_epoch >= 0 and (answer := parted(place, partition, self.aborted)) is not None:
            return answer
        if size_max < 0:
            raise negative_size()
        found = partition.read(place.offset, size_max, at_least_one=at_least_one, reader=self.reader)
        return empty(place, partition, self.aborted) if found is None else found


_READERS = (Reader.READ_UNCOMMITTED, Reader.READ_COMMITTED)  # by isolation level
_ANYWHERE = [ConsumerFetch(reader, led=False) for reader in _READERS]
_FROM_LEADERS = [ConsumerFetch(reader, led=True) for reader in _READERS]


def consumer_fetch(
    isolation: int, rack: bytes, selector: RackAwareSelector | None, *, led: bool
) -> ConsumerFetch:
    """`selector` sends consumers to replicas near them; None serves all who come. `led`: from leaders only."""
    if selector is not None and rack:
        return ConsumerFetch(_READERS[isolation], (selector, rack), led=led)
    return _FROM_LEADERS[isolation] if led else _ANYWHERE[isolation]
