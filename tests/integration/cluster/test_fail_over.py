"""Three real brokers on a real ZooKeeper, acks=all, two in sync: whoever dies or sleeps, nothing is lost."""

import pytest
from tests.integration.cluster.harness import Cluster


def test_what_is_produced_to_three_replicas_is_read_back(three: Cluster) -> None:
    assert {partition.leader for partition in three.partitions()} == {1, 2, 3}
    assert all(sorted(partition.replicas) == [1, 2, 3] for partition in three.partitions())
    with three.load() as load:
        load.until_more(500)
    found = load.report()
    found.check()
    assert found.acknowledged == found.sent
    three.until_replicas_are_equal()


def test_a_leader_killed_under_load_loses_nothing_acknowledged(three: Cluster) -> None:
    with three.load() as load:
        leader = three.leader()
        three.broker(leader).kill()
        load.until_more(200)
        three.until(lambda: three.leader() != leader, "another leader, as everybody knows")
        three.broker(leader).start()
        three.until_whole()
        load.until_more(200)
    load.report().check()
    three.until_replicas_are_equal()


def test_a_leader_that_sleeps_past_its_session_wakes_up_as_a_follower(three: Cluster) -> None:
    """It does not know what happened, and its connections are still there."""
    with three.load() as load:
        leader = three.leader()
        with three.paused(leader):
            three.until(lambda: three.leader() != leader, "another leader")
            load.until_more(200)
        three.until_whole()
        load.until_more(200)
    load.report().check()
    three.until_replicas_are_equal()


@pytest.mark.soak
def test_a_controller_killed_under_load_is_replaced(three: Cluster) -> None:
    with three.load() as load:
        controller = three.controller()
        three.broker(controller).kill()
        three.until(lambda: three.controller() not in (controller, -1), "another controller")
        load.until_more(200)
        three.broker(controller).start()
        three.processes.until_known()
        later = f"later-than-{three.topic}"
        three.create(later)
        three.delete(later)
        three.until_whole()
    load.report().check()


def test_a_controller_that_sleeps_past_its_session_has_nothing_more_to_say(three: Cluster) -> None:
    with three.load() as load:
        controller = three.controller()
        with three.paused(controller):
            three.until(lambda: three.controller() not in (controller, -1), "another controller")
            load.until_more(200)
        three.until_whole()
        load.until_more(200)
    load.report().check()
    three.until_replicas_are_equal()


def test_a_clean_restart_of_a_leader_fails_no_produce(three: Cluster) -> None:
    with three.load() as load:
        restart(three, three.leader())
        load.until_more(200)
    load.report().check()


@pytest.mark.soak
def test_all_brokers_are_restarted_one_by_one_under_load(three: Cluster) -> None:
    with three.load() as load:
        for _ in range(3):
            for broker in (1, 2, 3):
                restart(three, broker)
            load.until_more(200)
    load.report().check()
    three.until_replicas_are_equal()


def restart(cluster: Cluster, broker: int) -> None:
    """Cleanly; it is back in all partitions when this returns."""
    cluster.broker(broker).stop()
    cluster.broker(broker).start()
    cluster.until_whole()
