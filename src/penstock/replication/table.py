"""The partitions this broker serves, found the way the wire names them: by topic name or id, as bytes."""

from collections.abc import Iterator

from penstock.config.topic import TopicConfig
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.replication.partition import Partition


class Topic:
    """A topic's partitions here, and its settings reduced to what is asked on every request."""

    __slots__ = ("config", "count", "id", "is_internal", "name", "opens_batches", "partitions")

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
        """`partitions` are those in service here, of `count` in all: some may not have been opened."""
        self.name = name
        self.is_internal = is_internal  # only the broker itself writes to it
        self.id = topic_id
        self.partitions = partitions
        self.count = max(count, len(partitions))
        self.configure(config)

    def configure(self, config: TopicConfig) -> None:
        self.config = config
        # Whether a batch must be looked at before it is stored: never on the hot path.
        self.opens_batches = config.compression_type != "producer" or config.compacts or self.is_internal
        for partition in self.partitions.values():
            partition.log.settings = config
            partition.set_sync_before_ack(config.syncs_before_ack(replicas=1))

    @property
    def uses_append_time(self) -> bool:
        return self.config.message_timestamp_type == "LogAppendTime"


class PartitionTable:
    def __init__(self) -> None:
        self.by_name: dict[bytes, Topic] = {}
        self.by_id: dict[bytes, Topic] = {}

    def add(self, topic: Topic) -> None:
        self.by_name[topic.name.encode()] = topic
        self.by_id[topic.id] = topic

    def remove(self, topic: Topic) -> None:
        del self.by_name[topic.name.encode()]
        del self.by_id[topic.id]

    def topics(self) -> list[Topic]:
        return list(self.by_name.values())

    def partitions(self) -> Iterator[Partition]:
        for topic in self.by_name.values():
            yield from topic.partitions.values()

    def find(self, name: str, index: int) -> Partition:
        topic = self.by_name.get(name.encode())
        partition = topic.partitions.get(index) if topic else None
        if partition is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return partition
