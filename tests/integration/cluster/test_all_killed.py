"""Everybody dies at once: what was acknowledged is on the disks, and the partitions recover by themselves."""

import pytest
from tests.integration.cluster.harness import Cluster, cut_in_half

from penstock.testing import ClusterProcesses


def test_all_replicas_killed_under_load_come_back_with_everything(three: Cluster) -> None:
    with three.load() as load:
        three.processes.kill()
        three.processes.start()
        load.until_more(200)
    load.report().check()
    three.until_whole()
    three.until_replicas_are_equal()


def test_a_partition_with_one_replica_comes_back_by_itself(running: ClusterProcesses) -> None:
    running.start()
    alone = Cluster(running, partitions=1, replicas=1)
    with alone.load() as load:
        alone.broker(alone.leader()).kill()
        running.start()
        load.until_more(200)
    load.report().check()
    alone.delete(alone.topic)


@pytest.mark.soak
def test_the_last_replica_standing_may_lose_its_end(three: Cluster) -> None:
    """Alone it acknowledged nothing: what the two others had, when they fell, is all that counts."""
    with three.load() as load:
        last = three.leader()
        first, second = three.followers()
        three.broker(first).kill()
        load.until_more(200)
        three.broker(second).kill()
        three.until(
            lambda: all(partition.isr == [last] for partition in three.partitions()), "one is left in sync"
        )
        three.broker(last).kill()
        for number in range(three.partition_count):
            cut_in_half(three.segments(last, number)[-1])
        three.broker(last).start()
        three.until(
            lambda: all(partition.leader == -1 for partition in three.partitions()),
            "what it has left is not enough",
        )
        three.broker(first).start()
        three.broker(second).start()
        load.until_more(200)
        three.until_whole()
    load.report().check()
    three.until_replicas_are_equal()
