"""Who leads a partition and where to find it, for clients that asked in the wrong place (KIP-951)."""

from functools import partial

from penstock.coordination.image import ClusterImage
from penstock.wire.kafka.leaders import EndpointOf, Leader, NodeEndpoint


class LeaderHints:
    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._by_listener: dict[str, EndpointOf] = {}  # as many as this broker has

    def leader_of(self, topic_id: bytes, index: int) -> Leader | None:
        """As the metadata has it; None for a partition that it does not know."""
        topic = self._image.topics_by_id.get(topic_id)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        state = topic.partitions[index]
        return Leader(state.leader, state.leader_epoch)

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
