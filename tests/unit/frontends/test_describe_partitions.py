"""OffsetForLeaderEpoch, DescribeProducers and DescribeLogDirs as Apache Kafka 4.3 answers them."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.unit.frontends.in_memory import Asked, Machine
from tests.unit.storage.logs import a_batch

from penstock.core.error_codes import ErrorCode
from penstock.replication.retirement import retire
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from penstock.wire.kafka.generated.describe_producers import DescribeProducersRequest, TopicRequest
from penstock.wire.kafka.generated.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# -- epochs ------------------------------------------------------------------------------------------------------


async def epoch_end(
    asked: Asked,
    epoch: int,
    current: int = -1,
    *,
    index: int = 0,
    topic: str = "t",
    version: int = 4,
    replica: int = -1,
    broker: int = -1,
) -> tuple[int, int, int]:
    partition = OffsetForLeaderPartition(partition=index, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(
        replica_id=replica, topics=[OffsetForLeaderTopic(topic=topic, partitions=[partition])]
    )
    answer = (
        (await asked.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, request, version, broker=broker))
        .topics[0]
        .partitions[0]
    )
    assert answer.partition == index
    return answer.error_code, answer.leader_epoch, answer.end_offset


@pytest.mark.parametrize("version", range(2, 5))
async def test_where_epochs_end(version: int) -> None:
    machine = Machine()
    async with machine.broker() as asked:
        await asked.create("t")
        assert await epoch_end(asked, 0, version=version) == (0, 0, 0)
        asked.append("t", a_batch([1, 2, 3]))
        asked.partition("t").log.sync_job().run()
    async with machine.broker() as asked:  # killed: the next leader epoch
        assert await epoch_end(asked, 1, version=version) == (0, 1, 3)
        asked.append("t", a_batch([4]))
        assert await epoch_end(asked, 0, version=version) == (0, 0, 3)
        assert await epoch_end(asked, 1, 1, version=version) == (0, 1, 4)
        assert await epoch_end(asked, 2, version=version) == (0, -1, -1)
        assert await epoch_end(asked, -1, version=version) == (0, -1, -1)
        assert await epoch_end(asked, -2, version=version) == (0, -2, 0)


async def test_a_follower_hears_of_epochs_behind_what_readers_see_of_a_retired_partition() -> None:
    """It notes where they began, and would cut others that are in sync."""
    machine = Machine()
    async with machine.broker() as asked:
        await asked.create("t")
        asked.append("t", a_batch([1, 2, 3]))
        asked.partition("t").log.sync_job().run()
    async with machine.broker() as asked:
        asked.append("t", a_batch([4]))
        retire(asked.partition("t"), 2, None, 0)
        assert await epoch_end(asked, 0) == (0, 0, 2)
        assert await epoch_end(asked, 0, replica=2, broker=2) == (0, 0, 3)
        assert await epoch_end(asked, 0, replica=2) == (0, 0, 2)  # who only says so is a reader
        assert await epoch_end(asked, 0, replica=3, broker=2) == (0, 0, 2)


async def test_epochs_of_a_log_that_was_emptied_before_it_was_written() -> None:
    machine = Machine()
    async with machine.broker() as asked:
        await asked.create("t")
    async with machine.broker() as asked:
        assert asked.partition("t").leader_epoch == 1
        assert await epoch_end(asked, 0) == (0, 0, 0)


async def test_epoch_requests_that_are_refused() -> None:
    async with Machine().broker() as asked:
        await asked.create("t")
        assert await epoch_end(asked, 0, 5) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
        assert await epoch_end(asked, 0, -5) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
        assert await epoch_end(asked, 0, index=9) == (UNKNOWN, -1, -1)
        assert await epoch_end(asked, 0, topic="nope") == (UNKNOWN, -1, -1)


# -- producers ---------------------------------------------------------------------------------------------------


async def producers(asked: Asked, topic: str, *indexes: int) -> list[Any]:
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=list(indexes))])
    (answer,) = (await asked.ask(ApiKey.DESCRIBE_PRODUCERS, request, 0)).topics
    return list(answer.partitions)


async def test_producers_a_partition_remembers() -> None:
    async with Machine().broker() as asked:
        await asked.create("t", partitions=2)
        asked.append("t", a_batch([5, 9, 7], producer=(77, 2, 0)))
        asked.append("t", a_batch([11], producer=(77, 2, 3)))
        asked.append("t", a_batch([3]))
        first, second = await producers(asked, "t", 0, 1)
        (state,) = first.active_producers
        assert (state.producer_id, state.producer_epoch, state.last_sequence) == (77, 2, 3)
        assert (state.last_timestamp, state.coordinator_epoch, state.current_txn_start_offset) == (11, -1, -1)
        assert (second.error_code, second.error_message, second.active_producers) == (0, None, [])


@pytest.mark.parametrize(
    ("topic", "index", "code", "message"),
    [
        ("t", 9, UNKNOWN, None),
        ("t", -1, UNKNOWN, None),
        ("nope", 0, UNKNOWN, "This server does not host this topic-partition."),
        ("", 0, ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: the empty string is not allowed"),
    ],
)
async def test_producers_of_what_is_not_here(topic: str, index: int, code: int, message: str | None) -> None:
    async with Machine().broker() as asked:
        await asked.create("t")
        (answer,) = await producers(asked, topic, index)
        assert (answer.error_code, answer.error_message, answer.active_producers) == (code, message, [])


# -- log dirs ----------------------------------------------------------------------------------------------------


async def log_dir(
    asked: Asked, wanted: Sequence[tuple[str, list[int]]] | None, version: int = 5
) -> tuple[Any, dict[str, dict[int, int]]]:
    topics = None if wanted is None else [DescribableLogDirTopic(topic=t, partitions=p) for t, p in wanted]
    response = await asked.ask(ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics=topics), version)
    assert response.error_code == 0
    (result,) = response.results
    sizes = {t.name: {p.partition_index: p.partition_size for p in t.partitions} for t in result.topics}
    return result, sizes


@pytest.mark.parametrize("version", range(1, 6))
async def test_bytes_per_partition(version: int) -> None:
    async with Machine().broker() as asked:
        await asked.create("t", partitions=2)
        batch = a_batch([1, 2])
        asked.append("t", batch, 1)
        result, sizes = await log_dir(asked, None, version)
        assert (result.error_code, result.log_dir) == (0, "/data")
        assert sizes == {"t": {0: 0, 1: len(batch)}}
        if version >= 4:
            assert result.total_bytes >= result.usable_bytes > 0
        else:
            assert (result.total_bytes, result.usable_bytes) == (-1, -1)
        assert not result.is_cordoned
        _, some = await log_dir(asked, [("t", [1, 9, 1]), ("nope", [0])], version)
        assert some == {"t": {1: len(batch)}}
        assert (await log_dir(asked, [("t", [])], version))[1] == {}
        assert (await log_dir(asked, [], version))[1] == {}


async def test_a_directory_out_of_service_says_so() -> None:
    async with Machine().broker() as asked:
        await asked.create("t")
        asked.partition("t").log.sync_failed()
        result, sizes = await log_dir(asked, None)
        assert (result.error_code, sizes) == (ErrorCode.KAFKA_STORAGE_ERROR, {})
