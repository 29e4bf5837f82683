"""What a cluster does by itself when brokers come and go, told from the outside."""

from pathlib import Path

from tests.integration.cluster.harness import LASTING, SETTINGS, Cluster
from tests.integration.cluster.test_moves import prefill
from tests.integration.cluster.watch import Watch

from penstock.testing import cluster

MB = 1 << 20
PARTITIONS = 4


def test_one_of_four_brokers_dies_and_its_replicas_are_rebuilt_on_the_other_three(tmp_path: Path) -> None:
    at_once = {**SETTINGS, "penstock.heal.grace.ms": "500"}
    with cluster(4, at_once, directory=tmp_path) as brokers:
        # Four brokers carry four partitions, three replicas each: every broker has three.
        four = Cluster(brokers, PARTITIONS)
        assert [four.replicas_on(broker) for broker in (1, 2, 3, 4)] == [3, 3, 3, 3]
        with four.load() as load:
            # One dies for good, and takes a copy of three partitions with it.
            four.broker(4).kill()
            # The others notice, wait out the grace, and copy among themselves what it had.
            four.until(lambda: four.is_settled_with(4, False), "three replicas on those that are left")
            assert all(sorted(partition.replicas) == [1, 2, 3] for partition in four.partitions())
            # Another one may die now: nothing is missing.
            four.broker(3).kill()
            load.until_more(100)
            four.broker(3).start()
            four.until_whole()
        load.report().check()
        four.until_replicas_are_equal()


def test_a_fourth_broker_joins_three_and_extra_replicas_go_only_after_catch_up(tmp_path: Path) -> None:
    with cluster(3, LASTING, directory=tmp_path) as brokers:
        three = Cluster(brokers, PARTITIONS)
        prefill(three, 4 * MB)
        assert all(sorted(partition.replicas) == [1, 2, 3] for partition in three.partitions())
        with three.load() as load, Watch(three) as watch:
            # The newcomer is given its share, and may copy only so fast that we can watch.
            brokers.join({"follower.replication.throttled.rate": str(MB)})
            three.until(lambda: three.replicas_on(4) > 0, "it begins to take over")
            three.until(three.is_whole_everywhere, "everything is in its new place")
            load.until_more(100)
        load.report().check()
        # On the way there were four replicas where three will do, and never fewer than three whole ones.
        assert watch.replicas_max == 4
        assert watch.in_sync_min == 3
        # Nobody was let go before all who stay were in sync.
        assert watch.early == []
        # The newcomer carries its share.
        carried = [three.replicas_on(broker) for broker in (1, 2, 3, 4)]
        assert carried[3] == sum(carried) // 4
        three.until_replicas_are_equal()
