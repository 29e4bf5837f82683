"""Who leads a partition and where to find it, for clients that asked in the wrong place (KIP-951)."""

from penstock.coordination.image import ClusterImage
from penstock.wire.kafka.leaders import Leader, NodeEndpoint


class Whereabouts:
    def __init__(self, image: ClusterImage) -> None:
        self._image = image

    def leader_of(self, topic_id: bytes, index: int) -> Leader | None:
        """As the metadata has it; None for a partition that it does not know."""
        topic = self._image.topics_by_id.get(topic_id)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        state = topic.partitions[index]
        found = self._image.brokers.get(state.leader)
        endpoint = None if found is None else NodeEndpoint(found.id, found.host, found.port, found.rack)
        return Leader(state.leader, state.leader_epoch, endpoint)
