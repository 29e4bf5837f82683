"""A partition of three is retired in a real cluster: its leader and its target's are two brokers, and both die."""

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.commands import penstock
from tests.integration.raw import wait_until
from tests.integration.retiring.keyed import GroupReader, KeyedLoad, ends

from penstock.testing import ClusterProcesses, cluster

HOUR_MS = 3_600_000
TOPIC = "orders"
SETTINGS = {
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "0",
    "penstock.retire.check.interval.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
}


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    with cluster(3, SETTINGS, directory=tmp_path_factory.mktemp("cluster")) as processes:
        yield processes


@pytest.mark.soak
def test_a_partition_of_three_is_retired_stays_readable_and_is_gone(three: ClusterProcesses) -> None:
    admin = AdminClient({"bootstrap.servers": three.bootstrap, "log_level": 0})
    config = {"min.insync.replicas": "2", "penstock.retire.grace.ms": "2000", "file.delete.delay.ms": "0"}
    admin.create_topics([NewTopic(TOPIC, 3, 3, config=config)])[TOPIC].result()

    def leaders() -> dict[int, int]:
        found = admin.list_topics(TOPIC, timeout=60).topics[TOPIC].partitions
        return {number: metadata.leader for number, metadata in found.items()}

    wait_until(lambda: sorted(leaders().values()) == [1, 2, 3], "a leader for each partition")
    with GroupReader(three.bootstrap, TOPIC, "readers") as reader:
        with KeyedLoad(three.bootstrap, TOPIC, idempotent=True, name="old", age_ms=HOUR_MS) as old:
            old.until_more(300, partition=2)
        alter(three, "--partitions", "2")
        frozen = ends(three.bootstrap, TOPIC, 2)
        assert frozen == (0, old.by_partition[2])
        with KeyedLoad(three.bootstrap, TOPIC, idempotent=True, name="new", queued_max=10_000) as new:
            new.until_more(300, partition=2)
            for partition in (2, 0):  # who moves records, then who takes them
                died = three.broker(leaders()[partition])
                died.kill()
                new.until_more(1000, partition=2)
                died.start()
            new.until_more(300, partition=2)
            assert ends(three.bootstrap, TOPIC, 2) == frozen
            reader.check(old, retired={2: 0})
            retirement = three.broker(leaders()[2])
            alter(three, "--config", "retention.ms=60000")
            wait_until(lambda: sorted(leaders()) == [0, 1], "two partitions for everybody")
            new.until_more(300, partition=2)
            wait_until(lambda: reader.assigned == [0, 1], "the group to share out what is left")
            retirement.kill()  # what waits for it finds the next leader: the producer ends when all is acknowledged
        retirement.start()
        reader.check(old, new, retired={2: 0})
    retired = [broker.data_dir / "topics" / TOPIC / "Partition-2" for broker in three.brokers]
    wait_until(
        lambda: not any(path.exists() for path in retired), "the retirement gone with its files, everywhere"
    )


def alter(three: ClusterProcesses, *options: str) -> None:
    done = penstock("topic", "alter", TOPIC, "--retire", *options, bootstrap=three.bootstrap)
    assert done.code == 0, done.err
