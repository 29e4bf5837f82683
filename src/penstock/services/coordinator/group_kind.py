"""Classic groups, as a kind of coordinator."""

from penstock.config.broker import BrokerConfig
from penstock.controller.healing import REPLICAS_TO
from penstock.core.internal_topics import OFFSETS_TOPIC
from penstock.groups.classic.requests import ClassicSettings
from penstock.groups.partitioning import partition_of
from penstock.groups.state import CoordinatorState
from penstock.replication.table import Topic
from penstock.services.coordinator.runtime import CoordinatorRuntime
from penstock.services.coordinator.shard import Shard
from penstock.services.topics.plans import WantedTopic

GroupCoordinator = CoordinatorRuntime[CoordinatorState, ClassicSettings]
GroupShard = Shard[CoordinatorState, ClassicSettings]


class GroupKind:
    topic = OFFSETS_TOPIC
    subjects = "groups"

    partition_of = staticmethod(partition_of)

    def machine(self) -> CoordinatorState:
        return CoordinatorState()

    def settings(self, config: BrokerConfig, topic: Topic | None) -> ClassicSettings:
        return ClassicSettings(
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            members_max=config.group_max_size,
            session_timeout_min_ms=config.group_min_session_timeout_ms,
            session_timeout_max_ms=config.group_max_session_timeout_ms,
            record_bytes_max=config.message_max_bytes if topic is None else topic.config.max_message_bytes,
        )

    def wanted_topic(self, config: BrokerConfig, brokers: int) -> WantedTopic:
        wished = config.offsets_topic_replication_factor
        replicas = min(wished, brokers)
        alone = config.zookeeper_connect is None and brokers == 1  # for good
        later = () if alone or replicas == wished else ((REPLICAS_TO, str(wished)),)
        return WantedTopic(
            self.topic,
            partitions=config.offsets_topic_num_partitions,
            # Kafka waits for as many brokers as it was told; a single node would wait for ever.
            replication_factor=replicas,
            configs=(
                ("cleanup.policy", "compact"),
                ("compression.type", "producer"),
                ("segment.bytes", str(config.offsets_topic_segment_bytes)),
                *later,
            ),
        )

    def load_bytes(self, config: BrokerConfig) -> int:
        return config.offsets_load_buffer_size

    def commit_timeout_ms(self, config: BrokerConfig) -> int:
        return config.offsets_commit_timeout_ms
