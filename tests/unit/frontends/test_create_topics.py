"""CreateTopics and CreatePartitions as Apache Kafka 4.3 answers them."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.unit.frontends.in_memory import Asked, Machine

from penstock.core.error_codes import ErrorCode
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import create_partitions, create_topics
from penstock.wire.kafka.generated.create_topics import CreatableTopic

NO_ID = bytes(16)
DEFAULT_SOURCE, TOPIC_SOURCE = 5, 1


def wanted(
    name: str,
    partitions: int = -1,
    factor: int = -1,
    assignments: Sequence[tuple[int, list[int]]] = (),
    configs: Sequence[tuple[str, str | None]] = (),
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            create_topics.CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in assignments
        ],
        configs=[create_topics.CreatableTopicConfig(name=key, value=value) for key, value in configs],
    )


async def create(asked: Asked, *topics: CreatableTopic, version: int = 7, **fields: Any) -> list[Any]:
    request = create_topics.CreateTopicsRequest(topics=list(topics), **fields)
    return list((await asked.ask(ApiKey.CREATE_TOPICS, request, version)).topics)


async def grow(
    asked: Asked,
    name: str,
    count: int,
    brokers: list[list[int]] | None = None,
    version: int = 3,
    **fields: Any,
) -> tuple[int, str | None]:
    assignments = (
        None
        if brokers is None
        else [create_partitions.CreatePartitionsAssignment(broker_ids=each) for each in brokers]
    )
    topic = create_partitions.CreatePartitionsTopic(name=name, count=count, assignments=assignments)
    request = create_partitions.CreatePartitionsRequest(topics=[topic], **{"timeout_ms": 5000, **fields})
    (result,) = (await asked.ask(ApiKey.CREATE_PARTITIONS, request, version)).results
    assert result.name == name
    return result.error_code, result.error_message


@pytest.mark.parametrize("version", range(2, 8))
async def test_a_topic_is_created_and_open_in_every_version(version: int) -> None:
    async with Machine({"num.partitions": "3"}).broker() as asked:
        (result,) = await create(asked, wanted("t", configs=[("retention.ms", " 5 ")]), version=version)
        assert (result.name, result.error_code, result.error_message) == ("t", 0, None)
        topic = asked.services.image.topics["t"]
        assert sorted(asked.services.table.by_name[b"t"].partitions) == [0, 1, 2]
        assert asked.services.table.by_name[b"t"].config.retention_ms == 5
        if version < 5:
            return
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        assert result.topic_config_error_code == 0
        names = [config.name for config in result.configs]
        assert names == sorted(names)
        sources = {config.name: (config.value, config.config_source) for config in result.configs}
        assert sources["retention.ms"] == (" 5 ", TOPIC_SOURCE)
        assert sources["cleanup.policy"] == ("delete", DEFAULT_SOURCE)
        assert result.topic_id == (topic.id if version >= 7 else NO_ID)


@pytest.mark.parametrize(
    ("topic", "code", "message"),
    [
        (wanted("a/b"), 17, "Topic name is invalid: 'a/b' contains one or more characters other than ASCII "),
        (wanted("t1"), 36, "Topic 't1' already exists."),
        (wanted("a_b"), 17, "Topic 'a_b' collides with existing topic: a.b"),
        (wanted("__cluster_metadata"), 42, "Creation of internal topic __cluster_metadata is prohibited."),
        (wanted("t", 0, 3), 37, "Number of partitions was set to an invalid non-positive value."),
        (wanted("t", -2), 37, "Number of partitions was set to an invalid non-positive value."),
        (wanted("t", 0, 0), 38, "Replication factor must be larger than 0, or -1 to use the default value."),
        (
            wanted("t", 1, 2),
            38,
            "Unable to replicate the partition 2 time(s): The target replication factor of",
        ),
        (wanted("t", 10001), 44, "Excessively large number of partitions per request."),
        (
            wanted("t", 2, 1, [(0, [1])]),
            42,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
        (
            wanted("t", 2, -1, [(0, [1])]),
            42,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            wanted("t", assignments=[(0, [7])]),
            39,
            "The manual partition assignment includes broker 7, but no ",
        ),
        (
            wanted("t", assignments=[(1, [1])]),
            39,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            wanted("t", assignments=[(0, [1]), (0, [1])]),
            39,
            "Found multiple manual partition assignments for partition 0",
        ),
        (wanted("t", configs=[("retention.ms", None)]), 40, "Null value not supported for topic configs: "),
        (wanted("t", configs=[("foo", "1")]), 40, "Unknown topic config name: foo"),
        (
            wanted("t", configs=[("retention.ms", "-2")]),
            40,
            "Invalid value -2 for configuration retention.ms: ",
        ),
        # Several faults: the first in Kafka's order is answered.
        (wanted("t1", 0, 0, configs=[("foo", "1")]), 36, "Topic 't1' already exists."),
        (wanted("t", 0, 0, configs=[("foo", "1")]), 40, "Unknown topic config name: foo"),
    ],
    ids=lambda value: None if isinstance(value, CreatableTopic) else str(value)[:40],
)
async def test_a_fault_is_answered_with_its_code_and_nothing_is_created(
    topic: CreatableTopic, code: int, message: str
) -> None:
    async with Machine().broker() as asked:
        await create(asked, wanted("t1"), wanted("a.b"))
        (result,) = await create(asked, topic)
        assert result.error_code == code
        assert result.error_message.startswith(message)
        assert (result.num_partitions, result.replication_factor, result.configs) == (-1, -1, [])
        assert result.topic_id == NO_ID
        assert set(asked.services.image.topics) == {"t1", "a.b"}


async def test_each_topic_of_a_request_stands_for_itself() -> None:
    async with Machine().broker() as asked:
        results = await create(asked, wanted("twice"), wanted("good"), wanted("a/b"), wanted("twice"))
        assert [(result.name, result.error_code) for result in results] == [
            ("good", 0),
            ("a/b", 17),
            ("twice", 42),
        ]
        assert results[2].error_message == "Duplicate topic name."


async def test_validate_only_and_no_time_create_nothing() -> None:
    async with Machine().broker() as asked:
        (result,) = await create(asked, wanted("t", 2), validate_only=True)
        assert (result.error_code, result.num_partitions) == (0, 2)
        (result,) = await create(asked, wanted("t"), timeout_ms=0)
        assert (result.error_code, result.error_message) == (ErrorCode.REQUEST_TIMED_OUT, None)
        assert asked.services.image.topics == {}


async def test_a_topic_keeps_its_assignment() -> None:
    async with Machine().broker() as asked:
        (result,) = await create(asked, wanted("t", assignments=[(1, [1]), (0, [1])]))
        assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 2, 1)


@pytest.mark.parametrize("version", range(4))
async def test_a_topic_grows_in_every_version(version: int) -> None:
    async with Machine().broker() as asked:
        await create(asked, wanted("t", 1))
        assert await grow(asked, "t", 3, version=version) == (0, None)
        assert sorted(asked.services.table.by_name[b"t"].partitions) == [0, 1, 2]
        assert await grow(asked, "t", 4, [[1]], version=version) == (0, None)
        assert len(asked.services.image.topics["t"].partitions) == 4


@pytest.mark.parametrize(
    ("name", "count", "brokers", "code", "message"),
    [
        ("t", 3, None, 37, "Topic already has 3 partition(s)."),
        ("t", 2, None, 37, "The topic t currently has 3 partition(s); 2 would not be an increase."),
        ("t", -1, None, 37, "The topic t currently has 3 partition(s); -1 would not be an increase."),
        (
            "t",
            5,
            [[1]],
            39,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            "t",
            5,
            [],
            39,
            "Attempted to add 2 additional partition(s), but only 0 assignment(s) were specified.",
        ),
        (
            "t",
            5,
            [[7], [1]],
            39,
            "The manual partition assignment includes broker 7, but no such broker is registered.",
        ),
        ("t", 20_000, None, 44, "Excessively large number of partitions per request."),
        ("nope", 3, None, 3, None),
        ("", 3, None, 3, None),
    ],
)
async def test_a_topic_does_not_grow_wrongly(
    name: str, count: int, brokers: list[list[int]] | None, code: int, message: str | None
) -> None:
    async with Machine().broker() as asked:
        await create(asked, wanted("t", 3))
        assert await grow(asked, name, count, brokers) == (code, message)
        assert len(asked.services.image.topics["t"].partitions) == 3


async def test_growth_can_be_validated_alone_and_runs_out_of_time() -> None:
    async with Machine().broker() as asked:
        await create(asked, wanted("t", 1))
        assert await grow(asked, "t", 3, validate_only=True) == (0, None)
        assert await grow(asked, "t", 3, timeout_ms=0) == (ErrorCode.REQUEST_TIMED_OUT, None)
        assert len(asked.services.image.topics["t"].partitions) == 1
