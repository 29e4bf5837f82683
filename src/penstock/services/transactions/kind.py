"""Transactional ids, as a kind of coordinator."""

from penstock.config.broker import BrokerConfig
from penstock.controller.healing import REPLICAS_TO
from penstock.core.internal_topics import TRANSACTIONS_TOPIC
from penstock.groups.decision import Ticket
from penstock.groups.partitioning import partition_of
from penstock.groups.transactions.machine import TransactionMachine
from penstock.groups.transactions.requests import SpareIds, TransactionSettings
from penstock.replication.table import Topic
from penstock.services.coordinator.runtime import CoordinatorRuntime
from penstock.services.coordinator.shard import Shard
from penstock.services.topics.plans import WantedTopic

TransactionCoordinator = CoordinatorRuntime[TransactionMachine, TransactionSettings]
TransactionShard = Shard[TransactionMachine, TransactionSettings]

# Of `transaction.version`: what a coordinator here writes and how it fences. Clients of the first version are served
# beside those of the second.
LEVEL = 2


class TransactionKind:
    topic = TRANSACTIONS_TOPIC
    subjects = "transactional ids"

    partition_of = staticmethod(partition_of)

    def __init__(self, ids: SpareIds, markers: Ticket) -> None:
        self._ids = ids
        self._markers = markers

    def machine(self) -> TransactionMachine:
        return TransactionMachine()

    def settings(self, config: BrokerConfig, topic: Topic | None) -> TransactionSettings:
        return TransactionSettings(
            level=LEVEL,
            timeout_max_ms=config.transaction_max_timeout_ms,
            idle_ms=config.transactional_id_expiration_ms,
            record_bytes_max=config.message_max_bytes if topic is None else topic.config.max_message_bytes,
            ids=self._ids,
            markers=self._markers,
        )

    def wanted_topic(self, config: BrokerConfig, brokers: int) -> WantedTopic:
        wished = config.transaction_state_log_replication_factor
        replicas = min(wished, brokers)
        alone = config.zookeeper_connect is None and brokers == 1  # for good
        later = () if alone or replicas == wished else ((REPLICAS_TO, str(wished)),)
        return WantedTopic(
            self.topic,
            partitions=config.transaction_state_log_num_partitions,
            # As for groups: Kafka waits for as many brokers as it was told; a single node would wait for ever.
            replication_factor=replicas,
            configs=(
                ("cleanup.policy", "compact"),
                ("compression.type", "uncompressed"),
                ("min.insync.replicas", str(config.transaction_state_log_min_isr)),
                ("segment.bytes", str(config.transaction_state_log_segment_bytes)),
                ("unclean.leader.election.enable", "false"),
                *later,
            ),
        )

    def load_bytes(self, config: BrokerConfig) -> int:
        return config.transaction_state_log_load_buffer_size

    def commit_timeout_ms(self, config: BrokerConfig) -> int:
        return config.offsets_commit_timeout_ms
