"""Requests with long lists that change something: carried out in turns, and their refusals leave nothing behind."""

import asyncio
import gc
from typing import Any

import pytest
from tests.unit.frontends.group_requests import machine, stable

from penstock.core.error_codes import ErrorCode
from penstock.core.errors import ApiError
from penstock.core.limits import TURN_ITEMS_MAX
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated import (
    alter_configs,
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    elect_leaders,
    incremental_alter_configs,
)

MANY = 20 * TURN_ITEMS_MAX
NAMES = [f"there-is-no-{number}" for number in range(MANY)]
TOPIC = 2

REQUESTS: dict[str, tuple[ApiKey, int, Any]] = {
    "AlterConfigs": (
        ApiKey.ALTER_CONFIGS,
        1,
        alter_configs.AlterConfigsRequest(
            resources=[
                alter_configs.AlterConfigsResource(resource_type=TOPIC, resource_name=name) for name in NAMES
            ]
        ),
    ),
    "IncrementalAlterConfigs": (
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[
                incremental_alter_configs.AlterConfigsResource(resource_type=TOPIC, resource_name=name)
                for name in NAMES
            ]
        ),
    ),
    "CreateTopics": (
        ApiKey.CREATE_TOPICS,
        7,
        create_topics.CreateTopicsRequest(
            topics=[create_topics.CreatableTopic(name=f"{name}?", num_partitions=1) for name in NAMES]
        ),
    ),
    "CreatePartitions": (
        ApiKey.CREATE_PARTITIONS,
        2,
        create_partitions.CreatePartitionsRequest(
            topics=[create_partitions.CreatePartitionsTopic(name=name, count=3) for name in NAMES],
            timeout_ms=60_000,
        ),
    ),
    "DeleteTopics": (
        ApiKey.DELETE_TOPICS,
        5,
        delete_topics.DeleteTopicsRequest(topic_names=NAMES, timeout_ms=60_000),
    ),
    "DeleteRecords": (
        ApiKey.DELETE_RECORDS,
        2,
        delete_records.DeleteRecordsRequest(
            topics=[
                delete_records.DeleteRecordsTopic(
                    name="orders",
                    partitions=[
                        delete_records.DeleteRecordsPartition(partition_index=7 + number)
                        for number in range(MANY)
                    ],
                )
            ],
            timeout_ms=60_000,
        ),
    ),
    "DeleteGroups": (ApiKey.DELETE_GROUPS, 2, delete_groups.DeleteGroupsRequest(groups_names=NAMES)),
    "ElectLeaders": (
        ApiKey.ELECT_LEADERS,
        2,
        elect_leaders.ElectLeadersRequest(
            topic_partitions=[elect_leaders.TopicPartitions(topic="orders", partitions=list(range(MANY)))]
        ),
    ),
    "AlterPartitionReassignments": (
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        0,
        alter_partition_reassignments.AlterPartitionReassignmentsRequest(
            topics=[
                alter_partition_reassignments.ReassignableTopic(
                    name="orders",
                    partitions=[
                        alter_partition_reassignments.ReassignablePartition(partition_index=number)
                        for number in range(MANY)
                    ],
                )
            ]
        ),
    ),
}


def refusals() -> int:
    return sum(isinstance(each, ApiError) for each in gc.get_objects())


@pytest.mark.parametrize("name", REQUESTS)
async def test_others_have_their_turn_and_what_is_refused_is_freed(name: str, no_collection: None) -> None:
    key, version, request = REQUESTS[name]
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with machine().broker() as asked:
        await stable(asked)
        before = refusals()
        meanwhile = asyncio.create_task(others())
        answer = await asked.ask(key, request, version)
        meanwhile.cancel()
        assert turns > MANY // TURN_ITEMS_MAX // 2
        del answer
        await asyncio.sleep(0)
        assert refusals() - before < TURN_ITEMS_MAX, "they refer to themselves: only a collection frees them"


async def test_what_was_moved_before_the_controller_went_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    key, version, request = REQUESTS["AlterPartitionReassignments"]
    async with machine().broker() as asked:
        await asked.create("orders", {}, partitions=2)
        rewrite, rounds = asked.services.controller.rewrite, []

        async def until_replaced(change: Any) -> None:
            rounds.append(change)
            if len(rounds) > 1:
                raise ApiError(ErrorCode.NOT_CONTROLLER)
            await rewrite(change)

        monkeypatch.setattr(asked.services.controller, "rewrite", until_replaced)
        answer = await asked.ask(key, request, version)
    assert answer.error_code == 0
    codes = [partition.error_code for partition in answer.responses[0].partitions]
    assert len(codes) == MANY
    assert ErrorCode.NOT_CONTROLLER not in codes[:TURN_ITEMS_MAX]
    assert set(codes[TURN_ITEMS_MAX:]) == {ErrorCode.NOT_CONTROLLER}
