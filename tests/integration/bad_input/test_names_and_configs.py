"""Topics that may not exist and settings that may not be: refused in Kafka's words, nothing left behind."""

import pytest
from tests.integration.bad_input.conftest import Victim
from tests.integration.raw import RawClient, create_topic

from penstock.core.error_codes import ErrorCode as E
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import (
    create_partitions,
    create_topics,
    incremental_alter_configs,
    metadata,
)

ILLEGAL = {
    "": "Topic name is invalid: the empty string is not allowed",
    ".": "Topic name is invalid: '.' is not allowed",
    "..": "Topic name is invalid: '..' is not allowed",
    "a/b": "contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
    "../../etc/passwd": "contains one or more characters other than ASCII",
    "a\0b": "contains one or more characters other than ASCII",
    "żółw": "contains one or more characters other than ASCII",
    "a b": "contains one or more characters other than ASCII",
    "x" * 250: "is longer than the max allowed length 249",
}


def topics_of(client: RawClient) -> set[str]:
    found = client.call(ApiKey.METADATA, 9, metadata.MetadataRequest(topics=None))
    return {topic.name for topic in found.topics}


def directories(victim: Victim) -> set[str]:
    return {str(path.relative_to(victim.process.data_dir)) for path in victim.process.data_dir.rglob("*/")}


@pytest.mark.parametrize("name", ILLEGAL)
def test_illegal_names_are_refused_and_leave_nothing(victim: Victim, name: str) -> None:
    with RawClient(victim.port) as client:
        before = topics_of(client), directories(victim)
        answer = create_topic(client, name)
        assert E(answer.error_code) is E.INVALID_TOPIC_EXCEPTION
        assert ILLEGAL[name] in answer.error_message
        asked = metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(name=name)], allow_auto_topic_creation=True
        )
        assert E(client.call(ApiKey.METADATA, 9, asked).topics[0].error_code) is E.INVALID_TOPIC_EXCEPTION
        assert (topics_of(client), directories(victim)) == before


def test_the_longest_name_is_allowed(victim: Victim) -> None:
    with RawClient(victim.port) as client:
        assert E(create_topic(client, "y" * 249).error_code) is E.NONE


def test_names_that_collide_on_dot_and_underscore_are_refused(victim: Victim) -> None:
    with RawClient(victim.port) as client:
        assert create_topic(client, "col.li_sion").error_code == 0
        before = topics_of(client)
        for name in ("col_li_sion", "col.li.sion", "col_li.sion"):
            answer = create_topic(client, name)
            assert E(answer.error_code) is E.INVALID_TOPIC_EXCEPTION
            assert "collides with existing topic" in answer.error_message
            asked = metadata.MetadataRequest(
                topics=[metadata.MetadataRequestTopic(name=name)], allow_auto_topic_creation=True
            )
            for _ in range(2):
                found = client.call(ApiKey.METADATA, 9, asked).topics[0]
                assert E(found.error_code) is E.UNKNOWN_TOPIC_OR_PARTITION
        assert topics_of(client) == before


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({"foo": "1"}, "Unknown topic config name: foo"),
        ({"retention.ms": "abc"}, "Not a number of type LONG"),
        ({"retention.ms": "9" * 30}, "Not a number of type LONG"),
        ({"retention.ms": "-2"}, "Value must be at least -1"),
        ({"retention.ms": None}, "Null value not supported for topic configs: retention.ms"),
        ({"segment.bytes": "1"}, "Value must be at least"),
        ({"segment.bytes": str(1 << 40)}, "Not a number of type INT"),
        ({"cleanup.policy": "shred"}, "String must be one of: compact, delete"),
        ({"compression.type": "rar"}, "String must be one of"),
        ({"compression.zstd.level": "99"}, "Value must be no more than 22"),
        ({"preallocate": "perhaps"}, "Expected value to be either true or false"),
        ({"x" * 30_000: "y"}, "Unknown topic config name"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_invalid_configs_create_no_topic(
    victim: Victim, configs: dict[str, str | None], message: str
) -> None:
    with RawClient(victim.port) as client:
        answer = create_topic(client, "misconfigured", configs=configs)
        assert E(answer.error_code) is E.INVALID_CONFIG
        assert message in answer.error_message
        assert "misconfigured" not in topics_of(client)


def test_an_invalid_change_of_configs_changes_nothing(victim: Victim) -> None:
    changes = [
        incremental_alter_configs.AlterableConfig(name="retention.ms", config_operation=0, value="5000"),
        incremental_alter_configs.AlterableConfig(name="segment.bytes", config_operation=0, value="three"),
    ]
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=2, resource_name=victim.topic, configs=changes
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])
    with RawClient(victim.port) as client:
        answer = client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses[0]
        assert E(answer.error_code) is E.INVALID_CONFIG
        assert described(client, victim.topic)["retention.ms"] != "5000"


def described(client: RawClient, topic: str) -> dict[str, str | None]:
    from penstock.wire.kafka.generated import describe_configs

    resource = describe_configs.DescribeConfigsResource(
        resource_type=2, resource_name=topic, configuration_keys=None
    )
    request = describe_configs.DescribeConfigsRequest(resources=[resource])
    found = client.call(ApiKey.DESCRIBE_CONFIGS, 4, request).results[0]
    return {config.name: config.value for config in found.configs}


@pytest.mark.parametrize(("partitions", "replicas", "code"), [
    (0, 1, E.INVALID_PARTITIONS), (-2, 1, E.INVALID_PARTITIONS), (1, 0, E.INVALID_REPLICATION_FACTOR),
    (1, -2, E.INVALID_REPLICATION_FACTOR), (1, 2, E.INVALID_REPLICATION_FACTOR),
    (10_001, 1, E.POLICY_VIOLATION), (0x7FFFFFFF, 1, E.POLICY_VIOLATION), (1, 32_767, E.INVALID_REPLICATION_FACTOR),
])  # fmt: skip
def test_impossible_partition_counts_create_nothing(
    victim: Victim, partitions: int, replicas: int, code: E
) -> None:
    topic = create_topics.CreatableTopic(
        name="impossible", num_partitions=partitions, replication_factor=replicas
    )
    with RawClient(victim.port) as client:
        request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
        assert E(client.call(ApiKey.CREATE_TOPICS, 7, request).topics[0].error_code) is code
        assert "impossible" not in topics_of(client)


@pytest.mark.parametrize("count", [-1, 0, 2, 1])
def test_a_topic_does_not_shrink(victim: Victim, count: int) -> None:
    topic = create_partitions.CreatePartitionsTopic(name=victim.topic, count=count)
    with RawClient(victim.port) as client:
        request = create_partitions.CreatePartitionsRequest(topics=[topic], timeout_ms=30_000)
        answer = client.call(ApiKey.CREATE_PARTITIONS, 3, request).results[0]
        assert E(answer.error_code) is E.INVALID_PARTITIONS
