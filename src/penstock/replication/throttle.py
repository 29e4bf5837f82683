"""How fast replicas that lag may be copied: so many bytes per second, together, at either end.

A bucket that may go below zero: an answer (of a second's worth, or one batch) is taken whole, and then nothing is asked
for, or sent, until the debt is paid. It concerns replicas that are only just being added, and those that the topic
names (`leader.` and `follower.replication.throttled.replicas`, as in Kafka); none of them once it is in sync, for
producers wait for those.
"""

from collections.abc import Callable

from penstock.config.live import LiveConfig
from penstock.config.settings import LONG_MAX
from penstock.coordination.image import ClusterImage
from penstock.replication.partition import Partition

LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
# What may be saved up while nothing is fetched.
_BURST_SECONDS = 1.0


class Throttle:
    def __init__(self, node: int, image: ClusterImage, named_by: str) -> None:
        """`named_by` is the topic's setting that names replicas, by partition and the broker at this end."""
        self._node = node
        self._image = image
        self._named_by = named_by
        self._left_bytes = 0.0
        self._counted_at = float("-inf")

    def concerns(self, partition: Partition, replica: int) -> bool:
        """Whether copying to that replica has to go slowly."""
        topic = self._image.topics_by_id.get(partition.topic_id)
        if topic is None or partition.index >= len(topic.partitions):
            return False
        state = topic.partitions[partition.index]
        if replica in state.isr:
            return False
        if replica in state.adding:
            return True
        named = topic.configs.get(self._named_by, "")
        return named.strip() == "*" or f"{partition.index}:{self._node}" in [
            entry.strip() for entry in named.split(",")
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


class LeaderThrottle:
    """The sending end: what a leader does not send yet, its followers ask for again."""

    def __init__(self, node: int, image: ClusterImage, config: LiveConfig, now: Callable[[], float]) -> None:
        self._throttle = Throttle(node, image, LEADER_REPLICAS)
        self._now = now
        self._config = config

    @property
    def _rate(self) -> int:
        return self._config.now.leader_replication_throttled_rate

    @property
    def is_on(self) -> bool:
        return self._rate < LONG_MAX

    def allowance(self, partition: Partition, replica: int, size_max: int) -> int:
        """How many of so many bytes the replica may be sent now: no more at once than a second is worth."""
        if not self.is_on or not self._throttle.concerns(partition, replica):
            return size_max
        now = self._now()
        return 0 if self._throttle.opens_at(self._rate, now) > now else min(size_max, self._rate)

    def sent(self, partition: Partition, replica: int, size_bytes: int) -> None:
        if self.is_on and self._throttle.concerns(partition, replica):
            self._throttle.took(size_bytes, self._rate, self._now())
