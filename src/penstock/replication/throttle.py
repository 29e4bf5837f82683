"""How fast a follower may fetch for replicas that are only just being added: so many bytes per second, together.

A bucket that may go below zero: an answer (of a second's worth, or one batch) is taken whole, and then nothing is asked
for until the debt is paid. Kept to followers, who know by themselves which of their replicas are new (`adding`, not in
sync yet); the topic setting `follower.replication.throttled.replicas` names more, as in Kafka.
"""

from penstock.coordination.image import ClusterImage
from penstock.replication.partition import Partition

_NAMED = "follower.replication.throttled.replicas"
# What may be saved up while nothing is fetched.
_BURST_SECONDS = 1.0


class Throttle:
    def __init__(self, node: int, image: ClusterImage) -> None:
        self._node = node
        self._image = image
        self._left_bytes = 0.0
        self._counted_at = float("-inf")

    def concerns(self, partition: Partition) -> bool:
        topic = self._image.topics_by_id.get(partition.topic_id)
        if topic is None or partition.index >= len(topic.partitions):
            return False
        state = topic.partitions[partition.index]
        if self._node in state.adding and self._node not in state.isr:
            return True
        named = topic.configs.get(_NAMED, "")
        return named.strip() == "*" or f"{partition.index}:{self._node}" in [
            one.strip() for one in named.split(",")
        ]

    def took(self, size_bytes: int, rate: int, now: float) -> None:
        self._fill(rate, now)
        self._left_bytes -= size_bytes

    def opens_at(self, rate: int, now: float) -> float:
        """From when on more may be asked for."""
        self._fill(rate, now)
        return now if self._left_bytes >= 0 else now - self._left_bytes / rate

    def _fill(self, rate: int, now: float) -> None:
        gained = (now - self._counted_at) * rate
        self._left_bytes = min(self._left_bytes + gained, rate * _BURST_SECONDS)
        self._counted_at = now
