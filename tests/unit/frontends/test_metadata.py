"""Metadata, DescribeTopicPartitions and DescribeCluster as Apache Kafka 4.3 answers them."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.frontends.in_memory import Asked, Machine
from tests.unit.partition_states import write_states

from penstock.coordination.nodes import PartitionState, RetirementState
from penstock.coordination.registration import BrokerRegistration
from penstock.core.error_codes import ErrorCode
from penstock.core.session import Session
from penstock.frontends.kafka.registry import REGISTRY, Call
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.describe_cluster import DescribeClusterRequest
from penstock.wire.kafka.generated.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from penstock.wire.kafka.generated.metadata import MetadataRequest, MetadataRequestTopic, decode_response

NO_ID = bytes(16)
OTHER_ID = b"\x07" * 16
NOT_ASKED = -(2**31)
UNKNOWN, ILLEGAL = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION


async def metadata(
    asked: Asked, *topics: str | bytes | None, version: int = 12, create: bool = False, **fields: bool
) -> Any:
    """Topics by name, or by id."""
    wanted = [
        MetadataRequestTopic(name=None, topic_id=topic)
        if isinstance(topic, bytes)
        else MetadataRequestTopic(name=topic)
        for topic in topics
    ]
    if version >= 4:
        fields["allow_auto_topic_creation"] = create
    return await asked.ask(ApiKey.METADATA, MetadataRequest(topics=wanted, **fields), version)


async def all_topics(asked: Asked, version: int = 12) -> list[str]:
    request = MetadataRequest(topics=[] if version == 0 else None)
    return [topic.name for topic in (await asked.ask(ApiKey.METADATA, request, version)).topics]


@pytest.mark.parametrize("version", range(14))
async def test_a_topic_is_described_in_every_version(version: int) -> None:
    async with Machine().broker() as asked:
        await asked.create("t", partitions=2)
        image = asked.services.image
        for _ in range(2):  # the second answer is put together from what the first left ready
            answer = await metadata(asked, "t", version=version)
            (broker,) = answer.brokers
            assert (broker.node_id, broker.host, broker.port, broker.rack) == (
                1,
                "127.0.0.1",
                asked.broker.port,
                None,
            )
            assert answer.cluster_id == (image.cluster_id if version >= 2 else None)
            assert answer.controller_id == (1 if version >= 1 else -1)
            assert (answer.error_code, answer.throttle_time_ms) == (0, 0)
            (topic,) = answer.topics
            assert (topic.name, topic.error_code, topic.is_internal) == ("t", 0, False)
            assert topic.topic_id == (image.topics["t"].id if version >= 10 else NO_ID)
            assert topic.topic_authorized_operations == NOT_ASKED
            assert [partition.partition_index for partition in topic.partitions] == [0, 1]
            for partition in topic.partitions:
                assert (
                    partition.error_code,
                    partition.leader_id,
                    partition.replica_nodes,
                    partition.isr_nodes,
                ) == (0, 1, [1], [1])
                assert partition.leader_epoch == (0 if version >= 7 else -1)
                assert partition.offline_replicas == []


@pytest.mark.parametrize("version", range(14))
async def test_all_topics_or_none(version: int) -> None:
    async with Machine().broker() as asked:
        await asked.create("a")
        await asked.create("b")
        assert sorted(await all_topics(asked, version)) == ["a", "b"]
        if version > 0:
            assert (await metadata(asked, version=version)).topics == []


async def test_what_is_unknown_or_illegal_says_so() -> None:
    async with Machine().broker() as asked:
        names = ["nope", "a/b", "", "__transaction_state", "__cluster_metadata", "nope"]
        answer = await metadata(asked, *names)
        assert [(topic.name, topic.error_code, topic.is_internal) for topic in answer.topics] == [
            ("nope", UNKNOWN, False),
            ("a/b", ILLEGAL, False),
            ("", ILLEGAL, False),
            ("__transaction_state", UNKNOWN, True),
            ("__cluster_metadata", UNKNOWN, False),
        ]
        assert all(topic.partitions == [] and topic.topic_id == NO_ID for topic in answer.topics)
        assert asked.services.image.topics == {}


@pytest.mark.parametrize("version", [0, 3, 4, 9, 13])
async def test_a_topic_asked_for_is_created_and_in_the_same_answer(version: int) -> None:
    async with Machine({"num.partitions": "2"}).broker() as asked:
        (topic,) = (await metadata(asked, "new", version=version, create=True)).topics
        assert (topic.error_code, len(topic.partitions)) == (0, 2)
        assert sorted(asked.services.table.by_name[b"new"].partitions) == [0, 1]


async def test_a_topic_is_not_created_where_that_is_switched_off_or_cannot_be() -> None:
    async with Machine({"auto.create.topics.enable": "false"}).broker() as asked:
        (topic,) = (await metadata(asked, "new", create=True)).topics
        assert topic.error_code == UNKNOWN
    async with Machine().broker() as asked:
        await asked.create("a.b")
        answer = await metadata(asked, "a_b", "a/b", "__consumer_offsets", create=True)
        assert [topic.error_code for topic in answer.topics] == [UNKNOWN, ILLEGAL, UNKNOWN]
        assert set(asked.services.image.topics) == {"a.b"}


async def test_many_that_ask_for_a_new_topic_at_once_all_get_the_same() -> None:
    async with Machine().broker() as asked:
        answers = await asyncio.gather(*(metadata(asked, "new", create=True) for _ in range(10)))
        assert {answer.topics[0].error_code for answer in answers} == {0}
        assert len({answer.topics[0].topic_id for answer in answers}) == 1


async def test_topics_by_id() -> None:
    async with Machine().broker() as asked:
        await asked.create("t")
        known = asked.services.image.topics["t"].id
        answer = await metadata(asked, known, OTHER_ID, "beside ids names do not count", known)
        assert [(topic.name, topic.topic_id, topic.error_code) for topic in answer.topics] == [
            ("t", known, 0),
            (None, OTHER_ID, ErrorCode.UNKNOWN_TOPIC_ID),
        ]


@pytest.mark.parametrize(
    ("version", "topics", "code"),
    [
        (10, (OTHER_ID,), 42),
        (11, (None,), 42),
        (11, ("t", None), 42),
        (12, (None,), -1),
        (13, ("t", None), -1),
    ],
)
async def test_a_request_without_usable_names_or_ids_fails_as_a_whole(
    version: int, topics: tuple[str | bytes | None, ...], code: int
) -> None:
    async with Machine().broker() as asked:
        await asked.create("t")
        answer = await metadata(asked, *topics, version=version)
        assert (answer.brokers, answer.cluster_id, answer.controller_id) == ([], None, -1)
        assert {topic.error_code for topic in answer.topics} == {code}
        assert answer.error_code == (code if version >= 13 else 0)
        assert len(answer.topics) == len(topics)


async def test_authorized_operations_are_told_when_asked_for() -> None:
    async with Machine().broker() as asked:
        await asked.create("t")
        ask = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
        answer = await metadata(asked, "t", "nope", version=8, **ask)
        assert answer.cluster_authorized_operations == 8096
        assert [topic.topic_authorized_operations for topic in answer.topics] == [3576, 3576]
        (topic,) = (await metadata(asked, "t", version=8)).topics
        assert topic.topic_authorized_operations == NOT_ASKED


async def test_the_next_answer_shows_every_change() -> None:
    async with Machine().broker() as asked:
        store = asked.broker.metadata
        await asked.create("t")
        assert len((await metadata(asked, "t")).topics[0].partitions) == 1
        await store.create_partitions("t", [PartitionState((1, 2), (1, 2), 2)])
        (_, second) = (await metadata(asked, "t")).topics[0].partitions
        assert (second.error_code, second.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        assert second.offline_replicas == [2]
        await store.register_broker(BrokerRegistration(2, "other", "there", 9093, "r2"))
        answer = await metadata(asked, "t")
        assert [(broker.node_id, broker.host, broker.port, broker.rack) for broker in answer.brokers][1:] == [
            (2, "there", 9093, "r2")
        ]
        (_, second) = answer.topics[0].partitions
        assert (second.error_code, second.leader_id, second.offline_replicas) == (0, 2, [])
        state = store.image.topics["t"].partitions[1]
        await write_states(store, {("t", 1): state.with_leader(2)})
        assert (await metadata(asked, "t")).topics[0].partitions[1].leader_epoch == 1
        await store.delete_topic("t")
        assert (await metadata(asked, "t")).topics[0].error_code == UNKNOWN
        assert await all_topics(asked) == []


# -- DescribeTopicPartitions -----------------------------------------------------------------------------------


async def page(
    asked: Asked, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> tuple[list[tuple[str, int, list[int]]], tuple[str, int] | None]:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    answer = await asked.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, request, 0)
    following = answer.next_cursor
    return (
        [
            (topic.name, topic.error_code, [p.partition_index for p in topic.partitions])
            for topic in answer.topics
        ],
        None if following is None else (following.topic_name, following.partition_index),
    )


async def test_pages_cover_everything_once_and_in_order() -> None:
    async with Machine().broker() as asked:
        for name, partitions in (("b", 3), ("a", 2), ("c", 1)):
            await asked.create(name, partitions=partitions)
        seen, cursor, pages = [], None, 0
        while pages == 0 or cursor is not None:
            topics, cursor = await page(asked, limit=2, cursor=cursor)
            seen += [(name, index) for name, _, indexes in topics for index in indexes]
            pages += 1
        assert seen == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]
        assert pages == 3


async def test_names_are_put_in_order_once_for_all_who_ask() -> None:
    async with Machine().broker() as asked:
        image = asked.services.image
        await asked.create("b")
        assert (await page(asked))[0] == [("b", 0, [0])]
        names = image.topic_names()
        assert image.topic_names() is names
        await asked.create("a")
        assert [name for name, *_ in (await page(asked))[0]] == ["a", "b"]


async def test_pages_of_named_topics() -> None:
    async with Machine({"max.request.partition.size.limit": "3"}).broker() as asked:
        await asked.create("t", partitions=4)
        assert await page(asked, "t", "t") == ([("t", 0, [0, 1, 2])], ("t", 3))
        assert await page(asked, "t", limit=0) == ([("t", 0, [0])], ("t", 1))
        assert await page(asked, "t", limit=1, cursor=("t", 3)) == ([("t", 0, [3])], None)
        assert await page(asked, "t", cursor=("t", 9)) == ([("t", 0, [])], None)
        topics = [("a/b", ILLEGAL, []), ("nope", UNKNOWN, []), ("t", 0, [0])]
        assert await page(asked, "t", "nope", "a/b", limit=1) == (topics, ("t", 1))
        assert await page(asked, "t", cursor=("t", -1)) == ([("t", 42, [])], None)
        assert await page(asked, "t", cursor=("zzz", 0)) == ([("t", 42, [])], None)
        assert await page(asked, "t", "") == ([("t", -1, []), ("", -1, [])], None)


async def test_a_described_partition_has_all_its_fields() -> None:
    async with Machine().broker() as asked:
        await asked.create("__consumer_offsets")
        request = DescribeTopicPartitionsRequest(topics=[])
        (topic,) = (await asked.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, request, 0)).topics
        assert (topic.is_internal, topic.topic_authorized_operations) == (True, 3576)
        assert topic.topic_id == asked.services.image.topics["__consumer_offsets"].id
        (partition,) = topic.partitions
        assert (partition.leader_id, partition.leader_epoch) == (1, 0)
        assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ([1], [1], [])
        assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([], [])


# -- DescribeCluster -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(("asks", "operations"), [(True, 8096), (False, NOT_ASKED)])
async def test_the_cluster_is_described(version: int, asks: bool, operations: int) -> None:
    async with Machine().broker() as asked:
        request = DescribeClusterRequest(include_cluster_authorized_operations=asks)
        answer = await asked.ask(ApiKey.DESCRIBE_CLUSTER, request, version)
        assert (answer.error_code, answer.error_message, answer.endpoint_type) == (0, None, 1)
        assert (answer.cluster_id, answer.controller_id) == (asked.services.image.cluster_id, 1)
        assert [(broker.broker_id, broker.port) for broker in answer.brokers] == [(1, asked.broker.port)]
        assert answer.cluster_authorized_operations == operations


@pytest.mark.parametrize(("endpoint", "code"), [(2, 114), (0, 115), (-3, 115)])
async def test_other_endpoints_are_refused(endpoint: int, code: int) -> None:
    async with Machine().broker() as asked:
        request = DescribeClusterRequest(endpoint_type=endpoint)
        answer = await asked.ask(ApiKey.DESCRIBE_CLUSTER, request, 1)
        assert (answer.error_code, answer.brokers, answer.cluster_id) == (code, [], "")
        assert answer.error_message


async def test_a_hidden_partition_is_shown_only_to_who_has_produced_over_the_connection() -> None:
    async with Machine().broker() as asked:
        await asked.create("t", partitions=3)
        states = asked.services.image.topics["t"].partitions
        gone = RetirementState(offset=0, into=0, written_ms=0, epoch=states[2].leader_epoch, hidden=True)
        hidden = replace(states[2], retirement=gone)
        await write_states(asked.broker.metadata, {("t", 2): hidden})
        request = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False)
        shown = []
        for produces in (False, True, False):
            call = Call(12, "tester", Session("PLAINTEXT"))
            call.session.produces = produces
            answer = REGISTRY[ApiKey.METADATA].handler(asked.services, request, call)  # type: ignore[misc]
            shown.append(len(decode_response(answer, 0, 12)[0].topics[0].partitions))
        assert shown == [2, 3, 2]
