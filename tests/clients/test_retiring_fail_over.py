"""Leaders of a retired partition die under the producers of other clients, which are never restarted (R7, ADR 11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients.test_retiring_clients import PROGRAMS, SETTINGS, load_of
from tests.integration.commands import penstock
from tests.integration.raw import wait_until
from tests.integration.retiring.keyed import GroupReader, ends

from penstock.client.admin.admin import Admin
from penstock.testing import ClusterProcesses, cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.clients
QUEUED = 20_000


@pytest.fixture
def three(tmp_path: Path) -> Iterator[ClusterProcesses]:
    with cluster(3, SETTINGS, directory=tmp_path) as processes:
        yield processes


@pytest.mark.parametrize("client", ["librdkafka", *PROGRAMS])
def test_who_writes_to_a_retired_partition_finds_its_next_leader(
    client: str, three: ClusterProcesses
) -> None:
    bootstrap, topic = three.bootstrap, f"orders-of-{client}"
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    config = {"min.insync.replicas": "2"}
    admin.create_topics([NewTopic(topic, 3, 3, config=config)])[topic].result()

    def leaders() -> dict[int, int]:
        found = admin.list_topics(topic, timeout=60).topics[topic].partitions
        return {number: metadata.leader for number, metadata in found.items()}

    wait_until(lambda: sorted(leaders().values()) == [1, 2, 3], "a leader for each partition")
    with (
        GroupReader(bootstrap, topic, f"readers-of-{topic}") as reader,
        load_of(client, bootstrap, topic, idempotent=True, queued=QUEUED) as load,
    ):
        load.until_more(500, partition=2)
        done = penstock("topic", "alter", topic, "--retire", "--partitions", "2", bootstrap=bootstrap)
        assert done.code == 0, done.err
        died = three.broker(leaders()[2])
        died.kill()  # everybody still sees the partition
        load.until_more(1000, partition=2)
        died.start()
        told = len(load.acknowledged)
        wait_until(lambda: reader.count >= told, f"{told} values read")
        assert reader.reordered({2: 0}) == set()
        leader = leaders()[2]
        Admin(bootstrap).delete_records(topic, {2: ends(bootstrap, topic, 2)[1]})
        wait_until(lambda: sorted(leaders()) == [0, 1], "two partitions for everybody")
        load.until_more(500, partition=2)
        died = three.broker(leader)
        died.kill()  # now only who writes to it does
        load.until_more(1000, partition=2)
        died.start()
        load.__exit__()
        reader.check(load)
