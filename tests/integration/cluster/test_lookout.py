"""A killed broker is replaced although its session lasts for longer than anybody here waits (ADR 13)."""

from collections.abc import Iterator

import pytest
from tests.integration.cluster.harness import SETTINGS, Cluster
from tests.integration.cluster.load import Load

from penstock.testing import ClusterProcesses, cluster

TEN_MINUTES_MS = "600000"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    settings = {**SETTINGS, "zookeeper.session.timeout.ms": TEN_MINUTES_MS}
    with cluster(3, settings, directory=tmp_path_factory.mktemp("lasting")) as processes:
        yield processes


def test_leader_and_controller_are_replaced_before_their_sessions_end(three: Cluster) -> None:
    with three.load() as load:
        miss(three.controller(), three, load)
        miss(next(broker for broker in (1, 2, 3) if broker != three.controller()), three, load)
    load.report().check()
    three.until_replicas_are_equal()


def miss(victim: int, three: Cluster, load: Load) -> None:
    """It is killed, others do what it did, and it comes back."""
    three.broker(victim).kill()
    with three.unheard(victim):
        three.until(lambda: three.controller() not in (victim, -1), "a living controller")
        three.until(
            lambda: victim not in {partition.leader for partition in three.partitions()}, "living leaders"
        )
        load.until_more(200)
    three.broker(victim).start()
    three.until_whole()
