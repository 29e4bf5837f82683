"""CreateTopics (19), versions 2-7: topics with their partitions, replicas and configs, each accepted or refused alone.

v2 to v4 answer with code and message only (v4 lets a client leave partitions and replicas to the broker's defaults,
which is understood in every version); v5 is flexible and also returns what was created, with all its configs; v6 is
v5; v7 adds the topic id.
"""

from penstock.config.broker import BrokerConfig
from penstock.config.topic import TopicConfig
from penstock.core.errors import ApiError
from penstock.core.turns import in_turns
from penstock.frontends.kafka.registry import Call, api
from penstock.services.services import Services
from penstock.services.topics.plans import WantedTopic
from penstock.services.topics.service import CreatedTopic
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

_DESCRIBED_SINCE = 5


@api(ApiKey.CREATE_TOPICS, versions=(2, 7), forwarded=True)
async def handle(services: Services, request: CreateTopicsRequest, call: Call) -> CreateTopicsResponse:
    config = services.config.now
    outcome = await services.topics.create(
        await in_turns(_wanted, request.topics),
        config,
        timeout_ms=request.timeout_ms,
        validate_only=request.validate_only,
    )
    described: dict[int, list[CreatableTopicConfigs]] = {}

    def answer(told: tuple[str, CreatedTopic | ApiError]) -> CreatableTopicResult:
        name, result = told
        if isinstance(result, ApiError):
            return _refused(name, result)
        return _created(name, result, _described(result.config, config, described, call.version))

    return CreateTopicsResponse(topics=await in_turns(answer, outcome.items()))


def _wanted(topic: CreatableTopic) -> WantedTopic:
    return WantedTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(assignment.partition_index, assignment.broker_ids) for assignment in topic.assignments],
        [(config.name, config.value) for config in topic.configs],
    )


def _described(
    config: TopicConfig, broker: BrokerConfig, known: dict[int, list[CreatableTopicConfigs]], version: int
) -> list[CreatableTopicConfigs]:
    """Topics that were configured alike share their config, and so what is said about it."""
    if version < _DESCRIBED_SINCE:
        return []
    entries = known.get(id(config))
    if entries is None:
        entries = known[id(config)] = [
            CreatableTopicConfigs(
                name=setting.name,
                # What the client gave comes back as it was given, not as it was understood.
                value=config.overrides.get(setting.name, setting.value),
                read_only=setting.read_only,
                config_source=setting.source,
                is_sensitive=setting.sensitive,
            )
            for setting in config.describe(broker)
        ]
    return entries


def _created(name: str, topic: CreatedTopic, configs: list[CreatableTopicConfigs]) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name,
        topic_id=topic.id,
        error_message=None,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        configs=configs,
    )


def _refused(name: str, error: ApiError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.code, error_message=error.message)
