"""What became of topics that were to be created, here or by the controller on another broker."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from penstock.config.broker import BrokerConfig
from penstock.config.topic import TopicConfig
from penstock.coordination.metadata import MetadataStore
from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.services.peers.controller_client import ControllerClient
from penstock.services.topics.plans import WantedTopic
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)

_VERSION = 7


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    id: bytes
    partitions: int
    replication_factor: int
    config: TopicConfig


Created = Mapping[str, CreatedTopic | ApiError]


async def create_elsewhere(
    controller: ControllerClient,
    metadata: MetadataStore,
    wanted: Sequence[WantedTopic],
    config: BrokerConfig,
    timeout_ms: int,
) -> Created:
    """Have the controller create topics; returns when the metadata here knows of them, or time is up."""
    image = metadata.image
    request = CreateTopicsRequest(topics=[_on_the_wire(topic) for topic in wanted], timeout_ms=timeout_ms)
    deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
    try:
        response = await controller.forward(ApiKey.CREATE_TOPICS, _VERSION, request, timeout_ms / 1000)
    except ApiError as error:
        return {topic.name: error for topic in wanted}
    results: dict[str, CreatedTopic | ApiError] = {}
    for topic in response.topics:
        code = ErrorCode(topic.error_code)
        if code is ErrorCode.NONE or code is ErrorCode.TOPIC_ALREADY_EXISTS:
            left = deadline - asyncio.get_running_loop().time()
            await metadata.until(partial(image.topics.__contains__, topic.name), left)
        if code is not ErrorCode.NONE:
            results[topic.name] = ApiError(code, topic.error_message)
            continue
        known = image.topics.get(topic.name)
        configs = known.configs if known is not None else {}
        results[topic.name] = CreatedTopic(
            topic.topic_id,
            topic.num_partitions,
            topic.replication_factor,
            TopicConfig.in_force(configs, config),
        )
    return results


def _on_the_wire(topic: WantedTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
            for index, replicas in topic.assignments
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs],
    )
