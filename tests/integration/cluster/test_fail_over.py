"""Three real brokers on a real ZooKeeper, acks=all and two in sync: whoever dies, nothing acknowledged is lost."""

import itertools
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata
from tests.integration.cluster.load import Load
from tests.integration.raw import wait_until

from penstock.testing import ClusterProcesses, cluster

PARTITIONS = 3
BROKERS = 3
# Tests wait for its end again and again; one that ends because the machine is busy makes a test slower, not wrong.
SETTINGS = {"zookeeper.session.timeout.ms": "3000"}
_numbers = itertools.count()


class Cluster:
    """The processes, and what clients are told of them."""

    def __init__(self, processes: ClusterProcesses) -> None:
        self.processes = processes
        self.admin = AdminClient({"bootstrap.servers": processes.bootstrap, "log_level": 0})
        self.topic = f"orders-{next(_numbers)}"
        self.create(self.topic)
        self.until_whole()

    @property
    def bootstrap(self) -> str:
        return self.processes.bootstrap

    def create(self, name: str) -> None:
        config = {"min.insync.replicas": "2"}
        topic = NewTopic(name, PARTITIONS, BROKERS, config=config)
        self.admin.create_topics([topic])[name].result()

    def partitions(self) -> list[PartitionMetadata]:
        return list(self.admin.list_topics(self.topic, timeout=60).topics[self.topic].partitions.values())

    def leader(self, partition: int = 0) -> int:
        return int(self.partitions()[partition].leader)

    def controller(self) -> int:
        return int(self.admin.list_topics(timeout=60).controller_id)

    def is_whole(self) -> bool:
        """The broker that is asked may not have heard of the topic yet."""
        partitions = self.partitions()
        return len(partitions) == PARTITIONS and all(
            len(one.isrs) == BROKERS and one.leader > 0 for one in partitions
        )

    def until_whole(self) -> None:
        wait_until(self.is_whole, "all replicas in sync")

    def load(self) -> Load:
        return Load(self.bootstrap, self.topic, PARTITIONS)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    """One cluster for the module: each test begins with all of it up, and a topic of its own."""
    with cluster(BROKERS, SETTINGS, directory=tmp_path_factory.mktemp("cluster")) as processes:
        yield processes


@pytest.fixture
def three(running: ClusterProcesses) -> Cluster:
    running.start()
    return Cluster(running)


def test_what_is_produced_to_three_replicas_is_read_back(three: Cluster) -> None:
    assert {one.leader for one in three.partitions()} == {1, 2, 3}
    assert all(sorted(one.replicas) == [1, 2, 3] for one in three.partitions())
    with three.load() as load:
        load.until_more(200)
    found = load.report()
    found.check()
    assert found.failed == []
    assert found.acknowledged == found.sent


def test_a_leader_killed_under_load_loses_nothing_acknowledged(three: Cluster) -> None:
    with three.load() as load:
        leader = three.leader()
        three.processes.broker(leader).kill()
        load.until_more(200)
        wait_until(lambda: three.leader() != leader, "another leader, as everybody knows")
        three.processes.broker(leader).start()
        three.until_whole()
        load.until_more(200)
    found = load.report()
    found.check()
    assert found.failed == []


def test_a_controller_killed_under_load_is_replaced(three: Cluster) -> None:
    with three.load() as load:
        controller = three.controller()
        three.processes.broker(controller).kill()
        wait_until(lambda: three.controller() not in (controller, -1), "another controller")
        load.until_more(200)
        three.processes.broker(controller).start()
        three.create(f"later-than-{three.topic}")
        load.until_more(200)
    load.report().check()


def test_a_clean_restart_of_a_leader_fails_no_produce(three: Cluster) -> None:
    with three.load() as load:
        leader = three.leader()
        three.processes.broker(leader).stop()
        load.until_more(200)
        three.processes.broker(leader).start()
        three.until_whole()
        load.until_more(200)
    found = load.report()
    found.check()
    assert found.failed == []


def test_all_killed_under_load_come_back_with_everything(three: Cluster) -> None:
    with three.load() as load:
        three.processes.kill()
        three.processes.start()
        load.until_more(200)
    load.report().check()
    three.until_whole()
