"""Replicas on their way, seen from the command line: how far a drain is, and what a broker's share would be."""

from typing import TYPE_CHECKING

from penstock.client.admin.cluster_info import Progress
from penstock.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from penstock.client.admin.cluster_info import ClusterInfo

# A replica without any bytes is work, too.
_REPLICA_BYTES_MIN = 1


class Emptying:
    """A broker that is drained: measured against what it held when we began to look."""

    def __init__(self, broker: int) -> None:
        self._broker = broker
        self._sizes: dict[TopicPartition, int] = {}

    def progress(self, found: "ClusterInfo") -> Progress:
        held = set(found.on(self._broker))
        for place in held:
            self._sizes[place] = max(found.size_of(place), _REPLICA_BYTES_MIN)
        done = 0
        for place, size in self._sizes.items():
            replicas = found.partitions.get(place)
            if place not in held:
                done += size
            elif replicas is None:
                continue  # metadata hides it
            elif self._broker in replicas.removing and replicas.adding:
                copied = found.copied(place)
                done += size * copied.done_bytes // max(copied.total_bytes, 1)
        return Progress(done, sum(self._sizes.values()))


def share_for(found: "ClusterInfo", broker: int) -> dict[TopicPartition, tuple[int, ...]]:
    """Where replicas should go so that this broker has its share; empty when it has, or nobody can give."""
    from penstock.client.admin.cluster_info import BrokerState
    from penstock.controller.healing import Fleet, fill
    from penstock.controller.placement import BrokerLocation
    from penstock.coordination.nodes import PartitionState

    takers = [
        broker_info.id
        for broker_info in found.brokers.values()
        if broker_info.state is BrokerState.IN_SERVICE or broker_info.id == broker
    ]
    places = {
        broker_info.id: BrokerLocation(broker_info.rack, broker_info.machine)
        for broker_info in found.brokers.values()
    }
    states = {
        (place.topic.encode(), place.partition): PartitionState(
            partition.replicas, partition.in_sync, partition.leader
        )
        for place, partition in found.partitions.items()
        if not partition.is_moving
    }
    wanted = fill(states, [broker], Fleet(takers, places))
    return {TopicPartition(topic.decode(), number): target for (topic, number), target in wanted.items()}
