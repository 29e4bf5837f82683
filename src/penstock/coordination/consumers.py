"""What each consumer needs of the metadata, and no more; `MetadataStore` is all of them, tests may fake one."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from penstock.coordination.image import Topic
from penstock.coordination.metadata import Alter, MetadataStore, NewTopic
from penstock.coordination.nodes import PartitionState
from penstock.coordination.registration import BrokerRegistration


class TopicWriter(Protocol):
    """For the admin service."""

    async def create_topics(self, wanted: Sequence[NewTopic]) -> list[Topic]: ...
    async def delete_topic(self, name: str) -> Topic: ...
    async def create_partitions(self, name: str, added: Sequence[PartitionState]) -> Topic: ...


class ConfigWriter(Protocol):
    """For AlterConfigs and IncrementalAlterConfigs."""

    async def alter_topic_configs(self, name: str, alter: Alter) -> Topic: ...
    async def alter_broker_configs(self, broker: int | None, alter: Alter) -> None: ...


class PartitionWriter(Protocol):
    """For elections."""

    async def bump_leader_epochs(self, broker: int) -> None: ...
    async def update_partitions(self, states: Mapping[tuple[str, int], PartitionState]) -> None: ...


class BrokerRegistry(Protocol):
    """For a broker's start."""

    async def register_broker(self, broker: BrokerRegistration) -> BrokerRegistration: ...


class ProducerIdBlocks(Protocol):
    """For InitProducerId."""

    async def next_producer_id_block(self) -> range: ...


if TYPE_CHECKING:

    def _is_each(
        store: MetadataStore,
    ) -> tuple[TopicWriter, ConfigWriter, PartitionWriter, BrokerRegistry, ProducerIdBlocks]:
        return store, store, store, store, store
