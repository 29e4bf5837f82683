"""ZooKeeper goes and comes back: who leads what is known to all, so clients notice nothing."""

import threading

import pytest
from tests.integration.cluster.harness import SESSION_MS, Cluster


def test_zookeeper_is_restarted_under_load(three: Cluster) -> None:
    with three.load() as load:
        with three.without_zookeeper():
            load.until_more(200)
        later = f"later-than-{three.topic}"
        three.create(later)
        three.delete(later)
        load.until_more(200)
    load.report().check()


@pytest.mark.soak
def test_the_data_plane_goes_on_while_zookeeper_is_away_for_longer_than_a_session(three: Cluster) -> None:
    stay_away(three, 1.5 * SESSION_MS / 1000)


@pytest.mark.soak
def test_the_data_plane_goes_on_without_zookeeper_for_half_a_minute(three: Cluster) -> None:
    stay_away(three, 30)


def stay_away(three: Cluster, seconds: float) -> None:
    with three.load() as load:
        with three.without_zookeeper():
            passed = threading.Event()
            timer = threading.Timer(seconds, passed.set)
            timer.start()
            while not passed.is_set():
                load.until_more(50)
            timer.join()
        # Sessions that ended meanwhile are renewed, and whoever lost its place gets it back.
        leader = three.leader()
        three.broker(leader).kill()
        load.until_more(200)
        three.broker(leader).start()
        three.until_whole()
    found = load.report()
    found.check()
    three.until_replicas_are_equal()
