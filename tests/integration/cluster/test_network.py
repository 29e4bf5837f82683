"""A broker is cut off, wholly, in part or one way: two leaders never both acknowledge, and nothing is lost.

Each broker has a network namespace of its own, so this needs root: `make soak PART=faults`.
"""

from collections.abc import Iterator

import pytest
from tests.integration.cluster import namespaces
from tests.integration.cluster.harness import Cluster
from tests.integration.cluster.namespaces import CLIENTS, ZOOKEEPER, address, apart, silenced

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(bool(namespaces.possible()), reason=namespaces.possible() or "it can be done"),
]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[namespaces.ApartCluster]:
    with apart(3, tmp_path_factory.mktemp("apart")) as processes:
        yield processes


def others(broker: int) -> list[str]:
    return [address(other) for other in (1, 2, 3) if other != broker]


def a_leader(cluster: Cluster) -> int:
    """One that is not the controller."""
    return next(
        partition.leader for partition in cluster.partitions() if partition.leader != cluster.controller()
    )


def test_a_leader_cut_off_from_its_followers_acknowledges_nothing_alone(three: Cluster) -> None:
    """It lives, as ZooKeeper and clients see it, so it stays the leader; and two others go on with what they lead."""
    with three.load() as load:
        leader = a_leader(three)
        theirs = [number for number, partition in enumerate(three.partitions()) if partition.leader != leader]
        with silenced(leader, *others(leader)), three.unheard(leader):
            load.until_more(200, theirs)
        load.until_more(200)
        three.until_whole()
    load.report().check()
    three.until_replicas_are_equal()


def test_a_leader_cut_off_from_zookeeper_is_replaced(three: Cluster) -> None:
    """Clients and followers still reach it: it must not go on as the leader when another one was elected."""
    with three.load() as load:
        leader = three.leader()
        with silenced(leader, ZOOKEEPER), three.unheard(leader):
            three.until(lambda: three.leader() != leader, "another leader")
            load.until_more(200)
        three.until_whole()
        load.until_more(200)
    load.report().check()
    three.until_replicas_are_equal()


def test_a_leader_that_hears_and_is_not_heard_is_replaced(three: Cluster) -> None:
    """One way: nothing it says arrives anywhere."""
    with three.load() as load:
        leader = three.leader()
        with silenced(leader, ZOOKEEPER, CLIENTS, *others(leader)), three.unheard(leader):
            three.until(lambda: three.leader() != leader, "another leader")
            load.until_more(200)
        three.until_whole()
        load.until_more(200)
    load.report().check()
    three.until_replicas_are_equal()


def test_a_follower_that_the_leader_cannot_answer_is_taken_out_and_let_in_again(three: Cluster) -> None:
    """One way: its fetches arrive, the answers do not."""
    with three.load() as load:
        leader = three.leader()
        follower = next(replica for replica in three.followers() if replica != three.controller())
        with silenced(leader, address(follower)):
            three.until(lambda: follower not in three.partitions()[0].isr, "it is taken out")
            load.until_more(200, [0])
        three.until_whole()
        load.until_more(200)
    load.report().check()
    three.until_replicas_are_equal()
