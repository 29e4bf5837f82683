"""The partitions this broker serves, found the way the wire names them: by topic name or id, as bytes."""

from collections.abc import Iterator

from penstock.config.topic import TopicConfig
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.replication.partition import Partition
from penstock.replication.route_registry import RouteRegistry
from penstock.storage.producer_budget import ProducerBudget


class Topic:
    """A topic's partitions here, and its settings reduced to what is asked on every request."""

    __slots__ = (
        "config",
        "count",
        "id",
        "is_internal",
        "led",
        "name",
        "opens_batches",
        "partitions",
        "uses_append_time",
    )

    def __init__(
        self,
        name: str,
        topic_id: bytes,
        config: TopicConfig,
        partitions: dict[int, Partition],
        *,
        is_internal: bool = False,
        count: int = 0,
    ) -> None:
        """`partitions` are those with a replica here, of `count` in all."""
        self.name = name
        self.is_internal = is_internal  # only the broker itself writes to it
        self.id = topic_id
        self.partitions = partitions
        self.count = max(count, len(partitions))
        # Those that this broker leads: whoever produces or consumes finds them here, and no others.
        self.led = {index: partition for index, partition in partitions.items() if partition.is_leader}
        self.configure(config)

    def role_changed(self, partition: Partition) -> None:
        """It began or ceased to lead; one that is no longer, or not yet, among the topic's partitions is not led."""
        index = partition.index
        if partition.is_leader and self.partitions.get(index) is partition:
            self.led[index] = partition
        elif self.led.get(index) is partition:
            del self.led[index]

    def missing(self, index: int) -> ErrorCode:
        """What a client is told that asks for a partition which is not led here."""
        if 0 <= index < self.count:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def configure(self, config: TopicConfig) -> None:
        self.config = config
        self.uses_append_time = config.message_timestamp_type == "LogAppendTime"
        # Whether a batch must be looked at before it is stored: never on the hot path.
        self.opens_batches = config.compression_type != "producer" or config.compacts or self.is_internal
        for partition in self.partitions.values():
            if partition.log.settings is not config:  # those of a new topic are opened with it
                partition.log.settings = config
            if partition.leading is not None:
                partition.leading.min_isr = config.min_insync_replicas
                partition.leading.lag_records_max = config.replica_lag_max_messages
            partition.set_sync_before_ack(config.syncs_before_ack(partition.assured_count))


class PartitionTable:
    def __init__(self, producers: ProducerBudget | None = None) -> None:
        self.by_name: dict[bytes, Topic] = {}
        self.by_id: dict[bytes, Topic] = {}
        self.routes = RouteRegistry()
        self.producers = producers or ProducerBudget()  # of all logs together

    def add(self, topic: Topic) -> None:
        self.by_name[topic.name.encode()] = topic
        self.by_id[topic.id] = topic

    def remove(self, topic: Topic) -> None:
        del self.by_name[topic.name.encode()]
        del self.by_id[topic.id]

    def all_topics(self) -> list[Topic]:
        """For who looks at their names and settings."""
        return list(self.by_name.values())

    def stored_topics(self) -> list[Topic]:
        """Those with partitions of their own, for who works on logs. Today all; see `ClusterImage.stored_topics`."""
        return list(self.by_name.values())

    def partitions(self) -> Iterator[Partition]:
        """Of all topics that store something."""
        for topic in self.by_name.values():
            yield from topic.partitions.values()

    def find(self, name: str, index: int) -> Partition:
        """The partition, if it is led here."""
        topic = self.by_name.get(name.encode())
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partition = topic.led.get(index)
        if partition is None:
            raise ApiError(topic.missing(index))
        return partition
