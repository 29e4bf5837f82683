"""DescribeQuorum: the controller stands for the quorum that Kafka's tools ask for."""

import pytest
from tests.unit.frontends.in_memory import NOW_MS, Asked, Machine

from penstock.core.error_codes import ErrorCode
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
)

METADATA = "__cluster_metadata"


async def asked_for(asked: Asked, version: int, *topics: tuple[str, list[int]]) -> DescribeQuorumResponse:
    request = DescribeQuorumRequest(
        topics=[
            RequestTopicData(
                topic_name=name,
                partitions=[RequestPartitionData(partition_index=partition) for partition in partitions],
            )
            for name, partitions in topics
        ]
    )
    answer = await asked.ask(ApiKey.DESCRIBE_QUORUM, request, version)
    assert isinstance(answer, DescribeQuorumResponse)
    return answer


async def until_elected(asked: Asked) -> None:
    asked.services.controller.wake()
    await asked.services.controller.step()
    assert asked.services.controller.is_active


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_the_controller_is_the_one_voter_and_leads(version: int) -> None:
    async with Machine().broker() as asked:
        await until_elected(asked)
        answer = await asked_for(asked, version, (METADATA, [0]))
        assert answer.error_code == ErrorCode.NONE
        [partition] = answer.topics[0].partitions
        assert (partition.error_code, partition.leader_id) == (ErrorCode.NONE, 1)
        assert partition.leader_epoch == asked.services.controller.epoch
        [voter] = partition.current_voters
        assert (voter.replica_id, voter.log_end_offset) == (1, partition.high_watermark)
        assert voter.last_caught_up_timestamp == (NOW_MS if version else -1)
        reached = [(node.node_id, [(at.host, at.port) for at in node.listeners]) for node in answer.nodes]
        assert reached == ([(1, [("127.0.0.1", asked.broker.port)])] if version == 2 else [])


async def test_the_offset_rises_with_each_change_and_the_epoch_with_each_controller() -> None:
    machine = Machine()
    told = []
    for _ in range(2):
        async with machine.broker() as asked:
            await until_elected(asked)
            for name in ("first", "second"):
                answer = await asked_for(asked, 2, (METADATA, [0]))
                [partition] = answer.topics[0].partitions
                told.append((partition.leader_epoch, partition.high_watermark))
                await asked.create(f"{name}-{len(told)}")
    epochs, offsets = zip(*told, strict=True)
    assert list(offsets) == sorted(set(offsets))
    assert epochs[0] == epochs[1] < epochs[2] == epochs[3]


@pytest.mark.parametrize(
    "topics",
    [
        [("orders", [0])],
        [(METADATA, [1])],
        [(METADATA, [0, 1])],
        [(METADATA, [0]), ("orders", [0])],
    ],
)
async def test_anything_else_is_not_hosted(topics: list[tuple[str, list[int]]]) -> None:
    async with Machine().broker() as asked:
        await until_elected(asked)
        await asked.create("orders")
        answer = await asked_for(asked, 2, *topics)
        assert answer.error_code == ErrorCode.NONE
        assert [
            (topic.topic_name, [partition.partition_index for partition in topic.partitions])
            for topic in answer.topics
        ] == topics
        refusals = {partition.error_code for topic in answer.topics for partition in topic.partitions}
        assert refusals == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert not answer.nodes


async def test_one_that_was_replaced_meanwhile_does_not_answer_for_the_new_one() -> None:
    async with Machine().broker() as asked:
        await until_elected(asked)
        asked.services.controller.resign()
        answer = await asked_for(asked, 2, (METADATA, [0]))
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
