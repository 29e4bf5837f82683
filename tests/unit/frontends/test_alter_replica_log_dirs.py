"""AlterReplicaLogDirs: with one directory there is nothing to move, and Kafka's answers say so."""

import pytest
from tests.unit.frontends.in_memory import Asked, Machine

from penstock.coordination.metadata import NewTopic
from penstock.coordination.nodes import PartitionState
from penstock.core.error_codes import ErrorCode
from penstock.services.maintenance.disk_usage import DiskUsage
from penstock.wire.kafka.api_keys import ApiKey
from penstock.wire.kafka.generated.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)

Wanted = tuple[str, dict[str, list[int]]]


async def altered(asked: Asked, version: int, *wanted: Wanted) -> dict[tuple[str, int], int]:
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=path,
                topics=[AlterReplicaLogDirTopic(name=name, partitions=each) for name, each in topics.items()],
            )
            for path, topics in wanted
        ]
    )
    answer = await asked.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, request, version)
    told = [
        ((topic.topic_name, partition.partition_index), partition.error_code)
        for topic in answer.results
        for partition in topic.partitions
    ]
    assert len(dict(told)) == len(told)
    return dict(told)


@pytest.mark.parametrize("version", [1, 2])
async def test_a_replica_that_is_here_is_where_it_should_be(version: int) -> None:
    async with Machine().broker() as asked:
        await asked.create("orders", partitions=2)
        here = asked.services.disk_usage.path
        assert await altered(asked, version, (here, {"orders": [0, 1]})) == {
            ("orders", 0): ErrorCode.NONE,
            ("orders", 1): ErrorCode.NONE,
        }
        assert await altered(asked, version) == {}
        assert await altered(asked, version, (here, {"orders": []})) == {}


@pytest.mark.parametrize("path", ["/nowhere", "data", "", "/data/", "/data/."])
async def test_there_is_no_other_directory(path: str) -> None:
    async with Machine().broker() as asked:
        await asked.create("orders")
        assert await altered(asked, 2, (path, {"orders": [0], "unknown": [3]})) == {
            ("orders", 0): ErrorCode.LOG_DIR_NOT_FOUND,
            ("unknown", 3): ErrorCode.LOG_DIR_NOT_FOUND,
        }


async def test_what_is_not_here_is_told_apart_from_what_is_nowhere() -> None:
    async with Machine().broker() as asked:
        elsewhere = PartitionState(replicas=(2,), isr=(2,), leader=2)
        await asked.broker.metadata.create_topics([NewTopic("elsewhere", [elsewhere], {})])
        await asked.create("orders")
        wanted = {"orders": [0, 1, -1], "elsewhere": [0, 1], "unknown": [0], "a/b": [0]}
        assert await altered(asked, 2, (asked.services.disk_usage.path, wanted)) == {
            ("orders", 0): ErrorCode.NONE,
            ("orders", 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("orders", -1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("elsewhere", 0): ErrorCode.REPLICA_NOT_AVAILABLE,
            ("elsewhere", 1): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("unknown", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("a/b", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }


async def test_the_last_word_on_a_partition_counts() -> None:
    async with Machine().broker() as asked:
        await asked.create("orders", partitions=2)
        here = asked.services.disk_usage.path
        first = await altered(asked, 2, (here, {"orders": [0]}), ("/nowhere", {"orders": [0, 1]}))
        assert set(first.values()) == {ErrorCode.LOG_DIR_NOT_FOUND}
        then = await altered(asked, 2, ("/nowhere", {"orders": [0, 1]}), (here, {"orders": [0]}))
        assert then == {("orders", 0): ErrorCode.NONE, ("orders", 1): ErrorCode.LOG_DIR_NOT_FOUND}


async def test_a_directory_out_of_service_takes_nothing() -> None:
    async with Machine().broker() as asked:
        await asked.create("orders")
        asked.partition("orders").log.failed = True
        here = asked.services.disk_usage.path
        assert await altered(asked, 2, (here, {"orders": [0]})) == {
            ("orders", 0): ErrorCode.KAFKA_STORAGE_ERROR
        }


async def test_whether_the_directory_failed_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each replica that was named it looked at every partition of the broker: seconds for a request of 64 KB."""
    looked = []
    monkeypatch.setattr(DiskUsage, "is_offline", property(lambda _: bool(looked.append(1))))
    async with Machine().broker() as asked:
        await asked.create("orders")
        here = asked.services.disk_usage.path
        told = await altered(asked, 2, (here, {"orders": list(range(100))}))
        assert (len(told), len(looked)) == (100, 1)
