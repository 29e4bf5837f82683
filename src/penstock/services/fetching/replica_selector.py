"""Which replica a consumer is sent to read from (KIP-392), when `replica.selector.class` asks for one near it.

The leader decides, since it alone knows how far everybody is. It chooses among those in sync that have the offset: a
follower that lags would be chosen again and again, and its reader fall behind with it.
"""

from penstock.config.replication_settings import RACK_AWARE
from penstock.coordination.image import ClusterImage
from penstock.replication.partition import Partition

LEADER = -1


class RackAwareSelector:
    """In the consumer's own rack: the leader, if it is there; else whoever has most, and caught up last."""

    def __init__(self, node: int, image: ClusterImage) -> None:
        self._node = node
        self._image = image

    def choose(self, partition: Partition, rack: bytes, offset: int) -> int:
        """The broker to read `offset` from; LEADER for this one, which leads the partition."""
        leading = partition.leading
        if leading is None or self._rack_of(self._node) == rack:
            return LEADER
        nearest = [
            (progress.end, progress.caught_up_at, broker)
            for broker, progress in leading.progress.items()
            if broker in leading.state.isr
            and progress.start <= offset <= progress.end
            and self._rack_of(broker) == rack
        ]
        return max(nearest)[2] if nearest else LEADER

    def _rack_of(self, broker: int) -> bytes | None:
        """None for one that is not alive, or stands in none."""
        registered = self._image.brokers.get(broker)
        if registered is None or registered.stopping or registered.rack is None:
            return None
        return registered.rack.encode()


def selector(name: str | None, node: int, image: ClusterImage) -> RackAwareSelector | None:
    """By the name of Kafka's class; without one, consumers read from leaders."""
    return RackAwareSelector(node, image) if name == RACK_AWARE else None
