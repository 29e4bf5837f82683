"""AlterPartitionReassignments, ListPartitionReassignments, ElectLeaders and UnregisterBroker, at every version."""

import pytest
from tests.unit.frontends.in_memory import Asked, Machine
from tests.unit.frontends.test_large_answers import turns_during

from penstock.core.error_codes import ErrorCode
from penstock.core.limits import TURN_ITEMS_MAX
from penstock.services import reassignments
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.wire.kafka.generated.elect_leaders import ElectLeadersRequest, TopicPartitions
from penstock.wire.kafka.generated.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from penstock.wire.kafka.generated.unregister_broker import UnregisterBrokerRequest


async def alter(
    asked: Asked,
    replicas: list[int] | None,
    version: int,
    *,
    topic: str = "t",
    index: int = 0,
    may_change: bool = True,
) -> tuple[int, str | None]:
    partition = ReassignablePartition(partition_index=index, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=topic, partitions=[partition])],
        allow_replication_factor_change=may_change,
    )
    answer = await asked.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request, version)
    assert (answer.error_code, answer.error_message) == (0, None)
    assert answer.responses[0].name == topic
    result = answer.responses[0].partitions[0]
    assert result.partition_index == index
    return result.error_code, result.error_message


@pytest.mark.parametrize("version", [0, 1])
async def test_moves_are_checked_and_refused_in_kafkas_words(version: int) -> None:
    async with Machine().broker() as asked:
        await asked.create("t")
        own = asked.broker.services.node.id
        assert await alter(asked, [own], version) == (ErrorCode.NONE, None)
        assert await alter(asked, None, version) == (
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
            None,
        )
        assert await alter(asked, [own], version, topic="x") == (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "Unable to find a topic named x.",
        )
        assert await alter(asked, [own], version, index=7) == (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "Unable to find partition t:7.",
        )
        assert await alter(asked, [99], version) == (
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 99, but no such broker is registered.",
        )
        assert await alter(asked, [], version) == (
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        )


async def test_nothing_moves_on_one_node() -> None:
    async with Machine().broker() as asked:
        await asked.create("t")
        named = ListPartitionReassignmentsTopics(name="t", partition_indexes=[0, 5])
        for topics in (None, [], [named]):
            request = ListPartitionReassignmentsRequest(topics=topics)
            answer = await asked.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, request, 0)
            assert (answer.error_code, answer.error_message, answer.topics) == (0, None, [])


async def test_moves_are_looked_for_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reassignments, "is_moving", lambda state: True)
    number = 10 * TURN_ITEMS_MAX
    async with Machine().broker() as asked:
        await asked.create("t", partitions=number)
        request = ListPartitionReassignmentsRequest(topics=None)
        answer, turns = await turns_during(asked.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, request, 0))
        assert [len(topic.partitions) for topic in answer.topics] == [number]
        assert turns >= 2 * number / TURN_ITEMS_MAX - 2


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_elections_that_are_not_needed(version: int) -> None:
    async with Machine().broker() as asked:
        await asked.create("t")
        named = [TopicPartitions(topic="t", partitions=[0, 9]), TopicPartitions(topic="x", partitions=[1])]
        for kind in (0, 1) if version else (0,):
            request = ElectLeadersRequest(election_type=kind, topic_partitions=named)
            answer = await asked.ask(ApiKey.ELECT_LEADERS, request, version)
            found = {
                (topic.topic, partition.partition_id): (partition.error_code, partition.error_message)
                for topic in answer.replica_election_results
                for partition in topic.partition_result
            }
            assert found == {
                ("t", 0): (
                    ErrorCode.ELECTION_NOT_NEEDED,
                    "Leader election not needed for topic partition.",
                ),
                ("t", 9): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such partition as t-9"),
                ("x", 1): (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such topic as x"),
            }
            request = ElectLeadersRequest(election_type=kind, topic_partitions=None)
            answer = await asked.ask(ApiKey.ELECT_LEADERS, request, version)
            results = [(result.topic, result.partition_result) for result in answer.replica_election_results]
            assert (answer.error_code, results) == (0, [("t", [])])


async def test_who_names_a_partition_twice_is_answered_twice() -> None:
    async with Machine().broker() as asked:
        await asked.create("t")
        own = asked.broker.services.node.id
        moves = [
            ReassignablePartition(partition_index=0, replicas=replicas) for replicas in ([own], [99], None)
        ]
        topic = ReassignableTopic(name="t", partitions=moves)
        answer = await asked.ask(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS, AlterPartitionReassignmentsRequest(topics=[topic]), 1
        )
        assert [partition.error_code for partition in answer.responses[0].partitions] == [
            ErrorCode.NONE,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ]
        named = [TopicPartitions(topic="t", partitions=[0, 0]), TopicPartitions(topic="t", partitions=[0])]
        answer = await asked.ask(
            ApiKey.ELECT_LEADERS, ElectLeadersRequest(election_type=0, topic_partitions=named), 2
        )
        assert [len(result.partition_result) for result in answer.replica_election_results] == [2, 1]


async def test_an_unknown_kind_of_election_is_refused_for_each_partition() -> None:
    async with Machine().broker() as asked:
        named = [TopicPartitions(topic="t", partitions=[0])]
        answer = await asked.ask(
            ApiKey.ELECT_LEADERS, ElectLeadersRequest(election_type=7, topic_partitions=named), 2
        )
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        (partition,) = answer.replica_election_results[0].partition_result
        assert partition.error_code == ErrorCode.INVALID_REQUEST


async def test_a_broker_that_runs_or_never_was_is_not_unregistered() -> None:
    async with Machine().broker() as asked:
        own = asked.broker.services.node.id
        for broker, code in ((own, ErrorCode.INVALID_REQUEST), (99, ErrorCode.BROKER_ID_NOT_REGISTERED)):
            request = UnregisterBrokerRequest(broker_id=broker)
            answer = await asked.ask(ApiKey.UNREGISTER_BROKER, request, 0)
            assert answer.error_code == code
            assert answer.error_message
