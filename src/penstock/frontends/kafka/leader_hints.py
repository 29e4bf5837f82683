"""Who leads a partition and where to find it, for clients that asked in the wrong place (KIP-951)."""

from functools import partial

from penstock.coordination.image import ClusterImage
from penstock.replication.table import PartitionTable
from penstock.wire.kafka.leaders import EndpointOf, Leader, NodeEndpoint


class LeaderHints:
    def __init__(self, image: ClusterImage, table: PartitionTable) -> None:
        self._image = image
        self._table = table
        self._by_listener: dict[str, EndpointOf] = {}  # as many as this broker has

    def leader_of(self, topic: bytes, index: int, by_id: bool) -> Leader | None:
        """Of a topic as on the wire that has partitions here, as the metadata has it. May be asked from a thread."""
        hosted = (self._table.by_id if by_id else self._table.by_name).get(topic)
        known = None if hosted is None else self._image.topics_by_id.get(hosted.id)
        for state in () if known is None or index < 0 else known.partitions[index : index + 1]:
            return Leader(state.leader, state.leader_epoch)
        return None

    def endpoint_of(self, listener: str) -> EndpointOf:
        """Tells clients of a listener where a broker is."""
        found = self._by_listener.get(listener)
        if found is None:
            found = self._by_listener[listener] = partial(self._endpoint, listener)
        return found

    def _endpoint(self, listener: str, broker: int) -> NodeEndpoint | None:
        registered = self._image.brokers.get(broker)
        address = None if registered is None else registered.address_for(listener)
        if registered is None or address is None:
            return None
        return NodeEndpoint(broker, *address, registered.rack)
